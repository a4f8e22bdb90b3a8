//! cargo: fetches a crate from a sparse registry behind the proxy.

use std::path::Path;
use std::process::Command;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

use crate::bench::{Bench, By, NO, OK, REFUSED};
use crate::tool::{self, Outcome};

const MANIFEST: &str = "[package]\nname = \"nestling\"\nversion = \"1.0.0\"\nedition = \"2024\"\n";

/// A registry's files below `folder`, which its visitors reach as `url`.
fn publish(bench: &Bench, folder: &str, url: &str) {
    let source = bench.web().join("source/nestling-1.0.0");
    std::fs::create_dir_all(source.join("src")).unwrap();
    std::fs::write(source.join("Cargo.toml"), MANIFEST).unwrap();
    std::fs::write(source.join("src/lib.rs"), "pub const NEST: &str = \"reed\";\n").unwrap();

    let root = bench.web().join(folder);
    let package = root.join("dl/nestling/1.0.0/download");
    std::fs::create_dir_all(package.parent().unwrap()).unwrap();
    let mut pack = tool::command(&tool::find("tar").unwrap(), &bench.web().join("source"));
    pack.arg("--gzip").arg("--create").arg("--file").arg(&package).arg("nestling-1.0.0");
    tool::run(pack).success();

    let sum = digest(&SHA256, &std::fs::read(&package).unwrap());
    let sum: String = sum.as_ref().iter().map(|octet| format!("{octet:02x}")).collect();
    std::fs::create_dir_all(root.join("ne/st")).unwrap();
    let line = json!({
        "name": "nestling", "vers": "1.0.0", "deps": [], "cksum": sum, "features": {}, "yanked": false,
    });
    std::fs::write(root.join("ne/st/nestling"), format!("{line}\n")).unwrap();
    std::fs::write(root.join("config.json"), json!({ "dl": format!("{url}/dl") }).to_string()).unwrap();
}

/// A project that depends on the crate, as found at `index`.
fn project(bench: &Bench, index: &str) {
    let home = bench.home();
    std::fs::create_dir_all(home.join("src")).unwrap();
    std::fs::write(home.join("src/lib.rs"), "").unwrap();
    std::fs::write(
        home.join("Cargo.toml"),
        "[package]\nname = \"heron\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nnestling = { version = \"1\", registry = \"local\" }\n",
    )
    .unwrap();
    std::fs::create_dir_all(home.join(".cargo")).unwrap();
    let registry = format!("[registries.local]\nindex = \"sparse+{index}/\"\n\n[net]\nretry = 0\n");
    std::fs::write(home.join(".cargo/config.toml"), registry).unwrap();
}

/// `cargo fetch` with caches of its own, told of the proxy by its own setting.
fn fetch(bench: &Bench, caches: &str) -> Outcome {
    // The program itself: what stands in the search path may choose one by files in the home.
    let program = Path::new(env!("CARGO"));
    let mut command: Command = tool::command(program, &bench.home());
    command.env("RUSTC", program.with_file_name("rustc")).env("CARGO_HOME", bench.home().join(caches));
    command.env("CARGO_HTTP_PROXY", bench.proxy_url()).env("CARGO_HTTP_CAINFO", bench.ca()).arg("fetch");
    tool::run(command)
}

fn fetches_a_crate(bench: &Bench) {
    for (caches, url) in ["http", "https"].into_iter().zip(bench.urls(OK, "")) {
        let index = format!("{url}/{caches}");
        publish(bench, caches, &index);
        project(bench, &index);
        let _ = std::fs::remove_file(bench.home().join("Cargo.lock"));
        fetch(bench, caches).success();
        let kept = bench.home().join(caches).join("registry/src");
        let registry = std::fs::read_dir(kept).unwrap().next().unwrap().unwrap().path();
        let library = std::fs::read_to_string(registry.join("nestling-1.0.0/src/lib.rs")).unwrap();
        assert_eq!(library, "pub const NEST: &str = \"reed\";\n", "{index}");
    }
    bench.settle();
}

#[test]
fn it_fetches_a_crate() {
    fetches_a_crate(&Bench::with_files(By::Source));
}

#[test]
fn it_sends_its_token() {
    fetches_a_crate(&Bench::with_files(By::Token));
}

#[test]
fn it_shows_why_http_was_refused() {
    let bench = Bench::with_files(By::Source);
    project(&bench, &bench.http(NO, "/index"));
    // It prints the body of an answer that it did not expect.
    fetch(&bench, "caches").fails_saying(&format!("\"reason\":\"{REFUSED}\""));
    bench.refused_no(1, 0);
}

#[test]
fn it_shows_the_number_when_a_tunnel_was_refused() {
    let bench = Bench::with_files(By::Source);
    project(&bench, &bench.https(NO, "/index"));
    // libcurl's words are all it has; CARGO_HTTP_DEBUG=true shows the headers.
    fetch(&bench, "caches").fails_saying("CONNECT tunnel failed, response 403");
    bench.refused_no(0, 1);
}
