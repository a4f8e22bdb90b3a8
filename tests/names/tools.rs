//! Programs that people use: dig, and the resolver of the system's C library.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::dns_server::Answer;
use crate::support::egret::BINARY;
use crate::{TREE, at, egret, server, upstream};

/// Where a program is installed. Without it the test is skipped, but where `CI=true` it fails.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{name} is not installed");
        println!("skipped: {name} is not installed");
    }
    found
}

#[test]
fn dig_shows_answers_and_reasons() {
    let Some(dig) = find("dig") else { return };
    let many = Answer { a: (0..100).map(|n| ([93, 184, 215, n].into(), 600)).collect(), ..Answer::default() };
    let dns = server(&[("many.allowed.test", many), ("inside.allowed.test", at("10.0.0.1", 60))]);
    let egret = egret(&dns, TREE);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&dig);
        command.args(["@127.0.0.1", "-p", &egret.names.port().to_string(), "+tries=1", "+time=20"]);
        let output = command.args(arguments).env("HOME", egret.dir()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(run(&["+short", "www.allowed.test", "A"]), "93.184.215.14\n");
    assert_eq!(run(&["+short", "+tcp", "www.allowed.test", "A"]), "93.184.215.14\n");
    // Cut in a datagram, so that dig asks again over TCP by itself.
    assert_eq!(run(&["+short", "many.allowed.test", "A"]).lines().count(), 100);
    for (name, kind, reason) in [
        ("other.test", "A", "EDE: 15 (Blocked): (domain_not_allowed)"),
        ("inside.allowed.test", "AAAA", "EDE: 15 (Blocked): (address_not_allowed)"),
        ("www.allowed.test", "TXT", "EDE: 21 (Not Supported): (bad_request)"),
        ("www.allowed.test", "ANY", "EDE: 21 (Not Supported): (bad_request)"),
    ] {
        let shown = run(&[name, kind]);
        assert!(shown.contains("status: REFUSED") && shown.contains(reason), "{name} {kind}: {shown}");
    }
    assert!(upstream(&dns).iter().all(|(name, _)| name.ends_with(".allowed.test")));
}

/// Starts egret as the one name server of a namespace, and asks the C library.
const SCRIPT: &str = r#"
set -eu
ip link set lo up
# Without any address but the loopback's, the C library asks nobody.
ip address add 192.0.2.10/32 dev lo
mount --bind "$1/resolv.conf" "$(readlink -f /etc/resolv.conf)"
cd "$1"
"$2" serve --config egret.toml >log 2>&1 &
egret=$!
trap 'kill $egret; wait $egret || true' EXIT
tries=0
until "$2" ready --config egret.toml >/dev/null 2>&1 || grep -q 'egret is serving' log; do
  tries=$((tries + 1))
  [ "$tries" -lt 200 ] || { cat log >&2; exit 1; }
  sleep 0.1
done
getent ahostsv4 www.allowed.test | head -n 1
getent ahostsv4 www.other.test || echo "refused: $?"
"#;

#[test]
fn the_c_library_gets_what_is_allowed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:20 attempts:1\n")
        .unwrap();
    let config = format!(
        "[listen]\ndns = \"127.0.0.1:53\"\n[dns]\nservers = [\"127.0.0.9\"]\n\
         hosts = {{ \"www.allowed.test\" = [\"93.184.215.14\"], \"www.other.test\" = [\"93.184.215.15\"] }}\n\
         [[sandbox]]\nid = \"box\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"p\"\n[policy.p]\n{TREE}"
    );
    std::fs::write(dir.path().join("egret.toml"), config).unwrap();
    let run = |flags: &[&str], script: &str| {
        let mut command = Command::new("unshare");
        command.args(flags).args(["--net", "--mount", "--", "sh", "-c", script, "sh"]);
        command.arg(dir.path()).arg(BINARY).stdin(Stdio::null()).output()
    };
    let probe = "ip link set lo up && mount --bind /etc/hosts /etc/hosts";
    let able = |flags: &[&str]| run(flags, probe).is_ok_and(|output| output.status.success());
    let flags: &[&str] = if able(&[]) { &[] } else { &["--user", "--map-root-user"] };
    if !able(flags) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no namespaces on this machine");
        println!("skipped: this machine grants no network namespace (needs root, or user namespaces)");
        return;
    }
    let output = run(flags, SCRIPT).unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut lines = shown.lines();
    assert!(lines.next().is_some_and(|line| line.starts_with("93.184.215.14")), "{shown}\n{told}");
    assert_eq!(lines.next(), Some("refused: 2"), "{shown}\n{told}");
    let audit = std::fs::read_to_string(dir.path().join("audit.ndjson")).unwrap();
    assert!(
        audit.contains("\"host\":\"www.other.test\",\"verdict\":\"deny\",\"reason\":\"domain_not_allowed\"")
    );
}
