//! apt: reads a package list and downloads a package, in a root of its own: nothing of the
//! machine's package system is read or changed.

use std::fmt::Write as _;
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};

use crate::bench::{Bench, By, NO, OK, REFUSED, content};
use crate::tool::{self, Outcome};

type Run = Box<dyn Fn(&Bench, &str, &[&str]) -> Outcome>;

const PACKAGE: &str = "bittern_1.0_all.deb";

/// A bench whose site is a flat repository without a signature, and how to run apt-get with that
/// as its only source.
fn setup(by: By) -> Option<(Bench, Run)> {
    let program = tool::find("apt-get")?;
    let bench = Bench::with_files(by);
    publish(&bench.web());
    let run = move |bench: &Bench, url: &str, arguments: &[&str]| {
        let configuration = configure(bench, url);
        let mut command = tool::command(&program, &bench.home());
        command.env("APT_CONFIG", configuration).args(arguments);
        tool::run(command)
    };
    Some((bench, Box::new(run)))
}

fn publish(web: &Path) {
    // Nobody installs it, so any octets will do for a package.
    let package = content(50_000);
    let list = format!(
        "Package: bittern\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <nobody@{OK}>\n\
         Filename: ./{PACKAGE}\nSize: {}\nSHA256: {}\nDescription: a bird in the reeds\n\n",
        package.len(),
        sha256(&package),
    );
    let release = format!(
        "Suite: test\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {} {} Packages\n",
        sha256(list.as_bytes()),
        list.len(),
    );
    std::fs::write(web.join(PACKAGE), package).unwrap();
    std::fs::write(web.join("Packages"), list).unwrap();
    std::fs::write(web.join("Release"), release).unwrap();
}

fn sha256(data: &[u8]) -> String {
    digest(&SHA256, data).as_ref().iter().fold(String::new(), |mut text, octet| {
        write!(text, "{octet:02x}").unwrap();
        text
    })
}

/// Writes the settings, and returns their file, which apt reads before any other: then it looks for
/// those in this root.
fn configure(bench: &Bench, url: &str) -> std::path::PathBuf {
    let root = bench.home().join("root");
    for folder in [
        "etc/apt/apt.conf.d",
        "etc/apt/preferences.d",
        "state/lists/partial",
        "cache/archives/partial",
        "log",
    ] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::fs::write(root.join("status"), "").unwrap();
    std::fs::write(root.join("etc/apt/sources.list"), format!("deb [trusted=yes] {url} ./\n")).unwrap();
    let (place, proxy, ca) = (root.display(), bench.proxy_url(), bench.ca());
    let settings = format!(
        "Dir \"{place}\";\nDir::Etc \"{place}/etc/apt\";\nDir::State \"{place}/state\";\n\
         Dir::State::status \"{place}/status\";\nDir::Cache \"{place}/cache\";\nDir::Log \"{place}/log\";\n\
         APT::Architecture \"amd64\";\nAPT::Sandbox::User \"\";\n\
         APT::Update::Error-Mode \"any\";\nAcquire::Retries \"0\";\nAcquire::Languages \"none\";\nAcquire::https::CAInfo \"{}\";\n\
         Acquire::http::Proxy \"{proxy}\";\nAcquire::https::Proxy \"{proxy}\";\n\
         Acquire::http::Pipeline-Depth \"10\";\n",
        ca.display(),
    );
    let file = bench.home().join("apt.conf");
    std::fs::write(&file, settings).unwrap();
    file
}

#[test]
fn it_updates_and_downloads() {
    let Some((bench, apt)) = setup(By::Source) else { return };
    for url in bench.urls(OK, "/") {
        apt(&bench, &url, &["update"]).success();
        apt(&bench, &url, &["download", "bittern"]).success();
        let file = bench.home().join(PACKAGE);
        assert!(std::fs::read(&file).unwrap() == content(50_000), "{url}");
        std::fs::remove_file(file).unwrap();
    }
    bench.settle();
}

#[test]
fn it_shows_why_it_was_refused() {
    let Some((bench, apt)) = setup(By::Source) else { return };
    let [http, https] = bench.urls(NO, "/");
    apt(&bench, &http, &["update"]).fails_saying(&format!("403  egret {REFUSED}"));
    // It takes a refused tunnel for a passing fault, and fails only because it is told to.
    let words = format!("Invalid response from proxy: HTTP/1.1 403 egret {REFUSED}");
    apt(&bench, &https, &["update"]).fails_saying(&words);
    bench.refused_no_over(&["connect", "http"]);
}

#[test]
fn it_sends_its_token() {
    let Some((bench, apt)) = setup(By::Token) else { return };
    for url in bench.urls(OK, "/") {
        apt(&bench, &url, &["update"]).success();
    }
    bench.settle();
}
