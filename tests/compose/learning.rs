//! Observe, learn, enforce, with a container as the sandbox: what it was seen to need is what it gets.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::project::{Project, images};
use crate::support::wait_for;

/// What the sandbox runs, twice.
const RUN: &str = "cd $(mktemp -d) && curl -sSf http://allowed.example/ && \
    git clone -q https://git.example/nest.git && cat nest/README && \
    pip install -q --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
    --index-url https://packages.example/simple/ --target=pip nestling && cat pip/nestling.py";
/// What it prints where all of it arrives.
const DONE: &str = "the page\nthe repository\nNEST = 'reed'\n";
/// What it did not ask for while it was observed: other hosts, and other ports of these.
const ELSE: [&str; 4] = [
    "curl -sSv http://refused.example/",
    "curl -sSv https://elsewhere.example/",
    "curl -sSv https://allowed.example/",
    "curl -sSv http://git.example/",
];
/// Where the policy says what holds.
const POLICY: &str = "[policy.sandbox] ";

#[test]
fn a_container_gets_what_it_was_observed_to_need_and_nothing_else() {
    let Some(images) = images() else { return };
    let project = Project::prepare(images, "", "");
    let file = project.place("compose/egret.toml");
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(written.matches(POLICY).count(), 1, "{written}");
    let policy_with =
        |line: &str| fs::write(&file, written.replace(POLICY, &format!("[policy.sandbox]\n{line}\n# ")));

    policy_with("mode = \"observe\"").unwrap();
    project.up(&[]);
    let (done, printed) = project.shell(RUN);
    assert!(done && printed == DONE, "{printed}");

    let learned = project.compose(&["exec", "-T", "egret", "/egret", "learn"]);
    fs::create_dir(project.place("compose/rules")).unwrap();
    fs::write(project.place("compose/rules/learned.toml"), learned + "\n").unwrap();
    policy_with("rules = [\"learned\"]").unwrap();
    let reloaded = |record: &Value| record["event"] == "reload" && record["ok"] == true;
    wait_for("a reload", Duration::from_secs(30), || project.audit().iter().any(reloaded));

    let (done, printed) = project.shell(RUN);
    assert!(done && printed == DONE, "{printed}");
    for command in ELSE {
        let (_, printed) = project.shell(command);
        assert!(printed.contains("403 egret ") && !printed.contains("the page"), "`{command}`: {printed}");
    }
    let audit = project.audit();
    let begin = audit.iter().position(reloaded).unwrap();
    let [observed, enforced] = [&audit[..begin], &audit[begin..]].map(|records| {
        let decisions = records.iter().filter(|record| record["event"] == "decision");
        decisions.map(|record| record["verdict"].as_str().unwrap()).collect::<Vec<_>>()
    });
    assert!(!observed.is_empty() && observed.iter().all(|verdict| *verdict == "would_deny"), "{observed:?}");
    let refused = enforced.iter().filter(|verdict| **verdict == "deny").count();
    assert_eq!((enforced.len() - refused, refused), (observed.len(), ELSE.len()), "{enforced:?}");
    assert!(!enforced.contains(&"would_deny"), "{enforced:?}");
}
