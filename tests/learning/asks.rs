//! How registries are asked: what they can and can't make egret do.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::import::import;
use crate::site::{Reply, Site};
use crate::support::origin::Request;
use crate::tls;
use crate::world::{FILES, INDEX, OTHER, SECRET, text};

/// The answer of a registry that is named after it.
fn answer(request: &Request, plain_port: u16) -> Reply {
    let to =
        |place: String| Reply { status: 302, headers: vec![("Location".into(), place)], ..Reply::ok("") };
    let config = |dl: &str| Reply::ok(format!("{{\"dl\": \"{dl}\", \"api\": \"https://api.corp.example\"}}"));
    let path = request.path();
    let name = path.trim_start_matches('/').split('/').next().unwrap();
    match name {
        "moved" => to("/there/config.json".to_owned()),
        "there" => config(&format!("https://{FILES}/{{crate}}")),
        "round" => to(path.to_owned()),
        "strange" => to(format!("http://{OTHER}:{plain_port}/x")),
        "down" => to(format!("http://{INDEX}:{plain_port}/x")),
        "script" => to("javascript:alert(1)".to_owned()),
        "secret" => Reply { status: 401, ..Reply::ok("") },
        "broken" => Reply { status: 500, ..Reply::ok("") },
        "long" => Reply::ok(vec![b' '; 4 << 20]),
        "marked" => config("https://{crate}.corp.example/"),
        "paste" => config("https://pastebin.com/raw"),
        "address" => config("http://169.254.169.254/latest"),
        "metadata" => config("http://metadata.google.internal/"),
        _ => Reply::not_found(),
    }
}

struct Asked {
    report: Value,
    all: String,
    plain: Site,
    tls: Site,
}

/// Imports registries of these names, those with a `+` over TLS, as set for cargo.
fn ask(names: &[&str], trusted: bool) -> Asked {
    let dir = tempfile::tempdir().unwrap();
    let (ca, config) = tls::authority(&[INDEX]);
    std::fs::write(dir.path().join("ca.pem"), ca).unwrap();
    let plain = Site::start(Arc::new(|request: &Request| answer(request, 1)), None);
    let port = plain.port();
    let tls = Site::start(Arc::new(move |request: &Request| answer(request, port)), Some(config));
    let mut settings = String::new();
    for name in names {
        let (scheme, port) =
            if name.starts_with('+') { ("https", tls.port()) } else { ("http", plain.port()) };
        let name = name.trim_start_matches('+');
        let url = format!("{scheme}://user:{SECRET}@{INDEX}:{port}/{name}/?token={SECRET}");
        write!(settings, "[registries.{name}]\nindex = \"sparse+{url}\"\ntoken = \"{SECRET}\"\n").unwrap();
    }
    std::fs::create_dir_all(dir.path().join("root/.cargo")).unwrap();
    std::fs::write(dir.path().join("root/.cargo/config.toml"), settings).unwrap();
    let hosts = [INDEX, OTHER].map(|name| format!("\"{name}\" = [\"127.0.0.1\"]")).join(", ");
    let hosts = format!("{hosts}, \"{FILES}\" = [\"203.0.114.8\"], \"pastebin.com\" = [\"203.0.114.9\"]");
    let config = format!("[dns]\nservers = [\"127.0.0.1:9\"]\ntimeout = \"1s\"\nhosts = {{ {hosts} }}\n");
    std::fs::write(dir.path().join("egret.toml"), config).unwrap();
    let roots = dir.path().join(if trusted { "ca.pem" } else { "none.pem" });
    let args = ["cargo", "--root", ".", "--config", "egret.toml", "--private", "127.0.0.0/8", "--json"];
    let output = import(dir.path(), &args, &[("SSL_CERT_FILE", Path::new(&roots))]);
    assert!(output.status.success(), "{output:?}");
    let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!all.contains(SECRET), "{all}");
    for served in plain.served().iter().chain(&tls.served()) {
        let head = String::from_utf8_lossy(&served.request.head).into_owned();
        assert!(!head.contains(SECRET) && served.request.get("authorization").is_none(), "{head}");
    }
    Asked { report: serde_json::from_slice(&output.stdout).unwrap(), all, plain, tls }
}

impl Asked {
    /// Why it is not known where the files of the only registry are.
    fn why(&self) -> Vec<&str> {
        self.report["not_asked"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["why"].as_str().unwrap())
            .collect()
    }

    fn domains(&self) -> Vec<&str> {
        self.report["rules"].as_array().unwrap().iter().map(|rule| rule["domain"].as_str().unwrap()).collect()
    }
}

