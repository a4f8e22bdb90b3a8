//! pip: installs a wheel that the test packs itself, from an index behind the proxy.

use std::path::Path;

use crate::bench::{Bench, By, NO, OK, REFUSED};
use crate::tool::{self, Outcome};

type Run = Box<dyn Fn(&Bench, &str, &[&str]) -> Outcome>;

const WHEEL: &str = "hatchling_of_egret-1.0-py3-none-any.whl";

/// Arguments: the file to write. A wheel is a zip file with these members (PEP 427).
const PACK: &str = r#"
import sys, zipfile
info = "hatchling_of_egret-1.0.dist-info"
members = {
    "hatchling_of_egret.py": "NEST = 'reed'\n",
    f"{info}/METADATA": "Metadata-Version: 2.1\nName: hatchling-of-egret\nVersion: 1.0\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
record = "".join(f"{name},,\n" for name in [*members, f"{info}/RECORD"])
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    for name, text in {**members, f"{info}/RECORD": record}.items():
        wheel.writestr(name, text)
"#;

/// A bench whose site is an index with one project, and how to install that from an index.
fn setup(by: By) -> Option<(Bench, Run)> {
    let program = tool::find("python3")?;
    let bench = Bench::with_files(by);
    let mut probe = tool::command(&program, &bench.home());
    probe.args(["-m", "pip", "--version"]);
    if !tool::run(probe).status.success() {
        tool::missing("pip");
        return None;
    }
    publish(&program, &bench);
    let run = move |bench: &Bench, index: &str, more: &[&str]| {
        let mut command = bench.client(&program);
        command.env("PIP_CONFIG_FILE", "/dev/null").args(["-m", "pip", "install"]);
        command.args(["--no-cache-dir", "--disable-pip-version-check", "--no-deps", "--retries=0"]);
        command.arg("--cert").arg(bench.ca()).args(["--trusted-host", OK, "--trusted-host", NO]);
        command.args(["--index-url", index, "--target=out"]).args(more).arg("hatchling-of-egret");
        tool::run(command)
    };
    Some((bench, Box::new(run)))
}

fn publish(python: &Path, bench: &Bench) {
    let page = bench.web().join("simple/hatchling-of-egret");
    std::fs::create_dir_all(&page).unwrap();
    let mut pack = tool::command(python, &bench.home());
    pack.args(["-c", PACK]).arg(page.join(WHEEL));
    tool::run(pack).success();
    let link = format!("<!DOCTYPE html><html><body><a href=\"{WHEEL}\">{WHEEL}</a></body></html>");
    std::fs::write(page.join("index.html"), link).unwrap();
}

#[test]
fn it_installs() {
    let Some((bench, pip)) = setup(By::Source) else { return };
    for index in bench.urls(OK, "/simple/") {
        pip(&bench, &index, &[]).success();
        let module = bench.home().join("out/hatchling_of_egret.py");
        assert_eq!(std::fs::read_to_string(module).unwrap(), "NEST = 'reed'\n", "{index}");
        std::fs::remove_dir_all(bench.home().join("out")).unwrap();
    }
    bench.settle();
}

#[test]
fn it_shows_why_http_was_refused_when_asked() {
    let Some((bench, pip)) = setup(By::Source) else { return };
    let index = bench.http(NO, "/simple/");
    // To pip an index that answers with an error is one that has nothing; only --verbose tells.
    pip(&bench, &index, &[]).fails_saying("No matching distribution found for hatchling-of-egret");
    let shown = pip(&bench, &index, &["--verbose", "--verbose"]);
    assert!(shown.text().contains(&format!("403 Client Error: egret {REFUSED}")), "{shown:?}");
    bench.refused_no(2, 0);
}

#[test]
fn it_shows_why_a_file_was_refused() {
    let Some((bench, pip)) = setup(By::Source) else { return };
    let page = bench.web().join("simple/hatchling-of-egret/index.html");
    let link = bench.http(NO, &format!("/{WHEEL}"));
    std::fs::write(page, format!("<a href=\"{link}\">{WHEEL}</a>")).unwrap();
    let shown = pip(&bench, &bench.http(OK, "/simple/"), &[]);
    shown.fails_saying(&format!("403 Client Error: egret {REFUSED} for url: {link}"));
    bench.refused_no(1, 0);
}

#[test]
fn it_shows_why_a_tunnel_was_refused() {
    let Some((bench, pip)) = setup(By::Source) else { return };
    // It says so each time it tries again, which is five times if nothing else is set.
    let shown = pip(&bench, &bench.https(NO, "/simple/"), &["--retries=1"]);
    shown.fails_saying(&format!("Tunnel connection failed: 403 egret {REFUSED}"));
    bench.refused_no(0, 2);
}

#[test]
fn it_sends_its_token() {
    let Some((bench, pip)) = setup(By::Token) else { return };
    for index in bench.urls(OK, "/simple/") {
        pip(&bench, &index, &["--upgrade"]).success();
    }
    bench.settle();
}
