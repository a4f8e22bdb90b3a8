//! `egret learn` on audit files: what it prints, what it writes, and what it refuses.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::run::{CONFIG, Run, egret, folder};

/// A decision on a request of a sandbox under the policy `p`.
fn decision(second: u8, host: &str, port: u16, verdict: &str, reason: &str) -> String {
    format!(
        "{{\"seq\":1,\"ts\":\"2026-11-29T18:00:{second:02}.000000Z\",\"event\":\"decision\",\"id\":\"x\",\"sandbox\":\"s\",\"host\":\"{host}\",\"port\":{port},\"verdict\":\"{verdict}\",\"reason\":\"{reason}\",\"policy\":\"p\",\"status\":null}}\n"
    )
}

fn observed(second: u8, host: &str) -> String {
    decision(second, host, 443, "would_deny", "domain_not_allowed")
}

/// The configuration of the other tests with an audit file that holds these records.
fn site(records: &[String]) -> TempDir {
    let folder = folder(&[("egret.toml", CONFIG), ("audit.ndjson", &records.concat())]);
    fs::create_dir(folder.path().join("rules")).unwrap();
    folder
}

fn with_input(folder: &Path, args: &[&str], input: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_egret"));
    let command = command.args(args).current_dir(folder).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

const LEARNED: &str = "\
# Learned from what sandboxes asked for: 6 requests by s, 2026-11-29T18:00:01Z to 2026-11-29T18:00:06Z.
# The rules are for whole hosts: records have no paths, and tunnels show none.

# 1 request by s, 2026-11-29T18:00:01Z
[[allow]]
domains = [\"one.example\"]
ports = [443]

# 3 requests by s, 2026-11-29T18:00:02Z to 2026-11-29T18:00:04Z
# stands for a.pkgs.example, b.pkgs.example, c.pkgs.example
[[allow]]
domains = [\"*.pkgs.example\"]
ports = [443]

# Allowed already, by other rules:
#
#   a.example:443: egret.toml:7; 1 request by s, 2026-11-29T18:00:06Z

# Not proposed; write a rule by hand for what is meant:
#
#   pastebin.com:443: a host for text and files of anybody (pastebin.com); 1 request by s, 2026-11-29T18:00:05Z
";

fn six() -> Vec<String> {
    vec![
        observed(1, "one.example"),
        observed(4, "c.pkgs.example"),
        observed(2, "a.pkgs.example"),
        observed(3, "b.pkgs.example"),
        observed(5, "pastebin.com"),
        decision(6, "a.example", 443, "allow", "allowed"),
    ]
}

#[test]
fn a_rule_set_on_standard_output_that_loads() {
    let site = site(&six());
    let run = egret(site.path(), &["learn"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, LEARNED), "{}", run.stderr);
    assert_eq!(
        run.stderr,
        "egret: 2 rules for 6 requests; 1 destination allowed already; 1 destination not proposed\n"
    );
    fs::write(site.path().join("rules/learned.toml"), &run.stdout).unwrap();
    let uses = CONFIG.replace("[[policy.p.allow]]", "[policy.p]\nrules = [\"learned\"]\n[[policy.p.allow]]");
    fs::write(site.path().join("egret.toml"), uses).unwrap();
    assert_eq!(egret(site.path(), &["check"]).code, 0);
    let explain = |target: &str| {
        egret(site.path(), &["explain", "--sandbox", "s", "--address", "203.0.113.200", target]).stdout
    };
    // A documentation address is private: it passes the rules and is refused by its class.
    assert!(explain("one.example:443").contains("address_not_allowed"), "{}", explain("one.example:443"));
    assert!(explain("d.pkgs.example:443").contains("address_not_allowed"));
    assert!(explain("one.example:80").contains("port_not_allowed"));
    assert!(explain("pastebin.com:443").contains("domain_not_allowed"));
}

#[test]
fn several_files_and_standard_input_in_any_order() {
    let site = site(&[]);
    let six = six();
    fs::write(site.path().join("old.ndjson"), six[..2].concat()).unwrap();
    fs::write(site.path().join("new.ndjson"), six[4..].concat()).unwrap();
    let middle = six[2..4].concat();
    for files in [["old.ndjson", "-", "new.ndjson"], ["new.ndjson", "old.ndjson", "-"]] {
        let args: Vec<_> = ["learn"].into_iter().chain(files).collect();
        let run = with_input(site.path(), &args, &middle);
        assert_eq!((run.code, run.stdout.as_str()), (0, LEARNED), "{}", run.stderr);
    }
}

#[test]
fn filters() {
    let mut records = six();
    records.push(observed(9, "other.example").replace("\"s\"", "\"t\""));
    records.push(observed(9, "third.example").replace("\"p\"", "\"q\""));
    let site = site(&records);
    let domains = |args: &[&str]| {
        let args: Vec<_> = ["learn", "--json"].iter().chain(args).copied().collect();
        let run = egret(site.path(), &args);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        let domains = report["proposed"].as_array().unwrap().iter();
        domains.map(|one| one["domain"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(domains(&["--sandbox", "t"]), "other.example");
    assert_eq!(domains(&["--policy", "q"]), "third.example");
    assert_eq!(domains(&["--since", "2026-11-29T18:00:09Z"]), "other.example third.example");
    assert_eq!(domains(&["--since", "2026-11-29T18:00:09Z", "--sandbox", "s"]), "third.example");
    assert_eq!(
        domains(&["--all", "--since", "2026-11-29T18:00:06Z", "--policy", "p"]),
        "a.example other.example"
    );
    let unknown = egret(site.path(), &["learn", "--policy", "q"]);
    assert!(unknown.stderr.contains("has no policy `q`, so none of its deny rules"), "{}", unknown.stderr);
    let nothing = egret(site.path(), &["learn", "--sandbox", "nobody"]);
    assert_eq!(nothing.code, 0);
    assert!(
        nothing.stderr.contains("no request was recorded that the options leave over"),
        "{}",
        nothing.stderr
    );
}

#[test]
fn json_has_all_of_it() {
    let site = site(&six());
    let run = egret(site.path(), &["learn", "--json"]);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["whole"]["requests"], 6);
    assert_eq!(report["proposed"][1]["domain"], "*.pkgs.example");
    assert_eq!(report["proposed"][1]["ports"], serde_json::json!([443]));
    assert_eq!(report["proposed"][1]["stands_for"][2], "c.pkgs.example");
    assert_eq!(report["proposed"][1]["sandboxes"], serde_json::json!(["s"]));
    assert_eq!(report["proposed"][1]["first_seen"], "2026-11-29T18:00:02.000000Z");
    assert_eq!(report["allowed"][0]["rule"], "egret.toml:7");
    assert_eq!(report["not_proposed"][0]["why"][0]["reason"], "paste");
    assert!(report.get("new").is_none());
}

#[test]
fn a_difference_has_an_exit_code_as_diff_has() {
    let site = site(&six());
    let rules = site.path().join("rules/learned.toml");
    fs::write(&rules, "[[allow]]\ndomains = [\"old.example\", \"one.example\"]\n").unwrap();
    let run = egret(site.path(), &["learn", "--against", "rules/learned.toml"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert_eq!(
        run.stdout,
        "+ *.pkgs.example  ports 443  # 3 requests by s, 2026-11-29T18:00:02Z to 2026-11-29T18:00:04Z\n\
         - old.example  ports 80, 443  # rules/learned.toml:1\n"
    );
    assert!(run.stderr.contains("not proposed: pastebin.com:443: "), "{}", run.stderr);
    fs::write(&rules, LEARNED).unwrap();
    let run = egret(site.path(), &["learn", "--against", "rules/learned.toml"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""));
    for args in [
        ["learn", "--against", "rules/none.toml"],
        ["learn", "--against=rules/learned.toml", "none.ndjson"],
        ["learn", "--against=rules/learned.toml", "--write=rules/learned.toml"],
    ] {
        assert_eq!(egret(site.path(), &args).code, 2, "{args:?}");
    }
}

#[test]
fn writing_adds_behind_what_is_there_and_once() {
    let site = site(&six());
    let rules = site.path().join("rules/learned.toml");
    let present = "# Ours.\ndescription = \"x\" # kept\n\n[[allow]]\ndomains = [ \"one.example\" ]   # the first\n\n[[deny]]\ndomains = [\"c.pkgs.example\"]";
    fs::write(&rules, present).unwrap();
    let run = egret(site.path(), &["learn", "--write", "rules/learned.toml"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{}", run.stderr);
    let written = fs::read_to_string(&rules).unwrap();
    let added = written.strip_prefix(present).unwrap();
    // Two siblings are left, and one that its own denial refuses.
    assert_eq!(
        added,
        "\n\n# 1 request by s, 2026-11-29T18:00:02Z\n[[allow]]\ndomains = [\"a.pkgs.example\"]\nports = [443]\n\
         \n# 1 request by s, 2026-11-29T18:00:03Z\n[[allow]]\ndomains = [\"b.pkgs.example\"]\nports = [443]\n"
    );
    assert!(run.stderr.starts_with("egret: rules/learned.toml: 2 rules added\n"), "{}", run.stderr);
    assert!(run.stderr.contains("a deny rule refuses it (rules/learned.toml:7)"), "{}", run.stderr);
    let again = egret(site.path(), &["learn", "--write", "rules/learned.toml"]);
    assert_eq!((again.code, fs::read_to_string(&rules).unwrap()), (0, written));
    assert!(again.stderr.contains("nothing is new; rules/learned.toml is as it was"), "{}", again.stderr);
    let fresh = egret(site.path(), &["learn", "--write", "rules/fresh.toml"]);
    assert_eq!(fresh.code, 0, "{}", fresh.stderr);
    let fresh = fs::read_to_string(site.path().join("rules/fresh.toml")).unwrap();
    let rules = |text: &str| text.split_once('\n').unwrap().1.to_owned();
    assert!(rules(LEARNED).starts_with(&rules(&fresh)), "{fresh}");
    assert!(fresh.starts_with("# Learned from what sandboxes asked for.\n"), "{fresh}");
    assert!(fresh.contains("*.pkgs.example"), "{fresh}");
    assert_eq!(fs::read_dir(site.path().join("rules")).unwrap().count(), 2, "no draft stays");
}

#[test]
fn a_rule_set_that_cant_be_added_to_stays_as_it_is() {
    let site = site(&six());
    let rules = site.path().join("rules/learned.toml");
    for (text, says) in [
        ("allow = [{ domains = [\"x.example\"] }]\n", "can't be added to, and is as it was"),
        ("[[allow]]\ndomain = [\"x.example\"]\n", "did you mean `domains`?"),
        ("[[allow\n", "is no rule set that loads"),
    ] {
        fs::write(&rules, text).unwrap();
        let run = egret(site.path(), &["learn", "--write", "rules/learned.toml"]);
        assert_eq!(run.code, 2, "{text}: {}", run.stderr);
        assert!(run.stderr.contains(says), "{text}: {}", run.stderr);
        assert_eq!(fs::read_to_string(&rules).unwrap(), text);
    }
}

#[test]
fn damaged_lines_are_named_and_nothing_is_learned() {
    let mut records = six();
    records.insert(1, "{\"seq\":1,\n".to_owned());
    records.insert(3, "\n".to_owned());
    records.push("{\"seq\":9,\"ts\":\"2026-11".to_owned());
    let site = site(&records);
    let run = egret(site.path(), &["learn", "--write", "rules/learned.toml"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert_eq!(
        run.stderr,
        "egret: audit.ndjson:2: this is not a whole audit record\n\
         egret: audit.ndjson:4: this is not a whole audit record\n\
         egret: audit.ndjson:9: this line has no end: it is being written, or was cut\n\
         egret: 3 damaged lines, so nothing was learned; mend the files, or leave such lines out with --skip-damaged\n"
    );
    assert!(!site.path().join("rules/learned.toml").exists());
    let run = egret(site.path(), &["learn", "--skip-damaged"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, LEARNED));
    assert!(
        run.stderr.contains("3 damaged lines were left out; what was told there is missing"),
        "{}",
        run.stderr
    );
}

#[test]
fn wrong_input_says_what_to_do() {
    let site = site(&six());
    fs::write(site.path().join("audit.ndjson.1.gz"), [0x1f, 0x8b, 8, 0]).unwrap();
    let stdout = format!("[audit]\nfile = \"-\"\n{CONFIG}");
    fs::write(site.path().join("stdout.toml"), stdout).unwrap();
    for (args, says) in [
        (&["learn", "audit.ndjson.1.gz"][..], "is compressed; unpack it: zcat FILE | egret learn -"),
        (&["learn", "none.ndjson"], "none.ndjson can't be read: No such file"),
        (&["learn", "rules"], "rules can't be read: Is a directory"),
        (&["learn", "--since", "yesterday"], "--since yesterday: write 2026-11-29T18:15:48Z or 1h"),
        (&["learn", "--port", "0"], "0 is not in 1..=65535"),
        (&["learn", "--config", "stdout.toml"], "sends the audit to standard output; name the files"),
    ] {
        let run = egret(site.path(), args);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(says), "{args:?}: {}", run.stderr);
    }
}
