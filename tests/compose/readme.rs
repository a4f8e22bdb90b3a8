//! What the README says about containers, typed in as it stands there.

use crate::alike::{PAGE, expect};
use crate::project::{Project, images};
use crate::steps::{self, Step, What};

/// How the README starts compose, and what does so here.
const README: &str = "docker compose ";
const HERE: &str = "docker-compose ";

#[test]
fn the_readme_starts_it() {
    let Some(images) = images() else { return };
    let project = Project::prepare(images, "", "");
    let mut typed = 0;
    for Step { line, what } in steps::of("README.md") {
        let What::Command { text, output } = what else { continue };
        if !text.starts_with(README) {
            continue;
        }
        let here = text.replacen(README, HERE, 1);
        let done = project.command("sh").args(["-c", &format!("exec 2>&1; {here}")]).output().unwrap();
        let printed = String::from_utf8(done.stdout).unwrap();
        expect(&format!("README.md:{line}: `{text}`"), &printed, &output, || {
            if text.contains(" curl ") { printed == PAGE } else { done.status.success() }
        });
        typed += 1;
    }
    assert!(typed > 3, "the README has no more than {typed} such commands");
}