#[test]
fn redirects_are_decided_one_by_one() {
    let moved = ask(&["moved"], true);
    assert_eq!(moved.domains(), [FILES, INDEX], "{}", moved.all);
    let why = moved.why();
    assert!(why.len() == 1 && why[0].starts_with("not proposed: api.corp.example:443"), "{why:?}");

    let round = ask(&["round"], true);
    assert_eq!((round.why(), round.plain.served().len()), (vec!["more than 5 redirects"], 6));
    // What the operator unlocked is for the registries of the settings alone.
    let strange = ask(&["+strange"], true);
    assert_eq!(strange.plain.served().len(), 0, "{}", strange.all);
    assert_eq!(strange.why(), ["it redirects from TLS to plain HTTP"]);
    let strange = ask(&["strange"], true);
    assert!(
        strange.why()[0].starts_with("egret may not ask it: it is at an address that is not public"),
        "{}",
        strange.all
    );
    assert_eq!((strange.plain.served().len(), strange.domains()), (1, vec![INDEX]));
    let down = ask(&["+down"], true);
    assert_eq!((down.why(), down.plain.served().len()), (vec!["it redirects from TLS to plain HTTP"], 0));
    assert_eq!(ask(&["script"], true).why(), ["it redirects to no http:// or https:// URL"]);
}

#[test]
fn odd_answers_give_no_rules() {
    for (name, told) in [
        (
            "secret",
            "it asks for credentials, and egret sends none; if its files are on another host, observe one run of cargo, which has them, and learn (`egret learn`)",
        ),
        ("broken", "it answers 500"),
        ("nothing", "it answers 404"),
        ("long", "its config.json can't be understood"),
        ("marked", "its crates are on hosts that depend on the crate"),
    ] {
        let asked = ask(&[name], true);
        assert_eq!((asked.why(), asked.domains()), (vec![told], vec![INDEX]), "{name}");
    }
    for (name, told) in [
        ("paste", "a host for text and files of anybody (pastebin.com)"),
        ("address", "an IP address; if it is meant"),
        ("metadata", "a rule can't be written for it"),
    ] {
        let asked = ask(&[name], true);
        let not_proposed = asked.report["not_proposed"][0]["why"].as_str().unwrap();
        assert!(not_proposed.starts_with(told), "{name}: {}", asked.all);
        assert_eq!(asked.domains(), [INDEX], "{name}");
    }
}

#[test]
fn only_trusted_certificates_count() {
    let trusted = ask(&["+there"], true);
    assert_eq!((trusted.domains(), trusted.tls.served().len()), (vec![FILES, INDEX], 1), "{}", trusted.all);
    let untrusted = ask(&["+there"], false);
    assert_eq!((untrusted.domains(), untrusted.tls.served().len()), (vec![INDEX], 0), "{}", untrusted.all);
    let why = untrusted.why();
    assert!(why[0].starts_with("TLS: ") || why[0].starts_with("no root certificates"), "{why:?}");
}

/// Whatever is asked for: a registry that wants credentials has its rule, and one line says what to do.
#[test]
fn every_kind_of_registry_may_want_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let denies =
        |_: &Request| Reply { status: 401, ..Reply::ok("<a href=\"http://pastebin.com/x\">login</a>") };
    let site = Site::start(Arc::new(denies), None);
    let url = format!("http://user:{SECRET}@{INDEX}:{}", site.port());
    for (path, written) in [
        ("root/.npmrc", format!("registry={url}/npm/\n")),
        ("etc/pip.conf", format!("[global]\nindex-url = {url}/simple\nfind-links = {url}/links\n")),
        ("etc/uv/uv.toml", format!("[[index]]\nurl = \"{url}/flat\"\nformat = \"flat\"\n")),
        ("root/.cargo/config.toml", format!("[registries.corp]\nindex = \"sparse+{url}/crates/\"\n")),
        ("etc/apt/sources.list", format!("deb mirror+{url}/mirrors.txt ./\ndeb {url}/debian ./\n")),
    ] {
        let file = dir.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, written).unwrap();
    }
    let config = format!("[dns]\nservers = [\"127.0.0.1:9\"]\nhosts = {{ \"{INDEX}\" = [\"127.0.0.1\"] }}\n");
    std::fs::write(dir.path().join("egret.toml"), config).unwrap();
    let args = ["--root", ".", "--config", "egret.toml", "--private", "127.0.0.0/8", "--json"];
    let clients = [("npm", 1), ("pip", 2), ("uv", 1), ("cargo", 1), ("apt", 2)];
    for (client, registries) in clients {
        let output = import(dir.path(), &[&[client], &args[..]].concat(), &[]);
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let told = format!("observe one run of {client}, which has them, and learn");
        let why = report["not_asked"].as_array().unwrap();
        let said = why.iter().filter(|entry| entry["why"].as_str().unwrap().contains(&told));
        assert_eq!((said.count(), why.len()), (registries, registries), "{report}");
        let rules = report["rules"].as_array().unwrap();
        assert!(rules.iter().all(|rule| rule["domain"] == INDEX) && rules.len() == 1, "{report}");
        assert!(!text(&output.stdout).contains(SECRET) && !text(&output.stderr).contains(SECRET));
    }
}
