//! Three network namespaces in a row: the client's, egret's, and the outside with its origins.
//!
//! This process is in the middle one. Threads move to the others for a while.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::origins;
use crate::support::egret::{BINARY, Builder, Egret};
use crate::support::wait_for;
use crate::watch::Watch;

/// Set in a process that has namespaces of its own.
const MARKER: &str = "EGRET_TEST_SITE";
/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Egret's side of the client's network, where its listeners are.
pub const GATEWAY: &str = "10.77.1.1";
/// An origin that the policy allows by name (`ok.test`) alone.
pub const ALLOWED: &str = "44.77.1.1";
/// The same over IPv6 (`six.test`).
pub const ALLOWED_6: &str = "2a00:77:1::1";
/// An origin that no rule names.
pub const REFUSED: &str = "44.77.1.66";
/// The same over IPv6.
pub const REFUSED_6: &str = "2a00:77:1::66";
/// An origin that the policy allows by address, whatever is spoken there.
pub const LITERAL: &str = "44.77.1.25";
/// The same over IPv6.
pub const LITERAL_6: &str = "2a00:77:1::25";
/// An origin that the policy allows by address, for TLS.
pub const LITERAL_TLS: &str = "44.77.1.44";

/// Interfaces, addresses and routes. Outside, every address of two networks is local.
const SET_UP: &str = "set -e
mount -t tmpfs tmpfs /run
ip netns add cl; ip netns add out
ip link add sb0 type veth peer name cl0 netns cl
ip link add out0 type veth peer name eth0 netns out
ip link set lo up; ip -n cl link set lo up; ip -n out link set lo up
ip link set sb0 up; ip link set out0 up; ip -n cl link set cl0 up; ip -n out link set eth0 up
ip address add 10.77.1.1/24 dev sb0; ip address add fd77:1::1/64 dev sb0 nodad
ip -n cl address add 10.77.1.2/24 dev cl0; ip -n cl address add fd77:1::2/64 dev cl0 nodad
ip -n cl route add default via 10.77.1.1; ip -n cl route add default via fd77:1::1
ip address add 44.77.0.1/24 dev out0; ip address add 2a00:77::1/64 dev out0 nodad
ip -n out address add 44.77.0.2/24 dev eth0; ip -n out address add 2a00:77::2/64 dev eth0 nodad
ip route add default via 44.77.0.2; ip route add default via 2a00:77::2
ip -n out route add default via 44.77.0.1; ip -n out route add default via 2a00:77::1
ip -n out route add local 44.77.1.0/24 dev lo; ip -n out route add local 2a00:77:1::/64 dev lo
echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
";

/// `[dns.hosts]`, the policy and who the client is.
const CONFIG: &str = r#"
[timeouts]
tls = "2s"
[dns]
servers = "127.0.0.1:9"
[dns.hosts]
"ok.test" = ["44.77.1.1"]
"six.test" = ["2a00:77:1::1"]
"paths.test" = ["44.77.1.1"]
"refused.test" = ["44.77.1.66"]
[policy.p]
[[policy.p.allow]]
domains = ["ok.test", "six.test"]
ports = [80, 443, 2525, 8080]
[[policy.p.allow]]
domains = ["paths.test"]
ports = [80]
methods = ["GET"]
paths = ["/public/*"]
[[policy.p.allow]]
addresses = ["44.77.1.25/32", "2a00:77:1::25/128"]
ports = [2525, 443]
tls = "any"
[[policy.p.allow]]
addresses = ["44.77.1.44/32"]
ports = [443, 2525]
tls = "required"
[[sandbox]]
id = "box"
source = ["10.77.1.0/24", "fd77:1::/64"]
policy = "p"
"#;

/// The site, in a process of its own.
pub struct Site {
    pub egret: Egret,
    pub watch: Watch,
    /// What the origins' certificate is verified with.
    pub ca: String,
}

/// Runs a test in a process with namespaces of its own; `name` is what the harness calls it.
pub fn run(name: &str, test: impl FnOnce(&Site)) {
    if std::env::var_os(MARKER).is_some() {
        let site = Site::open();
        test(&site);
        return;
    }
    let name = name.strip_prefix("transparent::").unwrap_or(name);
    if let Some(missing) = missing() {
        assert!(std::env::var("CI").is_err(), "not skipped with CI=true: {missing}");
        println!("skipped {name}: {missing}");
        return;
    }
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(MARKER, "1")
        .stdin(Stdio::null())
        .output()
        .expect("unshare runs");
    let text = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "the test did not run: {text}");
}

