//! wget: it prints the phrase of the status line, so every refusal shows its reason.

use crate::bench::{Bench, By, FILE, NO, OK, REFUSED, content, file};
use crate::tool::{self, Outcome};

type Run = Box<dyn Fn(&Bench, &[&str]) -> Outcome>;

fn setup(by: By) -> Option<(Bench, Run)> {
    let program = tool::find("wget")?;
    let run = move |bench: &Bench, arguments: &[&str]| {
        let mut command = bench.client(&program);
        command.args(["--no-config", "--no-hsts", "--tries=1", "--timeout=60", "--output-document=-"]);
        command.arg(format!("--ca-certificate={}", bench.ca().display())).args(arguments);
        tool::run(command)
    };
    Some((Bench::start(by), Box::new(run)))
}

#[test]
fn it_downloads() {
    let Some((bench, wget)) = setup(By::Source) else { return };
    for path in [FILE, "/chunked"] {
        for url in bench.urls(OK, path) {
            assert!(wget(&bench, &[&url]).success() == file(), "{url}");
        }
    }
    bench.settle();
}

#[test]
fn it_uploads() {
    let Some((bench, wget)) = setup(By::Source) else { return };
    let data = content(1 << 20);
    std::fs::write(bench.home().join("data"), &data).unwrap();
    for url in bench.urls(OK, "/upload") {
        assert!(wget(&bench, &["--post-file=data", &url]).success() == data, "{url}");
    }
    bench.settle();
}

#[test]
fn it_shows_why_it_was_refused() {
    let Some((bench, wget)) = setup(By::Source) else { return };
    wget(&bench, &[&bench.http(NO, FILE)]).fails_saying(&format!("ERROR 403: egret {REFUSED}"));
    wget(&bench, &[&bench.https(NO, FILE)]).fails_saying(&format!("Proxy tunneling failed: egret {REFUSED}"));
    bench.refused_no(1, 1);
}

#[test]
fn it_sends_its_token() {
    let Some((bench, wget)) = setup(By::Token) else { return };
    for url in bench.urls(OK, FILE) {
        assert!(wget(&bench, &[&url]).success() == file(), "{url}");
    }
    bench.settle();
}
