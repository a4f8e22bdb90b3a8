//! `egret nft`: what the rules let through and what not, and that they come and go whole.

use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::http::connect;
use crate::in_site;
use crate::site::{ALLOWED, ALLOWED_6, REFUSED, REFUSED_6, Site, text};
use crate::support::egret::{BINARY, Egret};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_6: u8 = 58;

/// Opens TCP connections and sends datagrams to a list of places, in one program that ignores proxy
/// variables; prints what happened to each.
const KNOCK: &str = r#"
import socket, sys
for kind, host, port in [a.split("|") for a in sys.argv[1:]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    s.settimeout(2)
    try:
        s.connect((host, int(port)))
        if kind == "udp":
            s.send(b"x" * 1200)
        print(kind, host, port, "sent")
    except OSError as e:
        print(kind, host, port, type(e).__name__)
"#;

fn knock(site: &Site, places: &[String]) -> String {
    let places: Vec<_> = places.iter().map(String::as_str).collect();
    site.client("python3", &[&["-c", KNOCK], &places[..]].concat()).0
}

fn ping(site: &Site, address: &str) -> bool {
    // No `ping` may be installed: a raw socket of Python's does the same.
    let code = r#"
import socket, sys
six = ":" in sys.argv[1]
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_RAW, 58 if six else 1)
s.settimeout(2)
s.sendto(bytes([128, 0, 0, 0, 0, 1, 0, 1]) if six else bytes([8, 0, 0xf7, 0xfd, 0, 1, 0, 1]), (sys.argv[1], 0))
"#;
    site.client("python3", &["-c", code, address]).1
}

in_site! {
/// First the countercheck: all of this gets out as long as there are no rules.
fn nothing_else_gets_out(site) {
    let places: Vec<String> = [REFUSED, REFUSED_6]
        .iter()
        .flat_map(|host| ["udp|H|443", "udp|H|53", "udp|H|9", "tcp|H|53", "tcp|H|853"].map(|p| p.replace('H', host)))
        .collect();
    let wanted = [(REFUSED, UDP), (REFUSED, TCP), (REFUSED, ICMP), (REFUSED_6, UDP), (REFUSED_6, TCP), (REFUSED_6, ICMP_6)];
    knock(site, &places);
    assert!(ping(site, REFUSED) && ping(site, REFUSED_6));
    for (to, protocol) in wanted {
        crate::support::wait_for("a packet outside", crate::site::PATIENCE, || site.watch.count(to, protocol) > 0);
    }
    site.divert();
    let before = wanted.map(|(to, protocol)| site.watch.count(to, protocol));
    let said = knock(site, &places);
    ping(site, REFUSED);
    ping(site, REFUSED_6);
    assert_eq!(wanted.map(|(to, protocol)| site.watch.count(to, protocol)), before, "{said}");
    assert!(!said.contains("tcp 44.77.1.66 53 sent") && !said.contains("853 sent"), "{said}");
    // What is not diverted is not seen by egret either.
    assert_eq!(site.egret.events("decision").len(), 0);
}
}

in_site! {
/// Neither datagrams nor connections reach anything of egret's machine but the listeners.
fn the_gateway_offers_the_listeners_alone(site) {
    let datagrams = UdpSocket::bind("10.77.1.1:5353").unwrap();
    let listener = TcpListener::bind("10.77.1.1:2200").unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let places = ["udp|10.77.1.1|5353".to_owned(), "tcp|10.77.1.1|2200".to_owned()];
    knock(site, &places);
    let mut octets = [0; 2000];
    crate::support::wait_for("a datagram", crate::site::PATIENCE, || datagrams.recv(&mut octets).is_ok());
    site.divert();
    knock(site, &places);
    assert!(datagrams.recv(&mut octets).is_err());
    // The connection was taken by egret instead, which refuses it.
    assert_eq!(connect("10.77.1.1", 2200).until_end(), b"");
    assert_eq!(waiting(&listener), 1, "only what came before the rules");
}
}

