//! Any text as configuration and rule set: reading it ends, with a policy or with problems that
//! have a place, and what was read can be asked.

#![no_main]

use std::net::IpAddr;
use std::sync::Arc;

use egret_policy::reader::read_document;
use egret_policy::{
    Action, Destination, Entry, Intent, Listeners, Policy, Problems, RegisterText, Registered, Resolution,
    SourceFile, Surroundings, Verdict,
};
use libfuzzer_sys::fuzz_target;

const TARGETS: &[&str] = &["a.example:443", "b.a.example:8443", "10.0.0.1:80", "[2606:4700::1]:443"];

fuzz_target!(|text: &str| {
    let file = SourceFile::new("egret.toml", text.to_owned());
    let mut problems = Problems::default();
    let around = Surroundings {
        generation: 1,
        listeners: Listeners::default(),
        nat64: Vec::new(),
        anonymous: None,
        tokens: true,
        register: RegisterText::default(),
        certificates: true,
    };
    let mut fetch = |name: &str| Ok(SourceFile::new(name, text.to_owned()));
    let policy = read_document(&file, &mut problems, |mut root, problems| {
        let policy = Policy::read(&mut root, around, &mut fetch, problems);
        root.finish(problems);
        policy
    });
    for problem in problems.iter() {
        let line = problem.to_string();
        assert!(!line.contains('\n'), "{line:?}");
    }
    if !problems.any_error() {
        ask(&Arc::new(policy));
    }
});

fn ask(policy: &Arc<Policy>) {
    let Ok(client) = policy.sandboxes.identify(IpAddr::from([10, 0, 0, 1]), &Registered::default()) else {
        return;
    };
    for target in TARGETS {
        let Ok(destination) = Destination::parse_authority(target.as_bytes()) else {
            unreachable!("{target} is a destination");
        };
        let request = Action::Request { method: "GET".into(), path: b"/a/b"[..].into() };
        for action in [Action::Tunnel, request] {
            let intent = Intent {
                client: client.clone(),
                entry: Entry::Proxy,
                destination: destination.clone(),
                action,
            };
            let _ = policy.near_misses(&intent);
            if let Verdict::Allow(grant) = policy.decide(&intent) {
                let answer = Resolution { addresses: vec![IpAddr::from([8, 8, 8, 8])] };
                let _ = grant.pin(&answer, |_| false);
            }
        }
    }
}
