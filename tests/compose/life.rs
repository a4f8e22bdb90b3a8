//! What the containers are given, and what a sandbox notices of egret's end and return.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::project::{POLICY, Project, docker, images};
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(60);
const FETCH: &str = "curl -sS --max-time 5 http://allowed.example/";
const MOST_OCTETS: u64 = 25_000_000;

fn inspect(container: &str, format: &str) -> String {
    docker(&["inspect", "--format", format, container])
}

fn works(project: &Project) -> bool {
    project.shell(FETCH) == (true, "the page\n".to_owned())
}

/// Nothing answers the sandbox, by egret's name and address, and past it.
fn is_cut_off(project: &Project) {
    let (done, printed) = project.shell(FETCH);
    assert!(!done && printed.starts_with("curl:"), "{printed}");
    let site = project.outside(3);
    let script = format!("python3 /tests/around.py tcp:{site}:80 udp:{site}:53 icmp:{site}");
    let (done, printed) = project.shell(&script);
    assert!(done && !printed.contains("reached"), "{printed}");
}

#[test]
fn without_egret_there_is_no_way_out_and_with_it_again_there_is() {
    let Some(images) = images() else { return };
    let project = Project::start(images, POLICY, "");
    let egret = project.container("egret");
    let untouched = || inspect(&project.container("sandbox"), "{{.Id}} {{.State.Pid}} {{.State.StartedAt}}");
    let sandbox = untouched();
    wait_for("egret serves", LIMIT, || works(&project));

    docker(&["kill", &egret]);
    is_cut_off(&project);
    docker(&["start", &egret]);
    wait_for("egret serves again", LIMIT, || works(&project));

    docker(&["pause", &egret]);
    is_cut_off(&project);
    docker(&["unpause", &egret]);
    wait_for("egret serves again", LIMIT, || works(&project));

    project.compose(&["restart", "egret"]);
    wait_for("egret serves again", LIMIT, || works(&project));

    // Another container in place of the first one, as after an update.
    project.up(&["--no-deps", "--force-recreate", "egret"]);
    assert_ne!(project.container("egret"), egret);
    wait_for("egret serves again", LIMIT, || works(&project));
    assert_eq!(untouched(), sandbox, "the sandbox was to go on");

    let audit = project.audit();
    let count = |event: &str| audit.iter().filter(|record| record["event"] == event).count();
    assert_eq!((count("start"), count("stop")), (4, 2), "killed once, stopped twice, and running");
    let fetched = |record: &&Value| record["event"] == "decision" && record["host"] == "allowed.example";
    assert!(audit.iter().filter(fetched).count() >= 5, "{audit:?}");
}

#[test]
fn it_has_no_more_than_it_needs_and_takes_up_what_is_changed() {
    let Some(images) = images() else { return };
    let size: u64 = docker(&["image", "inspect", "--format", "{{.Size}}", &images[0]]).parse().unwrap();
    assert!(size < MOST_OCTETS, "{size} octets");
    let project = Project::start(images, "", "");
    runs_as_nobody_on_a_read_only_root(&project);
    is_given_nothing_else(&project);

    assert!(project.shell(FETCH).1.contains("domain_not_allowed"));
    // As editors do it: a new file in the place of the old one.
    let [file, new] = ["compose/egret.toml", "compose/.new"].map(|name| project.place(name));
    fs::write(&new, fs::read_to_string(&file).unwrap() + POLICY).unwrap();
    fs::rename(new, file).unwrap();
    wait_for("the new policy", LIMIT, || works(&project));
}

fn runs_as_nobody_on_a_read_only_root(project: &Project) {
    let egret = project.container("egret");

    let pid = inspect(&egret, "{{.State.Pid}}");
    let of = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let status = of("status");
    let has =
        |line: &str| assert!(status.lines().any(|l| l.split_whitespace().eq(line.split(' '))), "{status}");
    has("Uid: 65532 65532 65532 65532");
    has("Gid: 65532 65532 65532 65532");
    has("CapEff: 0000000000000000");
    has("CapBnd: 0000000000000000");
    has("NoNewPrivs: 1");
    let sysctl = ["--net", "--target", &pid, "cat", "/proc/sys/net/ipv4/ip_forward"];
    let output = Command::new("nsenter").args(sysctl).output().expect("`nsenter` runs");
    assert_eq!(output.stdout, b"0\n", "egret's kernel would pass packets on");
    let route = of("net/route");
    let default = route.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let gateways: Vec<String> = default.filter(|f| f[1] == "00000000").map(|f| f[2].to_owned()).collect();
    let outside = u32::from_le_bytes(project.outside(1).octets());
    assert_eq!(gateways, [format!("{outside:08X}")], "egret's way out is inside: {route}");
    let mounts = of("mountinfo");
    let options = |place: &str| {
        let line = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        line.rev().find(|fields| fields[4] == place).unwrap()[5].split(',').next().unwrap().to_owned()
    };
    let places = ["/", "/etc/egret", "/var/lib/egret"].map(options);
    assert_eq!(places, ["ro", "ro", "rw"], "{mounts}");
}

fn is_given_nothing_else(project: &Project) {
    let [egret, sandbox] = ["egret", "sandbox"].map(|service| project.container(service));
    let json = |container: &str, format: &str| -> Value {
        serde_json::from_str(&inspect(container, format)).unwrap()
    };
    for container in [&egret, &sandbox] {
        assert_eq!(json(container, "{{json .HostConfig.CapDrop}}"), json!(["ALL"]));
        assert_eq!(json(container, "{{json .HostConfig.SecurityOpt}}"), json!(["no-new-privileges:true"]));
        assert_eq!(json(container, "{{json .HostConfig.PortBindings}}"), json!({}));
        assert_eq!(json(container, "{{json .HostConfig.CapAdd}}"), Value::Null);
    }
    let networks = |container: &str| {
        json(container, "{{json .NetworkSettings.Networks}}").as_object().unwrap().keys().cloned().collect()
    };
    let named = |names: &[&str]| names.iter().map(|name| project.network(name)).collect::<Vec<_>>();
    let of_egret: Vec<String> = networks(&egret);
    assert_eq!(of_egret, named(&["inside", "outside"]));
    let of_sandbox: Vec<String> = networks(&sandbox);
    assert_eq!(of_sandbox, named(&["inside"]));
}
