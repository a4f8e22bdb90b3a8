//! Real clients in the sandbox, by the proxy variables of their environment alone.

use std::collections::BTreeSet;

use crate::project::{POLICY, Project, images};

/// Commands that succeed, and the last line that they print.
const WORK: &[(&str, &str)] = &[
    ("curl -sS http://allowed.example/", "the page"),
    ("curl -sS https://allowed.example/", "the page"),
    ("curl -sS --proxy socks5h://egret:3128 https://allowed.example/", "the page"),
    ("wget -qO- http://allowed.example/", "the page"),
    ("wget -qO- --ca-certificate=/tls/ca.crt https://allowed.example/", "the page"),
    ("git clone -q http://git.example/nest.git plain && cat plain/README", "the repository"),
    ("git clone -q https://git.example/nest.git secure && cat secure/README", "the repository"),
    (
        "python3 -c 'import urllib.request as u; \
         print(u.urlopen(\"https://allowed.example/\").read().decode().strip())'",
        "the page",
    ),
    (
        "pip install -q --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
         --index-url https://packages.example/simple/ --target=pip nestling && cat pip/nestling.py",
        "NEST = 'reed'",
    ),
    (
        "npm install --silent --no-audit --no-fund --no-update-notifier --cafile /tls/ca.crt \
         --registry https://packages.example/npm/ --prefix npm nestling >npm.log; \
         ls npm/node_modules",
        "nestling",
    ),
    (
        "node -e 'const { http_proxy, NODE_PATH } = process.env; const proxy = new URL(http_proxy); \
         require(\"http\").get({ host: proxy.hostname, port: proxy.port, path: \"http://allowed.example/\" }, \
         answer => answer.pipe(process.stdout))'",
        "the page",
    ),
    (
        // As root without capabilities: in folders of its own, and as nobody else.
        "mkdir -p apt/lists/partial apt/archives/partial && cat >apt.conf <<END && export APT_CONFIG=apt.conf
Dir::State \"/tmp/apt\"; Dir::Cache \"/tmp/apt\"; Dir::Etc::SourceList \"/tmp/apt.list\";
APT::Sandbox::User \"root\"; Acquire::https::CAInfo \"/tls/ca.crt\";
END
echo 'deb [trusted=yes] https://packages.example/apt ./' >apt.list && touch apt/status && \
apt-get -qq update && apt-get -qq download bittern && ls *.deb",
        "bittern_1.0_all.deb",
    ),
    (
        "mkdir -p crate/src crate/.cargo && cd crate && touch src/lib.rs && \
         printf '[registries.local]\\nindex = \"sparse+https://packages.example/crates/\"\\n' >.cargo/config.toml && \
         printf '[package]\\nname = \"heron\"\\nversion = \"0.1.0\"\\n\\n[dependencies]\\nnestling = { version = \"1\", \
         registry = \"local\" }\\n' >Cargo.toml && \
         PATH=/toolchain/bin:$PATH CARGO_HOME=/tmp/cargo cargo -q fetch && grep -c nestling Cargo.lock",
        "2",
    ),
];

/// Commands that fail, and what they say of it.
const FAIL: &[(&str, &str)] = &[
    ("curl -sSf http://refused.example/", "403"),
    ("curl -sSv https://refused.example/", "403 egret domain_not_allowed"),
    ("curl -sS --proxy socks5h://egret:3128 http://refused.example/", "SOCKS5"),
    ("wget -O- http://refused.example/", "403 egret domain_not_allowed"),
    ("wget -O- https://refused.example/", "egret domain_not_allowed"),
    ("git clone http://refused.example/nest.git", "403"),
    ("git clone https://refused.example/nest.git", "403"),
    (
        "python3 -c 'import urllib.request as u; u.urlopen(\"https://refused.example/\")'",
        "403 egret domain_not_allowed",
    ),
    (
        "pip install --no-cache-dir --disable-pip-version-check --retries=1 \
         --index-url https://refused.example/simple/ --target=pip nestling",
        "403 egret domain_not_allowed",
    ),
    // It does not know of the variables, so for it there is nothing at all.
    ("node -e 'fetch(\"http://allowed.example/\")'", "fetch failed"),
];

#[test]
fn clients_work_and_each_container_is_a_sandbox_of_its_own() {
    let Some(images) = images() else { return };
    let project = Project::prepare(images, POLICY, "");
    project.up(&["--scale", "sandbox=2"]);
    let [first, second] = &project.containers("sandbox")[..] else { panic!("not two sandboxes") };
    for (command, last) in WORK {
        let (done, printed) = project.shell_in(first, &format!("cd /tmp && {command}"));
        assert!(done && printed.lines().last() == Some(last), "`{command}`: {printed}");
    }
    for (command, words) in FAIL {
        let (done, printed) = project.shell_in(first, &format!("cd /tmp && {command}"));
        assert!(!done && printed.contains(words), "`{command}`: {printed}");
    }
    let (done, printed) = project.shell_in(second, "curl -sS https://allowed.example/");
    assert_eq!((done, printed.as_str()), (true, "the page\n"));

    let addresses = [first, second].map(|container| project.address(container, "inside"));
    let audit = project.audit();
    let decided = |address: &str| {
        let sandbox = format!("sandbox-{address}");
        let of: Vec<_> = audit
            .iter()
            .filter(|record| record["event"] == "decision" && record["sandbox"] == sandbox.as_str())
            .collect();
        assert!(of.iter().all(|record| record["client"].as_str().unwrap().starts_with(address)), "{of:?}");
        of.iter()
            .map(|record| (record["host"].as_str().unwrap(), record["verdict"].as_str().unwrap()))
            .collect::<BTreeSet<_>>()
    };
    let of_first = [
        ("allowed.example", "allow"),
        ("git.example", "allow"),
        ("packages.example", "allow"),
        ("refused.example", "deny"),
    ];
    assert_eq!(decided(&addresses[0]), BTreeSet::from(of_first));
    assert_eq!(decided(&addresses[1]), BTreeSet::from([("allowed.example", "allow")]));

    let touched = project.compose(&["exec", "-T", "egret", "/egret", "domains"]);
    for (address, host) in [(&addresses[0], "git.example"), (&addresses[1], "allowed.example")] {
        let sandbox = format!("sandbox-{address}");
        let line = |line: &str| line.contains(&sandbox) && line.contains(host);
        assert!(touched.lines().any(line), "no {host} of {sandbox}: {touched}");
    }
}
