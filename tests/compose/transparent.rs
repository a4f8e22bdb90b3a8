//! Tools that ignore proxy variables, in containers whose bridge is on the machine where egret runs:
//! the way that `docs/container.md` has it.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

use crate::project::{POLICY, Project, images, success};
use crate::support::egret::{BINARY, Egret};
use crate::support::wait_for;
use crate::watch::Watch;

/// A network with this machine on it; the sandbox's names are asked there.
const MORE: &str = r#"
services:
  sandbox:
    dns: "{inside}.1"
networks:
  inside:
    driver_opts:
      com.docker.network.bridge.name: "{bridge}i"
      com.docker.network.bridge.enable_icc: "false"
    ipam: {config: [{subnet: "{inside}.0/24"}]}
"#;

const LIMIT: Duration = Duration::from_secs(60);
const WEB: &str = "curl -sS --max-time 5 --noproxy '*' http://allowed.example/";
/// By name, without a word of a proxy.
const WORK: &[(&str, &str)] = &[
    ("curl -sS --noproxy '*' https://allowed.example/", "the page"),
    (
        "node -e 'fetch(\"https://allowed.example/\").then(a => a.text()).then(t => console.log(t.trim()))'",
        "the page",
    ),
    (
        "env -i PATH=\"$PATH\" GIT_SSL_CAINFO=/tls/ca.crt git clone -q https://git.example/nest.git && cat nest/README",
        "the repository",
    ),
];
/// What the policy has no place for; `{h}` is this machine, which listens on `{port}`.
const FAIL: &[&str] = &[
    "curl -sSf --noproxy '*' http://refused.example/",
    "curl -sSf --noproxy '*' http://{e}/",
    "curl -sSk --noproxy '*' --connect-to ::{e}:443 https://refused.example/",
    "curl -sSf --max-time 5 --noproxy '*' http://{h}:{port}/",
    "node -e 'fetch(\"http://refused.example/\")'",
];

/// The rules of one bridge, in a table of their own, until dropped.
struct Rules {
    table: String,
}

impl Rules {
    fn apply(egret: &Egret, bridge: &str) -> Self {
        let rules = Self { table: format!("egret_{}", bridge.replace('-', "_")) };
        let mut command = Command::new(BINARY);
        command.args(["nft", "--interface", bridge, "--table", &rules.table, "--apply", "--config"]);
        success(command.arg(egret.config_file()).output().unwrap(), &["egret nft --apply"]);
        rules
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        let _ = Command::new(BINARY).args(["nft", "--remove", "--table", &self.table]).output();
    }
}

/// egret on this machine, on the address that the network has given it.
fn serve(project: &Project) -> Egret {
    let at = |port| SocketAddr::new(project.inside(1).into(), port);
    let config = format!(
        "[dns]\nservers = [\"{}\"]\n\n[[sandbox]]\nid = \"sandbox-{{ip}}\"\nsource = [\"{}/24\"]\n\
         policy = \"sandbox\"\n\n[policy.sandbox]\n\n{POLICY}",
        project.outside(3),
        project.inside(0),
    );
    let control = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    Egret::with(config)
        .listen(&[at(3128)], control)
        .names(at(53))
        .listen_lines(&format!("transparent = \"{}\"\n", at(3131)))
        .start()
}

#[test]
fn tools_that_ignore_the_proxy_have_no_way_past_it_on_a_bridge_of_this_machine() {
    let Some(images) = images() else { return };
    let project = Project::prepare(images, "", MORE);
    project.up(&["--no-deps", "site", "elsewhere", "sandbox"]);
    let listener = TcpListener::bind((project.inside(1), 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let [here, elsewhere] = [project.inside(1), project.outside(4)];
    // Of this machine, which nothing keeps a sandbox on an ordinary bridge from.
    let tries = format!("python3 /tests/around.py icmp:{here} udp:{here}:53 icmp:{elsewhere}");
    let (_, printed) = project.shell(&format!("{tries} tcp:{here}:{port}"));
    assert_eq!(printed.matches(" reached").count(), 2, "{printed}");

    let egret = serve(&project);
    let bridge = format!("{}i", project.bridge());
    let rules = Rules::apply(&egret, &bridge);
    let watch = Watch::outside(&project);
    wait_for("the site", LIMIT, || project.shell(WEB) == (true, "the page\n".to_owned()));
    for (command, last) in WORK {
        let (done, printed) = project.shell(&format!("cd /tmp && {command}"));
        assert!(done && printed.trim_end().ends_with(last), "`{command}`: {printed}");
    }
    let fill = |text: &str| {
        [("{e}", elsewhere.to_string()), ("{h}", here.to_string()), ("{port}", port.to_string())]
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    };
    for command in FAIL {
        let (done, printed) = project.shell(&fill(command));
        assert!(!done && !printed.contains("page"), "`{command}`: {printed}");
    }
    let (_, printed) = project.shell(&tries);
    assert_eq!(printed.matches(" reached").count(), 1, "egret's DNS alone: {printed}");
    assert_eq!(watch.packets_to(elsewhere), 0, "packets to an address that nothing may reach");

    let sandbox = format!("sandbox-{}", project.address(&project.container("sandbox"), "inside"));
    let decided = egret.events("decision");
    assert!(decided.iter().all(|record| record["sandbox"] == sandbox.as_str()), "{decided:?}");
    let is = |protocol: &str, reason: &str| {
        decided.iter().any(|record| record["protocol"] == protocol && record["reason"] == reason)
    };
    assert!(is("transparent", "allowed") && is("transparent", "domain_not_allowed"), "{decided:?}");
    assert!(is("dns", "allowed") && is("dns", "domain_not_allowed"), "{decided:?}");

    let table = rules.table.clone();
    drop(rules);
    let listed = Command::new("nft").args(["list", "table", "inet", &table]).output().unwrap();
    assert!(!listed.status.success(), "the rules are still there");
}
