//! The lab: a sandbox, egret beside it, and an outside that has what the probe looks for.
//!
//! ```text
//! sandbox 10.77.0.2 ---- box0 10.77.0.1 (egret; this process) out0 ---- outside 1.1.1.1, ...
//! ```
//! The machine in the middle forwards nothing from the sandbox, and takes nothing from it but what
//! goes to the proxy; a test breaks that by a rule.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::outside::{ADDRESSES, ROLE};
use crate::support::egret::{BINARY, Builder, Egret};
use crate::support::world;

/// egret's address in the sandbox's network.
pub const MIDDLE: &str = "10.77.0.1";
pub const PROXY: &str = "10.77.0.1:3128";
/// A private service that the sandbox must not reach.
pub const NEIGHBOUR: &str = "10.88.0.5:5432";

/// One rule a line, in the order of the file.
const RULES: &str = "\
table inet lab {
  chain input {
    type filter hook input priority 0; policy accept;
    iifname \"box0\" icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    iifname \"box0\" ip daddr 10.77.0.1 tcp dport { 3128, 3140 } accept
    iifname \"box0\" drop
  }
  chain forward {
    type filter hook forward priority 0; policy drop;
    iifname \"out0\" accept
  }
}
";
const LINKS: &str = "\
mount -t tmpfs tmpfs /run
ip link set lo up
ip netns add sandbox
ip netns add outside
ip link add box0 type veth peer name eth0 netns sandbox
ip link add out0 type veth peer name eth0 netns outside
ip address add 10.77.0.1/24 dev box0
ip address add fd77::1/64 dev box0 nodad
ip address add 172.31.99.1/30 dev out0
ip address add fd99::1/64 dev out0 nodad
ip link set box0 up
ip link set out0 up
ip route add default via 172.31.99.2
ip -6 route add default via fd99::2
ip -n sandbox address add 10.77.0.2/24 dev eth0
ip -n sandbox address add fd77::2/64 dev eth0 nodad
ip -n sandbox link set lo up
ip -n sandbox link set eth0 up
ip -n sandbox route add default via 10.77.0.1
ip -n sandbox -6 route add default via fd77::1
ip -n outside address add 172.31.99.2/30 dev eth0
ip -n outside address add fd99::2/64 dev eth0 nodad
ip -n outside link set lo up
ip -n outside link set eth0 up
ip -n outside route add 10.77.0.0/24 via 172.31.99.1
ip -n outside -6 route add fd77::/64 via fd99::1";
/// What makes a router of this machine.
const FORWARDING: [(&str, &str); 3] =
    [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1"), ("ipv4/conf/all/rp_filter", "0")];

pub const POLICY: &str = "\
[[sandbox]]
id = \"box\"
source = [\"10.77.0.0/24\"]
policy = \"box\"

[[deny]]
domains = [\"denied.test\"]

[policy.box]
[[policy.box.allow]]
domains = [\"allowed.test\"]

[dns.hosts]
\"allowed.test\" = [\"93.184.216.34\"]
";
/// What the system's resolver reads, by namespace.
const HOSTS: &str = "93.184.216.34 allowed.test denied.test\n";

/// What the probe said.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub checks: Vec<Value>,
    pub last: Value,
    pub text: String,
}

/// Namespaces that live as long as this process.
pub struct Lab {
    files: TempDir,
    servers: Child,
    egret: Option<Egret>,
}

/// Runs the test of this name with a lab of its own.
pub fn with(test: &str, body: impl FnOnce(Lab)) {
    if !world::inside()
        && let Err(error) = Command::new("nft").arg("--version").output()
    {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "`nft` does not run: {error}");
        println!("skipped, for want of nft: {error}");
        return;
    }
    world::in_a_world(test, || body(Lab::open()));
}

impl Lab {
    fn open() -> Self {
        let files = tempfile::tempdir().unwrap();
        for line in LINKS.lines() {
            run(&line.split(' ').collect::<Vec<_>>());
        }
        for (name, value) in FORWARDING {
            std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
        }
        for address in ADDRESSES {
            run(&["ip", "-n", "outside", "address", "add", address, "dev", "lo", "nodad"]);
        }
        for (name, text) in
            [("hosts", HOSTS), ("none", "127.0.0.1 localhost\n"), ("nsswitch", "hosts: files dns\n")]
        {
            std::fs::write(files.path().join(name), text).unwrap();
        }
        for (name, server) in [("resolv.outside", "8.8.8.8"), ("resolv.sandbox", "8.8.4.4")] {
            std::fs::write(files.path().join(name), format!("nameserver {server}\n")).unwrap();
        }
        let rules = files.path().join("rules.nft");
        std::fs::write(&rules, RULES).unwrap();
        run(&["nft", "-f", rules.to_str().unwrap()]);
        let mut lab = Self { servers: servers(), files, egret: None };
        lab.start(lab.egret());
        lab
    }

    /// How egret is started unless a test wants it otherwise.
    pub fn egret(&self) -> Builder {
        self.egret_with(POLICY)
    }

    pub fn egret_with(&self, config: &str) -> Builder {
        Egret::with(config).listen(&[PROXY.parse().unwrap()], "127.0.0.1:3129".parse().unwrap())
    }

    /// Runs another egret in place of the one that runs.
    pub fn start(&mut self, builder: Builder) {
        self.egret = None;
        self.egret = Some(builder.start());
    }

    /// Lets packets pass that the middle would drop: `input` or `forward`, and a rule without its end.
    pub fn leak(&self, chain: &str, rule: &str) {
        let words = rule.split(' ');
        run(&["nft", "insert", "rule", "inet", "lab", chain]
            .into_iter()
            .chain(words)
            .chain(["accept"])
            .collect::<Vec<_>>());
    }

    /// Takes over what the sandbox sends to one place outside, as a transparent proxy on this port.
    pub fn redirect(&self, to: &str, port: u16) {
        let rules = format!(
            "table ip taken {{\n  chain way {{\n    type nat hook prerouting priority dstnat;\n    \
             iifname \"box0\" {to} redirect to :{port}\n  }}\n}}\n"
        );
        run(&["nft", "-f", &self.file("taken.nft", &rules)]);
        self.leak("input", &format!("tcp dport {port}"));
    }

    /// A neighbour on a link of its own, which nobody told the sandbox of.
    pub fn add_neighbour(&self, address: &str) {
        for line in [
            "ip netns add mate",
            "ip link add mate0 netns sandbox type veth peer name eth0 netns mate",
            "ip -n sandbox address add 10.78.0.2/24 dev mate0",
            "ip -n sandbox link set mate0 up",
            &format!("ip -n mate address add {address}/24 dev eth0"),
            "ip -n mate link set eth0 up",
        ] {
            self.shell(line);
        }
    }

    pub fn path(&self, name: &str) -> String {
        self.files.path().join(name).to_str().unwrap().to_owned()
    }

    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A command of the binary in a namespace, with that one's own names.
    fn command(&self, space: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Command {
        let folder = self.files.path().display();
        let hosts = if space == "outside" { "hosts" } else { "none" };
        let script = format!(
            "mount --bind {folder}/{hosts} \"$(readlink -f /etc/hosts)\" && \
             mount --bind {folder}/resolv.{space} \"$(readlink -f /etc/resolv.conf)\" && \
             {{ [ ! -e /etc/nsswitch.conf ] || mount --bind {folder}/nsswitch \"$(readlink -f /etc/nsswitch.conf)\"; }} && \
             exec \"$@\""
        );
        let mut command = Command::new("ip");
        command.args(["netns", "exec", space, "sh", "-c", &script, "sh", BINARY, "probe"]).args(arguments);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(environment.iter().copied()).stdin(Stdio::null());
        command
    }

    /// What can be reached from outside, as a file.
    pub fn baseline(&self, arguments: &[&str]) -> String {
        let file = self.files.path().join("base.json").to_str().unwrap().to_owned();
        let own = ["--baseline", "--write", &file, "--neighbour", NEIGHBOUR];
        let output = self.command("outside", &[], &[&own[..], arguments].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        file
    }

    /// The probe inside, with these arguments alone.
    pub fn bare(&self, environment: &[(&str, &str)], arguments: &[&str]) -> Run {
        let own = ["--json", "--timeout", "3"];
        let output = self.command("sandbox", environment, &[&own[..], arguments].concat()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        let mut checks: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}")))
            .collect();
        let last = checks.pop().unwrap_or_else(|| panic!("the probe said nothing:\n{log}"));
        Run { code: output.status.code().unwrap(), checks, last, text }
    }

    /// What a person sees of it.
    pub fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.command("sandbox", &[], arguments).output().unwrap().stdout).unwrap()
    }

    /// Words of a command in this process's namespaces.
    pub fn shell(&self, words: &str) {
        run(&words.split(' ').collect::<Vec<_>>());
    }

    /// The whole probe inside, with a baseline: all of it passes unless something is broken.
    pub fn probe(&self, environment: &[(&str, &str)], arguments: &[&str]) -> Run {
        let places = [
            "--allowed",
            "http://allowed.test/",
            "--allowed",
            "allowed.test:443",
            "--redirect",
            "http://allowed.test/redirect",
            "--refused",
            "denied.test:80",
        ];
        let baseline = self.baseline(&places);
        let proxy = format!("http://{PROXY}");
        let standing = [("http_proxy", proxy.as_str()), ("https_proxy", &proxy)];
        let environment = [&standing[..], environment].concat();
        let own = ["--baseline", &baseline, "--neighbour", NEIGHBOUR];
        self.bare(&environment, &[&own[..], &places, arguments].concat())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.servers.kill();
        let _ = self.servers.wait();
    }
}

impl Run {
    pub fn with(&self, verdict: &str) -> BTreeSet<String> {
        let name = |check: &Value| {
            format!("{} {}", check["check"].as_str().unwrap(), check["subject"].as_str().unwrap())
        };
        self.checks.iter().filter(|check| check["verdict"] == verdict).map(name).collect()
    }

    /// Fails unless exactly these checks did.
    pub fn must_fail(&self, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(self.with("fail"), expected, "{}", self.text);
        assert_eq!((self.code, &self.last["passed"]), (1, &Value::Bool(false)), "{}", self.text);
    }

    /// Fails unless it passed, with nothing but these checks left out.
    pub fn must_pass(&self, unsupported: &[&str]) {
        assert_eq!(self.with("fail"), BTreeSet::new(), "{}", self.text);
        let unsupported: BTreeSet<String> = unsupported.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(self.with("unsupported"), unsupported, "{}", self.text);
        assert_eq!((self.code, &self.last["passed"]), (0, &Value::Bool(true)), "{}", self.text);
    }

    /// The check of this name.
    pub fn check(&self, group: &str, subject: &str) -> &Value {
        let found = self.checks.iter().find(|check| check["check"] == group && check["subject"] == subject);
        found.unwrap_or_else(|| panic!("no check {group} {subject} in\n{}", self.text))
    }
}

/// This executable again, in the namespace outside, as all servers there.
fn servers() -> Child {
    let this = std::env::current_exe().unwrap();
    let mut child = Command::new("ip")
        .args(["netns", "exec", "outside"])
        .arg(this)
        .args(["--exact", "outside::serve", "--nocapture"])
        .env(ROLE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).any(|line| line.contains("serving"));
    assert!(ready, "the servers outside did not start");
    child
}

fn run(words: &[&str]) {
    let (program, arguments) = words.split_first().unwrap();
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("`{program}` does not run: {error}"));
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A path that exists in every namespace of this lab alone.
pub fn run_file(name: &str) -> std::path::PathBuf {
    Path::new("/run").join(name)
}
