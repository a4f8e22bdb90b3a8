//! Names, for tools that look them up before they connect: those that are allowed are found, others
//! refused at once, and nobody outside is asked for them.

use crate::project::{POLICY, Project, images};

/// How tools ask, and what they print for a name that is allowed.
const ASKED: &[(&str, &str)] = &[
    ("getent ahostsv4 {name} | head -n 1 | cut -d ' ' -f 1", "{s}"),
    ("python3 -c 'import socket; print(socket.gethostbyname(\"{name}\"))'", "{s}"),
    (
        "node -e 'require(\"dns\").lookup(\"{name}\", (error, found) => console.log(error?.code, found))'",
        "undefined {s}",
    ),
];
/// The code of an answer, so that silence is told from refusal.
const CODE: &str = "node -e 'require(\"dns\").resolve4(\"{name}\", error => console.log(error?.code))'";

#[test]
fn allowed_names_are_found_and_others_refused_without_a_question_outside() {
    let Some(images) = images() else { return };
    let project = Project::start(images, POLICY, "");
    let site = project.outside(3).to_string();
    let ask = |script: &str, name: &str| project.shell(&script.replace("{name}", name)).1.trim().to_owned();
    for (script, answer) in ASKED {
        assert_eq!(ask(script, "allowed.example"), answer.replace("{s}", &site), "`{script}`");
        let refused = ask(script, "refused.example");
        assert!(!refused.contains(&project.outside(4).to_string()), "`{script}`: {refused}");
    }
    // By way of the engine, and asked of egret itself.
    let direct = CODE.replace("resolve4", &format!("setServers([\"{}\"]); d.resolve4", project.inside(2)));
    let direct = direct.replace("require(\"dns\").", "const d = require(\"dns\"); d.");
    for code in [CODE, &direct] {
        assert_eq!(ask(code, "allowed.example"), "undefined", "`{code}`");
        assert_eq!(ask(code, "refused.example"), "EREFUSED", "`{code}`");
        assert_eq!(ask(&code.replace("resolve4", "resolveTxt"), "allowed.example"), "EREFUSED", "`{code}`");
        assert_eq!(ask(code, "secret.of.refused.example"), "EREFUSED", "`{code}`");
    }

    let (_, asked) = project.shell_in(&project.container("site"), "cat /tmp/asked");
    let has = |name: &str| asked.lines().any(|line| line == name);
    assert!(has("allowed.example") && !asked.contains("refused"), "names that were looked up: {asked}");
    let sandbox = format!("sandbox-{}", project.address(&project.container("sandbox"), "inside"));
    let records = project.audit();
    let names = |reason: &str| {
        let of = |record: &&serde_json::Value| {
            record["protocol"] == "dns" && record["sandbox"] == sandbox.as_str() && record["reason"] == reason
        };
        records.iter().filter(of).map(|record| record["host"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert!(names("allowed").iter().all(|name| *name == "allowed.example"), "{records:?}");
    assert!(names("domain_not_allowed").contains(&"secret.of.refused.example"), "{records:?}");
}
