//! What a sandbox can do past egret: nothing. And that the same tries lead somewhere from elsewhere,
//! or where a setting of `compose.yaml` is missing.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::project::{POLICY, Project, docker, images, success};
use crate::watch::Watch;

/// Connections, questions and pings to all that a sandbox could want to reach, and how they must end
/// there. `{s}` is the site, `{e}` elsewhere, `{o}` this machine outside, `{i}` where it would be
/// inside, `{g}` egret inside, `{G}` egret outside, `{port}` one that this machine listens on.
const TRIES: &[(&str, &str)] = &[
    ("tcp:{s}:80", "unreachable"),
    ("tcp:{s}:443", "unreachable"),
    ("tcp:{s}:7007", "unreachable"),
    ("tcp:{e}:80", "unreachable"),
    ("tcp:{e}:443", "unreachable"),
    ("udp:{s}:53", "no answer"),
    ("udp:{e}:53", "no answer"),
    ("icmp:{e}", "no answer"),
    ("tcp:{o}:{port}", "unreachable"),
    ("icmp:{o}", "no answer"),
    ("tcp:1.1.1.1:443", "unreachable"),
    ("tcp:1.1.1.1:853", "unreachable"),
    ("udp:8.8.8.8:53", "no answer"),
    ("icmp:8.8.8.8", "no answer"),
    ("tcp:169.254.169.254:80", "unreachable"),
    ("tcp:{i}:{port}", "unreachable"),
    ("icmp:{i}", "no answer"),
    // The control interface is on the loopback of egret's container.
    ("tcp:{g}:3129", "refused"),
    ("tcp:{G}:3128", "unreachable"),
    ("tcp:{G}:3129", "unreachable"),
    ("tcp:refused.example:80", "no such name"),
];
/// Those that must succeed for somebody outside, so that nothing above is merely down.
const REACHED_OUTSIDE: usize = 10;

/// Ways around that are curl's and wget's own.
const AROUND: &[&str] = &[
    "curl -sS --noproxy '*' http://refused.example/",
    "curl -sS --noproxy '*' https://{e}/ --insecure",
    "curl -sS --noproxy '*' --connect-to ::{e}:80 http://allowed.example/",
    "curl -sS --noproxy '*' --doh-url https://1.1.1.1/dns-query http://refused.example/",
    "curl -sS -6 --noproxy '*' 'http://[2606:4700:4700::1111]/'",
    "env NO_PROXY='*' no_proxy='*' curl -sS http://{e}/",
    "env ALL_PROXY=socks5h://{e}:1080 http_proxy= HTTP_PROXY= curl -sS http://refused.example/",
    "wget --no-proxy --tries=1 --timeout=4 -qO- http://{e}/",
];

/// Requests that egret has to refuse without a packet to elsewhere, and what they say.
const REFUSED: &[(&str, &str)] = &[
    ("curl -sS http://refused.example/", "domain_not_allowed"),
    ("curl -sS http://{e}/", "address_not_allowed"),
    ("curl -sSv https://refused.example/", "403 egret domain_not_allowed"),
    ("curl -sSv https://{e}/", "403 egret address_not_allowed"),
    ("curl -sSL http://allowed.example/away", "redirect_denied"),
    ("curl -sS http://allowed.example:7007/", "port_not_allowed"),
    ("curl -sS http://169.254.169.254/latest/meta-data/", "address_forbidden"),
    ("curl -sS http://{g}:3128/", "address_forbidden"),
    ("curl -sS http://127.0.0.1:3129/metrics", "address_forbidden"),
    ("curl -sS http://{o}:{port}/", "address_not_allowed"),
    // A tunnel to an allowed name, with the name of another in its TLS.
    ("curl -sS --connect-to refused.example:443:allowed.example:443 https://refused.example/", "curl: (35)"),
];

struct Scene {
    project: Project,
    /// Something that this machine listens with on all its addresses.
    _listener: TcpListener,
    port: u16,
    egret_outside: String,
}

impl Scene {
    fn set(more: &str) -> Option<Self> {
        let project = Project::start(images()?, POLICY, more);
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let egret_outside = project.address(&project.container("egret"), "outside");
        Some(Self { project, _listener: listener, port, egret_outside })
    }

    fn fill(&self, text: &str) -> String {
        let (inside, outside) = (|last| self.project.inside(last), |last| self.project.outside(last));
        [
            ("{s}", outside(3).to_string()),
            ("{e}", outside(4).to_string()),
            ("{o}", outside(1).to_string()),
            ("{i}", inside(1).to_string()),
            ("{g}", inside(2).to_string()),
            ("{G}", self.egret_outside.clone()),
            ("{port}", self.port.to_string()),
        ]
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// What came of tries in a container, as the last words of lines.
    fn tries(&self, container: &str, tries: &[&str]) -> Vec<String> {
        let arguments: Vec<String> = tries.iter().map(|try_| self.fill(try_)).collect();
        let script = format!("python3 /tests/around.py {}", arguments.join(" "));
        let (done, printed) = self.project.shell_in(container, &script);
        assert!(done, "{printed}");
        printed.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap().to_owned()).collect()
    }

    /// A frame with a packet for elsewhere in it, sent to egret's hardware address by a container on
    /// the inside network that has raw sockets.
    fn sends_past_egret(&self) {
        let source = self.project.inside(77).to_string();
        let raw = self.fill(&format!("raw:{{g}}:{source}:{{e}}"));
        let tests = format!("{}/tests/compose:/tests:ro", env!("CARGO_MANIFEST_DIR"));
        let network = self.project.network("inside");
        let image = self.project.sandbox_image();
        let printed = docker(&[
            "run",
            "--rm",
            "--network",
            &network,
            "--ip",
            &source,
            "--cap-add=NET_RAW",
            "--volume",
            &tests,
            image,
            "python3",
            "/tests/around.py",
            &raw,
        ]);
        assert!(printed.ends_with(" sent"), "{printed}");
    }
}