/// Connections that wait at the listener.
fn waiting(listener: &TcpListener) -> usize {
    listener.set_nonblocking(true).unwrap();
    std::iter::from_fn(|| listener.accept().ok()).count()
}

in_site! {
/// A forged source would have egret's machine answer to somebody outside.
fn forged_sources(site) {
    let made = Command::new("ip").args(["-n", "cl", "address", "add", "44.77.1.99/32", "dev", "lo"]).status();
    assert!(made.unwrap().success());
    site.divert();
    let code = "import socket\ns = socket.socket()\ns.settimeout(2)\ns.bind(('44.77.1.99', 0))\ns.connect(('44.77.1.1', 80))";
    assert!(!site.client("python3", &["-c", code]).1);
    site.assert_untouched(&["44.77.1.99"]);
}
}

in_site! {
fn rules_come_and_go_whole(site) {
    let others = "table inet other { chain c { type filter hook input priority 5; policy accept; }\n}\n";
    assert!(nft(&["add", "table", "ip", "mine"]).status.success() && nft_script(others).status.success());
    let before = rules();
    site.divert();
    let once = rules();
    site.divert();
    assert_eq!(rules(), once, "the same again");
    assert!(once.contains("table inet other") && once.contains("table ip mine"), "{once}");
    // What is printed is what is applied.
    let printed = site.nft(&["--interface", "sb0"]);
    assert!(nft_script(&text(&printed.stdout)).status.success());
    assert_eq!(rules(), once);
    for _ in 0..2 {
        assert!(site.nft(&["--remove"]).status.success());
        assert_eq!(rules(), before);
    }
}
}

in_site! {
/// What the other ways of diverting don't need is no error.
fn a_listener_that_tproxy_cant_divert_to_says_so(site) {
    let dir = site.egret.dir().join("unprivileged");
    std::fs::create_dir(&dir).unwrap();
    let (proxy, control) = ("proxy = \"127.0.0.1:4128\"", "control = \"127.0.0.1:4129\"");
    let config = format!("[listen]\n{proxy}\n{control}\ntransparent = [\"10.77.1.1:4130\", \"[fd77:1::1]:4130\"]\n");
    std::fs::write(dir.join("egret.toml"), config).unwrap();
    let log = dir.join("log");
    let mut unprivileged = Command::new("setpriv")
        .args(["--bounding-set=-net_admin,-net_raw", "--inh-caps=-net_admin,-net_raw", BINARY, "serve"])
        .current_dir(&dir)
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let told = |of: &str| of.matches("TPROXY can't without CAP_NET_ADMIN").count();
    let (began, mut lines) = (Instant::now(), 0);
    while lines < 2 && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
        lines = told(&std::fs::read_to_string(&log).unwrap());
    }
    unprivileged.kill().unwrap();
    unprivileged.wait().unwrap();
    assert_eq!(lines, 2, "{}", std::fs::read_to_string(&log).unwrap());
    assert_eq!(told(&site.egret.log()), 0);
}
}

