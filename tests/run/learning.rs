//! One observed run becomes the rules that the next run is held to.

use std::fs;
use std::path::Path;

use crate::site::{Told, User, open_folder, told, users};
use crate::support::origin::Origin;

/// What the command asks for.
const WANTED: [&str; 4] =
    ["http://one.example/a", "http://a.pkgs.example/", "http://b.pkgs.example/", "http://c.pkgs.example/"];
/// What it did not ask for when it was observed.
const OTHER: [&str; 1] = ["http://other.example/"];

/// Answers every tunnel itself, whatever address it leads to: names lead to public ones, and those
/// are not to be reached from a test.
fn parent() -> Origin {
    Origin::start(|visit| {
        let Some(_connect) = visit.head()? else { return Ok(()) };
        visit.send("HTTP/1.1 200 OK\r\n\r\n")?;
        while visit.request()?.is_some() {
            visit.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        }
        Ok(())
    })
}

/// Asks for all of them, and says the status of each.
fn run(folder: &Path, options: &[&str], urls: &[&str]) -> Told {
    let script =
        format!("for u in {}; do curl -s -o /dev/null -w '%{{http_code}} ' $u; done", urls.join(" "));
    let mut run = User::Own.run(folder);
    run.args(["--config", "egret.toml"]).args(options).args(["--", "sh", "-c", &script]);
    told(run.output().unwrap())
}

#[test]
fn observe_learn_enforce() {
    if !users().contains(&User::Own) {
        return;
    }
    let (parent, folder) = (parent(), open_folder());
    let names = ["one", "a.pkgs", "b.pkgs", "c.pkgs", "other"];
    let hosts = names.map(|name| format!("\"{name}.example\" = [\"203.0.114.7\"]")).join(", ");
    let config = |rules: &str| {
        let text = format!(
            "[dns]\nhosts = {{ {hosts} }}\n[upstream]\nproxy = \"http://{}\"\n[policy.build]\n{rules}\n",
            parent.address
        );
        fs::write(folder.path().join("egret.toml"), text).unwrap();
    };
    config("");
    let refused = run(folder.path(), &[], &WANTED);
    assert_eq!(refused.stdout, "403 403 403 403 ", "{refused:?}");
    fs::create_dir(folder.path().join("rules")).unwrap();
    let observed = run(folder.path(), &["--observe", "--learn", "rules/build.toml"], &WANTED);
    assert_eq!((observed.code, observed.stdout.as_str()), (Some(0), "200 200 200 200 "), "{observed:?}");
    assert!(observed.stderr.contains("rules/build.toml: 2 rules added"), "{observed:?}");
    assert!(observed.stderr.contains("4 observed"), "{observed:?}");
    // Once more, from an audit file that holds an older run too.
    let options = ["--observe", "--learn", "rules/build.toml", "--audit", "audit.ndjson"];
    for (urls, text) in
        [(&WANTED[..], "nothing is new"), (&OTHER, "1 rule added"), (&OTHER, "1 rule for 1 request")]
    {
        let again = run(folder.path(), &options, urls);
        assert!(again.stderr.contains(text), "{text}: {again:?}");
    }
    // Another port is told, and learned where it is named.
    let odd = ["http://one.example:8081/"];
    for (port, text) in
        [(&[][..], "a port other than 80 and 443; --port permits it"), (&["--port", "8081"], "1 rule added")]
    {
        let options = [&["--observe", "--learn", "rules/build.toml"], port].concat();
        let run = run(folder.path(), &options, &odd);
        assert!(run.stderr.contains(text), "{text}: {run:?}");
    }
    config("rules = [\"build\"]");
    assert_eq!(run(folder.path(), &[], &odd).stdout, "200 ");
    let enforced = run(folder.path(), &[], &[&WANTED[..], &["http://new.example/"]].concat());
    assert_eq!(enforced.stdout, "200 200 200 200 403 ", "{enforced:?}");
}

#[test]
fn a_rule_set_that_was_learned_alone_holds_alone() {
    if !users().contains(&User::Own) {
        return;
    }
    let folder = open_folder();
    let run = |options: &[&str]| {
        let mut run = User::Own.run(folder.path());
        run.args(options).args([
            "--",
            "sh",
            "-c",
            "curl -s -o /dev/null -w '%{http_code}' http://no-such-name.invalid/",
        ]);
        told(run.output().unwrap())
    };
    assert_eq!(run(&[]).stdout, "403");
    // Without DNS the request fails, behind the rules.
    let observed = run(&["--observe", "--allow", "a.example", "--learn", "learned.toml"]);
    assert!(observed.stdout.starts_with("50"), "{observed:?}");
    fs::write(folder.path().join("learned.toml"), "[[allow]]\ndomains = [\"no-such-name.invalid\"]\n")
        .unwrap();
    let enforced = run(&["--policy", "learned.toml"]);
    assert!(enforced.stdout.starts_with("50"), "{enforced:?}");
}
