//! git: clones and pushes over both HTTP protocols of its own, plain and through a tunnel.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::bench::{Bench, By, NO, OK, REFUSED, content};
use crate::site::{self, Reply};
use crate::support::http1;
use crate::support::origin::Request;
use crate::tool::{self, Outcome};

type Run = Box<dyn Fn(&Bench, &[&str]) -> Outcome>;

/// The path below which git itself answers; everything else is files, which is the dumb protocol.
const SMART: &str = "/smart/";

/// A bench whose site has the repository `birds.git` with one commit, and how to run git.
fn setup(by: By) -> Option<(Bench, Run)> {
    let program = tool::find("git")?;
    let server = program.clone();
    let bench = Bench::serving(by, move |web| {
        let (files, web) = (site::files(web), web.to_owned());
        move |request: &Request| match request.path().strip_prefix(SMART) {
            Some(path) => backend(&server, &web, path, request),
            None => files(request),
        }
    });
    let run = move |bench: &Bench, arguments: &[&str]| {
        let mut command = isolated(bench.client(&program));
        command.env("GIT_SSL_CAINFO", bench.ca()).args(arguments);
        tool::run(command)
    };
    commit(&bench, &run);
    Some((bench, Box::new(run)))
}

/// Without the settings of this machine.
fn isolated(mut command: Command) -> Command {
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Nobody").env(format!("GIT_{role}_EMAIL"), "nobody@ok.test");
    }
    command
}

fn commit(bench: &Bench, git: impl Fn(&Bench, &[&str]) -> Outcome) {
    let bare = bench.web().join("birds.git");
    let bare = bare.to_str().unwrap();
    git(bench, &["init", "--quiet", "work"]).success();
    std::fs::write(bench.home().join("work/egret"), content(100_000)).unwrap();
    git(bench, &["-C", "work", "add", "egret"]).success();
    git(bench, &["-C", "work", "commit", "--quiet", "--message", "An egret"]).success();
    git(bench, &["clone", "--quiet", "--bare", "work", bare]).success();
    git(bench, &["-C", bare, "config", "http.receivepack", "true"]).success();
    git(bench, &["-C", bare, "update-server-info"]).success();
}

/// Hands a request to `git http-backend`, a CGI program (RFC 3875).
fn backend(git: &Path, web: &Path, path: &str, request: &Request) -> Reply {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let header = |name: &str| request.get(name).unwrap_or_default().to_owned();
    let mut command = isolated(tool::command(git, web));
    command
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", web)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", request.method())
        .env("PATH_INFO", format!("/{path}"))
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", request.body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("HTTP_GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It reads its whole input before it writes more than a pipe holds.
    child.stdin.take().unwrap().write_all(&request.body).unwrap();
    let output = child.wait_with_output().unwrap().stdout;
    let (head, body) = http1::split_head(&output).expect("a CGI answer has a head");
    let mut reply = Reply::ok(body);
    // CGI begins with the fields: there is no first line to leave out.
    for (name, value) in http1::fields(&[b"\n", head].concat()) {
        match name.as_str() {
            "status" => reply.status = value.split(' ').next().unwrap().parse().unwrap(),
            _ => reply.headers.push((name, value)),
        }
    }
    reply
}

fn cloned(bench: &Bench, folder: &str) -> Vec<u8> {
    let file: PathBuf = bench.home().join(folder).join("egret");
    std::fs::read(file).unwrap()
}

#[test]
fn it_clones_over_both_protocols() {
    let Some((bench, git)) = setup(By::Source) else { return };
    for path in ["/birds.git", "/smart/birds.git"] {
        for (number, url) in bench.urls(OK, path).iter().enumerate() {
            let folder = format!("clone{number}{}", path.replace('/', "-"));
            git(&bench, &["clone", "--quiet", url, &folder]).success();
            assert!(cloned(&bench, &folder) == content(100_000), "{url}");
        }
    }
    let asked = bench.plain.served();
    assert!(asked.iter().any(|s| s.request.path().starts_with("/birds.git/objects/")), "the dumb protocol");
    assert!(asked.iter().any(|s| s.request.path() == "/smart/birds.git/git-upload-pack"), "the smart one");
    bench.settle();
}

#[test]
fn it_pushes() {
    let Some((bench, git)) = setup(By::Source) else { return };
    // Beyond http.postBuffer, so that it is sent in chunks, behind a probe.
    std::fs::write(bench.home().join("work/heron"), content(2 << 20)).unwrap();
    git(&bench, &["-C", "work", "add", "heron"]).success();
    git(&bench, &["-C", "work", "commit", "--quiet", "--message", "A heron"]).success();
    for (branch, url) in ["one", "two"].into_iter().zip(bench.urls(OK, "/smart/birds.git")) {
        let place = format!("HEAD:refs/heads/{branch}");
        git(&bench, &["-C", "work", "push", "--quiet", &url, &place]).success();
        let bare = bench.web().join("birds.git");
        let shown = git(&bench, &["-C", bare.to_str().unwrap(), "show", &format!("{branch}:heron")]);
        assert!(shown.success() == content(2 << 20), "{url}");
    }
    bench.settle();
}

#[test]
fn it_clones_and_pushes_over_socks() {
    for by in [By::Source, By::Token] {
        let Some((bench, git)) = setup(by) else { return };
        let proxy = format!("http.proxy={}", bench.socks_url());
        for (number, url) in bench.urls(OK, "/smart/birds.git").iter().enumerate() {
            let folder = format!("clone{number}");
            git(&bench, &["-c", &proxy, "clone", "--quiet", url, &folder]).success();
            assert!(cloned(&bench, &folder) == content(100_000), "{url}");
            let place = format!("HEAD:refs/heads/branch{number}");
            git(&bench, &["-C", "work", "-c", &proxy, "push", "--quiet", url, &place]).success();
        }
        git(&bench, &["-c", &proxy, "clone", &bench.http(NO, "/birds.git"), "out"]).fails_saying("(2)");
        bench.settle();
    }
}

#[test]
fn it_shows_the_number_when_it_was_refused() {
    let Some((bench, git)) = setup(By::Source) else { return };
    // Its own line has no more than the number.
    git(&bench, &["clone", &bench.http(NO, "/birds.git"), "out"])
        .fails_saying("The requested URL returned error: 403");
    git(&bench, &["clone", &bench.https(NO, "/birds.git"), "out"])
        .fails_saying("CONNECT tunnel failed, response 403");
    bench.refused_no(1, 1);
}

#[test]
fn it_shows_why_it_was_refused_when_asked() {
    let Some(program) = tool::find("git") else { return };
    let bench = Bench::with_files(By::Source);
    for url in bench.urls(NO, "/birds.git") {
        let mut command = isolated(bench.client(&program));
        command.env("GIT_CURL_VERBOSE", "1").args(["clone", &url, "out"]);
        tool::run(command).fails_saying(&format!("HTTP/1.1 403 egret {REFUSED}"));
    }
    bench.refused_no(1, 1);
}

#[test]
fn it_sends_its_token() {
    let Some((bench, git)) = setup(By::Token) else { return };
    for (number, url) in bench.urls(OK, "/smart/birds.git").iter().enumerate() {
        let folder = format!("clone{number}");
        git(&bench, &["clone", "--quiet", url, &folder]).success();
        assert!(cloned(&bench, &folder) == content(100_000), "{url}");
    }
    bench.settle();
}