in_site! {
fn what_is_missing_is_named_and_nothing_is_changed(site) {
    site.divert();
    let before = rules();
    let file = site.egret.config_file();
    let unprivileged = Command::new("setpriv")
        .args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", BINARY, "nft", "--config"])
        .arg(&file)
        .args(["--interface", "sb1", "--apply"])
        .output()
        .unwrap();
    assert_eq!(unprivileged.status.code(), Some(1));
    assert!(text(&unprivileged.stderr).contains("CAP_NET_ADMIN"), "{}", text(&unprivileged.stderr));
    for wrong in [&["--apply"][..], &["--interface", "a b"], &["--interface", "x\"; drop", "--apply"], &["--table", "9"], &["--remove", "--table", "filter"]] {
        assert_eq!(site.nft(wrong).status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(rules(), before);
    // It is looked for where users don't look.
    for folder in ["/usr/sbin", "/sbin"] {
        assert!(Command::new("mount").args(["-t", "tmpfs", "none", folder]).status().unwrap().success());
    }
    let missing = Command::new(BINARY).args(["nft", "--remove"]).env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("`nft` is not there"), "{}", text(&missing.stderr));
}
}

in_site! {
/// The bridge of an engine may come after the rules, but a name that was mistyped is to be seen.
fn an_interface_that_is_not_there_is_named(site) {
    for (name, absent) in [("sb0", false), ("sb*", false), ("sb9", true), ("b*", true), ("sb", true)] {
        let output = site.nft(&["--interface", "out0", "--interface", name, "--apply"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr).contains(&format!("no interface `{name}`")), absent, "{name}");
    }
}
}

in_site! {
/// Instead of an interface, all that others than egret send from its own namespace.
fn a_namespace_shared_with_egret(site) {
    // Egret runs as this user, root; the sandbox as another one.
    let output = site.nft(&["--user", "0", "--apply"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    site.reload(|config| config.replace("\"10.77.1.0/24\"", "\"44.77.0.1/32\", \"10.77.1.0/24\""));
    let as_user = |arguments: &[&str]| {
        as_somebody(&[&["curl", "--noproxy", "*", "-sS", "--max-time", "30"], arguments].concat())
    };
    let to = format!("ok.test:80:{REFUSED}");
    assert_eq!(as_user(&["--resolve", &to, "http://ok.test/"]), "GET / ok.test\n");
    let refused = as_user(&["-i", &format!("http://{REFUSED}/")]);
    assert!(refused.contains("address_not_allowed"), "{refused}");
    let control = as_user(&["--max-time", "3", "http://10.77.1.1:3129/readyz"]);
    assert!(control.contains("timed out"), "{control}");
    let tried = as_somebody(&["/usr/bin/python3", "-c", KNOCK, &format!("udp|{REFUSED}|53")]);
    assert!(tried.contains("udp"), "{tried}");
    site.assert_untouched(&[REFUSED]);
}
}

in_site! {
/// A resolver on the loopback asks servers outside whatever it is asked, and so carries data out: that
/// of the system, and the one that container engines put at 127.0.0.11, at any port.
fn resolvers_of_a_shared_namespace(site) {
    let resolvers = ["127.0.0.53:53", "127.0.0.11:45000", "[::1]:53"].map(|at| UdpSocket::bind(at).unwrap());
    let service = UdpSocket::bind("127.0.0.1:5000").unwrap();
    let by_tcp = TcpListener::bind("127.0.0.53:53").unwrap();
    for socket in resolvers.iter().chain([&service]) {
        socket.set_nonblocking(true).unwrap();
    }
    let ask = || {
        let places =
            ["udp|127.0.0.53|53", "udp|127.0.0.11|45000", "udp|::1|53", "udp|127.0.0.1|5000", "tcp|127.0.0.53|53"];
        let said = as_somebody(&[&["/usr/bin/python3", "-c", KNOCK], &places[..]].concat());
        let heard = |socket: &UdpSocket| socket.recv(&mut [0; 2000]).is_ok();
        (resolvers.each_ref().map(heard), heard(&service), waiting(&by_tcp), said)
    };
    let (asked, served, connected, said) = ask();
    assert_eq!((asked, served, connected), ([true; 3], true, 1), "{said}");
    let output = site.nft(&["--user", "0", "--apply"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (asked, served, connected, said) = ask();
    assert_eq!((asked, served, connected), ([false; 3], true, 0), "{said}");
}
}

in_site! {
fn by_tproxy(site) {
    let applied = site.nft(&["--interface", "sb0", "--tproxy", "--apply"]);
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    for (to, url) in [(format!("ok.test:80:{REFUSED}"), "http://ok.test/"), (format!("ok.test:443:{ALLOWED}"), "https://ok.test/")] {
        let (out, ok) = site.curl(&["--resolve", &to, url]);
        assert!(ok && out == "GET / ok.test\n", "{url}: {out}");
    }
    let to = format!("six.test:80:[{REFUSED_6}]");
    let (out, ok) = site.curl(&["-6", "--resolve", &to, "http://six.test/"]);
    assert!(ok && out == "GET / six.test\n", "{out}");
    let (out, _) = site.curl(&["-i", &format!("http://{REFUSED}/")]);
    assert!(out.contains("address_not_allowed"), "{out}");
    let originals: Vec<_> = site.egret.events("decision").iter().map(|r| r["original"].clone()).collect();
    assert_eq!(originals, [REFUSED, ALLOWED, REFUSED_6, REFUSED]);
    site.assert_untouched(&[REFUSED, REFUSED_6]);
}
}

in_site! {
/// Listeners may be at certain addresses instead of all, and of one family alone: then the other is dropped.
fn listeners_at_certain_addresses(site) {
    let both = site.another("transparent = [\"10.77.1.1:4130\", \"[fd77:1::1]:4130\"]\n");
    let curl = |family: &str, name: &str, to: &str| {
        let to = format!("{name}:80:{to}");
        site.curl(&[family, "--max-time", "5", "--resolve", &to, &format!("http://{name}/")])
    };
    let apply = |egret: &Egret, more: &[&str]| {
        let mut command = Command::new(BINARY);
        command.arg("nft").arg("--config").arg(egret.config_file()).args(["--interface", "sb0", "--apply"]).args(more);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    for more in [&[][..], &["--tproxy"]] {
        apply(&both, more);
        assert_eq!(curl("-4", "ok.test", REFUSED), ("GET / ok.test\n".to_owned(), true), "{more:?}");
        let six = format!("[{REFUSED_6}]");
        assert_eq!(curl("-6", "six.test", &six), ("GET / six.test\n".to_owned(), true), "{more:?}");
    }
    assert_eq!(both.events("decision").len(), 4);
    drop(both);
    let dialled = site.watch.count(ALLOWED_6, TCP);
    let one = site.another("transparent = [\"10.77.1.1:4130\"]\n");
    for more in [&["--tproxy"][..], &[]] {
        apply(&one, more);
        assert_eq!(curl("-4", "ok.test", REFUSED), ("GET / ok.test\n".to_owned(), true), "{more:?}");
        assert!(!curl("-6", "six.test", &format!("[{ALLOWED_6}]")).1, "{more:?}");
        let routes_6 = text(&Command::new("ip").args(["-6", "rule", "show"]).output().unwrap().stdout);
        assert!(!routes_6.contains("25972"), "{routes_6}");
    }
    assert_eq!(site.watch.count(ALLOWED_6, TCP), dialled, "packets of the family without a listener");
    site.assert_untouched(&[REFUSED, REFUSED_6]);
}
}

in_site! {
/// The routes that TPROXY needs come with the rules and go with the last rules that need them.
fn routes_for_tproxy_come_and_go(site) {
    let nft = |arguments: &[&str]| {
        let output = site.nft(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        (routes(), rules())
    };
    let (before, none) = (routes(), rules());
    let divert = ["--interface", "sb0", "--tproxy", "--apply"];
    let once = nft(&divert);
    assert_ne!(once.0, before);
    assert_eq!(nft(&divert), once, "the same again");
    // What is printed is what is applied.
    assert_eq!(nft(&["--remove"]), (before.clone(), none.clone()));
    let printed = text(&site.nft(&["--interface", "sb0", "--tproxy"]).stdout);
    for line in printed.lines().filter_map(|line| line.strip_prefix("#   ")) {
        assert!(Command::new("sh").args(["-c", line]).status().unwrap().success(), "{line}");
    }
    assert!(nft_script(&printed).status.success());
    assert_eq!((routes(), rules()), once);
    // Another egret's rules need the same routes; those for NAT need none.
    nft(&["--interface", "sb1", "--tproxy", "--apply", "--table", "egret_2"]);
    assert_eq!(nft(&["--interface", "sb0", "--apply"]).0, once.0);
    assert_eq!(nft(&["--interface", "sb1", "--apply", "--table", "egret_2"]).0, before);
    nft(&divert);
    nft(&["--remove", "--table", "egret_2"]);
    for _ in 0..2 {
        assert_eq!(nft(&["--remove"]), (before.clone(), none.clone()));
    }
}
}

in_site! {
/// Whichever step fails, nothing of the others stays.
fn routes_for_tproxy_are_not_half_applied(site) {
    let before = (routes(), rules());
    let apply = |command: &mut Command, word: &str| {
        let output = command.arg("--config").arg(site.egret.config_file()).args(["--interface", "sb0", "--tproxy", "--apply"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("nothing was changed") && said.contains(word), "{said}");
        assert_eq!((routes(), rules()), before, "{word}");
    };
    let mut unprivileged = Command::new("setpriv");
    unprivileged.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", BINARY, "nft"]);
    apply(&mut unprivileged, "CAP_NET_ADMIN");
    // A folder of programs, in which one is missing, or fails; those of the system are moved.
    let (programs, real) = (site.egret.dir().join("programs"), site.egret.dir().join("real"));
    for folder in [&programs, &real] {
        std::fs::create_dir(folder).unwrap();
    }
    let path = std::env::var_os("PATH").unwrap();
    for name in ["ip", "nft"] {
        let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
        std::fs::copy(found.unwrap(), real.join(name)).unwrap();
    }
    let put = |name: &str, script: &str| {
        use std::os::unix::fs::PermissionsExt;
        let file = programs.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let run = |name: &str| format!("exec {} \"$@\"", real.join(name).display());
    let run_ip = run("ip");
    let with_programs = || {
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs none /usr/sbin; mount -t tmpfs none /sbin; PATH=$0; exec \"$@\"";
        command.args(["--mount", "sh", "-c", script]).arg(&programs).args([BINARY, "nft"]);
        command
    };
    apply(&mut with_programs(), "`ip` is not there");
    put("ip", &run_ip);
    apply(&mut with_programs(), "`nft` is not there");
    put("nft", "echo 'Error: no' >&2; exit 1");
    apply(&mut with_programs(), "Error: no");
    for step in ["-4 rule", "-4 route", "-6 rule", "-6 route"] {
        put("ip", &format!("case \"$*\" in \"{step} add\"*) echo no such luck >&2; exit 2;; esac\n{run_ip}"));
        apply(&mut with_programs(), "no such luck");
    }
    // What was there before stays, whoever has put it there.
    assert!(Command::new("ip").args(["-4", "rule", "add", "pref", "25972", "fwmark", "0x65677274", "lookup", "25972"]).status().unwrap().success());
    let before = routes();
    let output = with_programs().arg("--config").arg(site.egret.config_file()).args(["--interface", "sb0", "--tproxy", "--apply"]).output().unwrap();
    assert_eq!((output.status.code(), routes()), (Some(1), before));
    // Rules for NAT need no `ip`.
    std::fs::remove_file(programs.join("ip")).unwrap();
    put("nft", &run("nft"));
    let output = with_programs().arg("--remove").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}
}

/// The rules and routes of both families by which egret's mark leads in.
fn routes() -> String {
    let tables = ["-4 rule show", "-6 rule show", "-4 route show table 25972", "-6 route show table 25972"];
    let list = |of: &str| text(&Command::new("ip").args(of.split(' ')).output().unwrap().stdout);
    tables.map(list).join("--\n")
}

/// What a program says that runs as a user who is neither root nor egret. It finds nothing in root's
/// own folders.
fn as_somebody(arguments: &[&str]) -> String {
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"])
        .args(arguments)
        .output()
        .unwrap();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// All rules of the namespace.
fn rules() -> String {
    text(&nft(&["list", "ruleset"]).stdout)
}

fn nft(arguments: &[&str]) -> Output {
    Command::new("nft").args(arguments).output().unwrap()
}

fn nft_script(script: &str) -> Output {
    use std::io::Write;
    let mut nft =
        Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    nft.wait_with_output().unwrap()
}
