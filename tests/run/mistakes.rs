//! What can't be done is said, with the next step, before anything has begun.

use std::fs;
use std::process::{Command, Stdio};

use crate::site::{Site, User, open_folder, skipped, told, users};

#[test]
fn damaged_input_is_named_and_nothing_runs() {
    let folder = open_folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("broken.toml", "[policy.p\n");
    write("two.toml", "[policy.a]\n[policy.b]\n");
    write("none.toml", "[listen]\n");
    write("rules.toml", "[[allow]]\ndomain = [\"a.example\"]\n");
    let cases: [(&[&str], i32, &str); 12] = [
        (&["--config", "broken.toml"], 125, "broken.toml:1"),
        (&["--config", "missing.toml"], 125, "missing.toml can't be read"),
        (&["--config", "two.toml"], 125, "say which policy holds: --policy with one of a, b"),
        (
            &["--config", "two.toml", "--policy", "c"],
            125,
            "there is no policy `c`; the configuration has: a, b",
        ),
        (&["--config", "none.toml"], 125, "the configuration has no policy"),
        (&["--policy", "rules.toml"], 125, "rules.toml:2"),
        (&["--policy", "missing.toml"], 125, "names a rule set file, or with --config FILE a policy"),
        (&["--allow", "*"], 125, "*"),
        (&["--audit", "-"], 125, "the standard output is the command's"),
        (&["--audit", "no/such/folder/audit.ndjson"], 125, "no/such/folder/audit.ndjson"),
        (&["--observe", "--learn", "rules.toml"], 125, "rules.toml"),
        (&["--observe", "--learn", "no/such/folder/x.toml"], 125, "make it first"),
    ];
    for (options, code, text) in cases {
        let output = User::Own.run(folder.path()).args(options).args(["--", "touch", "begun"]).output();
        let run = told(output.unwrap());
        assert_eq!(run.code, Some(code), "{options:?}: {run:?}");
        assert!(run.stderr.contains(text), "{options:?}: {run:?}");
        assert!(!folder.path().join("begun").exists(), "{options:?}");
    }
    for options in [
        &["--learn", "x.toml"][..],
        &["--config", "two.toml", "--allow", "a.example"],
        &["--sandbox", "a b"],
        &["--observe", "--port", "8081"],
        &["--observe", "--learn", "x.toml", "--port", "0"],
    ] {
        let run = told(User::Own.run(folder.path()).args(options).args(["--", "true"]).output().unwrap());
        assert_eq!(run.code, Some(2), "{options:?}: {run:?}");
    }
}

#[test]
fn a_namespace_that_is_refused_is_explained() {
    let site = Site::begin();
    if !users().contains(&User::Own) {
        return;
    }
    // A user namespace has its own count of those below it.
    let none = "echo 0 >/proc/sys/user/max_user_namespaces && ";
    let inside = |script: &str| {
        let run = site.run(User::Own, &["-q"]);
        let mut outer = Command::new("unshare");
        outer.args(["--user", "--map-root-user", "sh", "-c", &format!("{none} exec {script} \"$0\" \"$@\"")]);
        outer.arg(run.get_program()).args(run.get_args()).args([
            "sh",
            "-c",
            "echo ran; grep -c : /proc/net/dev",
        ]);
        told(outer.current_dir(&site.folder).stdin(Stdio::null()).output().unwrap())
    };
    // Root needs no user namespace,
    let run = inside("env");
    if run.stderr.contains("max_user_namespaces") && run.stderr.contains("sh:") {
        return skipped(format!("no count of namespaces to set: {}", run.stderr));
    }
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "ran\n1\n"), "{run:?}");
    // unless it lacks the capability.
    let run = inside("setpriv --bounding-set=-sys_admin");
    assert_eq!((run.code, run.stdout.as_str()), (Some(125), ""), "{run:?}");
    for part in ["user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces", "CAP_SYS_ADMIN"] {
        assert!(run.stderr.contains(part), "{part}: {run:?}");
    }
    assert_eq!(site.leftovers(), [""; 0]);
}

#[test]
fn the_hidden_command_is_of_no_use_to_others() {
    let mut command = Command::new(crate::support::egret::BINARY);
    let output = command.args(["become", "--", "echo", "ran"]).stdin(Stdio::null()).output().unwrap();
    let run = told(output);
    assert_eq!((run.code, run.stdout.as_str()), (Some(125), ""), "{run:?}");
}
