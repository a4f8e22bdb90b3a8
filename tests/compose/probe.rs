//! `egret probe`, the program of the image itself, in the sandbox and in a container on an ordinary
//! network.

use crate::project::{POLICY, Project, images};

const MORE: &str = r#"
services:
  outsider:
    image: "{sandbox_image}"
    init: true
    command: ["sleep", "infinity"]
    dns: "{outside}.3"
    networks: [outside]
"#;

#[test]
fn the_probe_passes_in_the_sandbox_and_fails_on_an_ordinary_network() {
    let Some(images) = images() else { return };
    let project = Project::start(images, POLICY, MORE);
    let [egret, sandbox, outsider] =
        ["egret", "sandbox", "outsider"].map(|service| project.container(service));
    project.copy((&egret, "/egret"), &[&sandbox, &outsider], "/tmp/egret");

    let [site, elsewhere] = [3, 4].map(|last| project.outside(last));
    let listener = format!("--listener {}:53", project.inside(2));
    let places = format!(
        "--no-defaults --target tcp:{elsewhere}:80 --target tcp:{elsewhere}:443 --target tcp:{site}:7007 \
         --target dns:{site} --target icmp:{elsewhere} --dns-name refused.example \
         --allowed http://allowed.example/ --allowed https://allowed.example/ \
         --refused http://refused.example/ --refused https://refused.example/ \
         --redirect http://allowed.example/away {listener}"
    );
    let baseline = format!("/tmp/egret probe --baseline --write /tmp/base.json {places}");
    let (done, printed) = project.shell_in(&outsider, &baseline);
    assert!(done, "{printed}");
    project.copy((&outsider, "/tmp/base.json"), &[&sandbox], "/tmp/base.json");

    let inside = format!("/tmp/egret probe --baseline /tmp/base.json {places}");
    let (done, printed) = project.shell_in(&sandbox, &inside);
    let last = printed.lines().last().unwrap();
    assert!(done && last.starts_with("PASS: "), "{printed}");
    let passed = |check: &str| {
        let line = printed.lines().find(|line| line.starts_with("pass") && line.contains(check));
        assert!(line.is_some_and(|line| line.contains("reached from outside")), "{check}: {printed}");
    };
    let direct = format!("direct tcp:{elsewhere}:443");
    for check in [&direct, &format!("direct dns:{site}"), &format!("direct icmp:{elsewhere}")] {
        passed(check);
    }

    // Without one too, as docs/container.md has it typed.
    let typed =
        format!("/tmp/egret probe --allowed http://allowed.example/ --dns-name example.org {listener}");
    let (done, printed) = project.shell_in(&sandbox, &typed);
    assert!(done && printed.lines().last().unwrap().starts_with("PASS: "), "{printed}");

    let (done, printed) = project.shell_in(&outsider, &inside);
    assert!(!done && printed.lines().last().unwrap().starts_with("FAIL"), "{printed}");
    assert!(printed.lines().any(|line| line.starts_with("FAIL") && line.contains(&direct)), "{printed}");
}