/// What this machine lacks.
fn missing() -> Option<String> {
    for program in ["ip", "nft", "curl", "openssl", "python3", "unshare"] {
        let found = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
        if !found {
            return Some(format!("there is no `{program}`"));
        }
    }
    let probe = format!("{SET_UP}nft list ruleset");
    let tried = Command::new("unshare").args(["--net", "--mount", "--", "sh", "-c", &probe]).output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("no network namespaces as root: {}", text(&output.stderr).trim())),
        Err(error) => Some(error.to_string()),
    }
}

impl Site {
    fn open() -> Self {
        let made = Command::new("sh").args(["-c", SET_UP]).output().unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        let watch = within("out", Watch::open);
        let key = rcgen::generate_simple_self_signed(["ok.test".to_owned(), "six.test".to_owned()]).unwrap();
        within("out", || origins::start(&key));
        let egret = Self::builder(CONFIG).file("ca.pem", &key.cert.pem()).start();
        let ca = egret.dir().join("ca.pem").display().to_string();
        Self { egret, watch, ca }
    }

    fn builder(config: &str) -> Builder {
        Self::builder_at(config, 3128, "transparent = [\"0.0.0.0:3130\", \"[::]:3130\"]\n")
    }

    /// For an egret at the gateway, at this port and the next.
    fn builder_at(config: &str, port: u16, listen_lines: &str) -> Builder {
        let gateway: IpAddr = GATEWAY.parse().unwrap();
        let proxy: SocketAddr = (gateway, port).into();
        // Within reach of the client, so that only the rules keep it away.
        let control: SocketAddr = (gateway, port + 1).into();
        Egret::with(config)
            .listen(&[proxy], control)
            .listen_lines(listen_lines)
            .control_token("a-token-of-the-tests")
    }

    /// A second egret, with other listeners and the same policy.
    pub fn another(&self, listen_lines: &str) -> Egret {
        Self::builder_at(CONFIG, 4128, listen_lines).start()
    }

    /// Another configuration of policy and sandboxes, in force.
    pub fn reload(&self, change: impl FnOnce(&str) -> String) {
        self.egret.configure(&change(CONFIG));
        let answer = self.egret.reload();
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// `egret nft` with the site's configuration.
    pub fn nft(&self, arguments: &[&str]) -> Output {
        let file = self.egret.config_file();
        Command::new(BINARY).arg("nft").arg("--config").arg(file).args(arguments).output().unwrap()
    }

    /// Puts the rules in force.
    pub fn divert(&self) {
        let output = self.nft(&["--interface", "sb0", "--apply"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// Runs a program as the client: its output and its status.
    pub fn client(&self, program: &str, arguments: &[&str]) -> (String, bool) {
        let output = Command::new("ip")
            .args(["netns", "exec", "cl", program])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (format!("{}{}", text(&output.stdout), text(&output.stderr)), output.status.success())
    }

    /// `curl` as the client, with proxy settings that it is told to ignore.
    pub fn curl(&self, arguments: &[&str]) -> (String, bool) {
        let common = ["--noproxy", "*", "--silent", "--show-error", "--max-time", "60", "--cacert", &self.ca];
        self.client("curl", &[&common[..], arguments].concat())
    }

    /// The one decision on this host, once it is recorded.
    pub fn decision(&self, host: &str) -> Value {
        let of_host = || {
            let all = self.egret.events("decision");
            all.into_iter().filter(|record| record["host"] == host).collect::<Vec<_>>()
        };
        wait_for(&format!("a decision on {host}"), PATIENCE, || !of_host().is_empty());
        let mut decisions = of_host();
        assert_eq!(decisions.len(), 1, "{decisions:?}");
        decisions.remove(0)
    }

    /// Not one packet has gone out to these addresses.
    pub fn assert_untouched(&self, addresses: &[&str]) {
        let seen = self.watch.seen();
        for address in addresses {
            let address: IpAddr = address.parse().unwrap();
            let packets: Vec<_> = seen.iter().filter(|packet| packet.to == address).collect();
            assert!(packets.is_empty(), "{packets:?}");
        }
    }
}

/// Runs a closure in another namespace. Sockets stay where they were made, and so do threads.
pub fn within<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = fs::File::open(Path::new("/run/netns").join(name)).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            use std::os::fd::AsFd;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes a test that runs in a site of its own.
#[macro_export]
macro_rules! in_site {
    ($(#[$attribute:meta])* fn $name:ident($site:ident) $body:block) => {
        $(#[$attribute])*
        #[test]
        fn $name() {
            $crate::site::run(concat!(module_path!(), "::", stringify!($name)), |$site| $body);
        }
    };
}