#[test]
fn nothing_leaves_but_through_egret() {
    let Some(scene) = Scene::set("") else { return };
    let (project, elsewhere) = (&scene.project, scene.project.outside(4));
    let watch = Watch::outside(project);
    let sandbox = project.container("sandbox");

    let (tries, endings): (Vec<&str>, Vec<&str>) = TRIES.iter().copied().unzip();
    assert_eq!(scene.tries(&sandbox, &tries), endings);
    for around in AROUND {
        let (done, printed) = project.shell(&scene.fill(around));
        assert!(!done && !printed.contains("HTTP") && !printed.contains("page"), "`{around}`: {printed}");
    }
    let raw = scene.tries(&sandbox, &["raw:{g}:{i}:{e}"]);
    assert_eq!(raw, ["not permitted"]);
    scene.sends_past_egret();

    for (request, words) in REFUSED {
        let (_, printed) = project.shell(&scene.fill(request));
        assert!(printed.contains(words), "`{request}`: {printed}");
    }
    assert_eq!(watch.packets_to(elsewhere), 0, "packets to an address that nothing may reach");
    for public in ["1.1.1.1", "8.8.8.8", "169.254.169.254"] {
        assert_eq!(watch.packets_to(public.parse().unwrap()), 0, "packets to {public}");
    }
    let (_, asked) = project.shell_in(&project.container("site"), "cat /tmp/asked");
    let has = |name: &str| asked.lines().any(|line| line == name);
    assert!(has("allowed.example") && !has("refused.example"), "names that were looked up: {asked}");

    // The same tries by somebody outside, who is seen.
    let outside: Vec<&str> = tries[..REACHED_OUTSIDE].to_vec();
    let reached = scene.tries(&project.container("site"), &outside);
    assert!(reached.iter().all(|outcome| outcome == "reached"), "{outside:?}: {reached:?}");
    assert!(watch.packets_to(elsewhere) > 0, "the watch sees nothing");
}

#[test]
fn without_the_setting_this_machine_can_be_reached_and_the_probe_says_so() {
    let more = "\
networks:
  inside:
    internal: true
    ipam: {config: [{subnet: \"{inside}.0/24\"}]}
";
    let Some(scene) = Scene::set(more) else { return };
    let [egret, sandbox] = ["egret", "sandbox"].map(|service| scene.project.container(service));
    assert_eq!(scene.tries(&sandbox, &["tcp:{i}:{port}", "icmp:{i}"]), ["reached", "reached"]);

    scene.project.copy((&egret, "/egret"), &[&sandbox], "/tmp/egret");
    let probe = "/tmp/egret probe --no-defaults --allowed http://allowed.example/ --dns-name example.org --listener {g}:53";
    let (done, printed) = scene.project.shell_in(&sandbox, &scene.fill(probe));
    let gateway = scene.fill("gateway {i}");
    let failed: Vec<&str> = printed.lines().filter(|line| line.starts_with("FAIL ")).collect();
    assert!(!done && failed.len() == 1 && failed[0].contains(&gateway), "{printed}");
}

/// An address that this machine has on another network, and everybody on the inside one.
const TO_THIS_MACHINE: [&str; 2] = ["{o}", "255.255.255.255"];

/// A table of packet filter rules, removed when dropped.
struct Table(String);

impl Drop for Table {
    fn drop(&mut self) {
        let _ = Command::new("nft").args(["delete", "table", "inet", &self.0]).output();
    }
}

/// What `docs/container.md` says about datagrams, both that they arrive and how to have them dropped.
#[test]
fn datagrams_to_this_machine_are_dropped_where_its_rules_say_so() {
    let Some(scene) = Scene::set("") else { return };
    let sandbox = scene.project.container("sandbox");
    let service = UdpSocket::bind("0.0.0.0:0").unwrap();
    service.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let port = service.local_addr().unwrap().port();
    let arrives = |to: &str| {
        assert_eq!(scene.tries(&sandbox, &[&format!("onlink:{to}:{port}")]), ["sent"]);
        service.recv(&mut [0; 64]).is_ok()
    };

    // Where routes back are asked for strictly, the kernel drops it without any rule.
    let filters = ["all", "default"].map(|name| {
        fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter")).unwrap().trim().to_owned()
    });
    let loose = filters.iter().max().unwrap() != "1";
    for to in TO_THIS_MACHINE {
        assert_eq!(arrives(to), loose, "{to}, rp_filter: {filters:?}");
    }

    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/container.md");
    let page = fs::read_to_string(page).unwrap();
    let start = page.find("bridge=br-").unwrap();
    let typed = page[start..].split("```").next().unwrap().replace("sudo ", "");
    let network = scene.project.network("inside");
    let table = Table(network.replace('-', "_"));
    let typed = typed
        .replace("table inet egret_inside", &format!("table inet {}", table.0))
        .replace("egret_inside", &network);
    success(Command::new("sh").args(["-ec", &typed]).output().unwrap(), &[&typed]);
    for to in TO_THIS_MACHINE {
        assert!(!arrives(to), "a datagram to {to} passed the rule");
    }
    // And the sandbox still works.
    assert_eq!(scene.project.shell("curl -sS http://allowed.example/"), (true, "the page\n".to_owned()));
}
