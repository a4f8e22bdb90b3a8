//! Who is who when sandboxes are registered: they come before the entries of the file, as long as
//! the configuration permits them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod support;

use std::sync::Arc;

use egret_policy::{Listed, Policy, Reason, Registered, Registration};
use support::World;

const FILE: &str = "
[[sandbox]]
id = \"build-{ip}\"
source = [\"10.0.0.0/8\"]
policy = \"p\"
[[sandbox]]
id = \"fixed\"
source = [\"11.0.0.1\"]
policy = \"p\"
[policy.p]
[policy.q]
";

fn read(networks: &[&str], policies: &[&str]) -> (Arc<Policy>, String) {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let world = World { registrable: (owned(networks), owned(policies)), ..World::default() };
    let (policy, problems) = support::read(FILE, &world);
    (policy, problems.to_string())
}

fn registered(policy: &str) -> Registered {
    registered_as(policy, false)
}

fn registered_as(policy: &str, by_token: bool) -> Registered {
    let registration = Registration {
        id: "r".into(),
        life: 1,
        sources: vec!["10.1.0.0/30".parse().unwrap()],
        by_token,
        policy: policy.into(),
        limits: None,
        workspace: Some("w".into()),
        tool: None,
    };
    Registered::new(vec![Arc::new(Listed(Arc::new(registration)))])
}

#[test]
fn a_registration_comes_before_the_file() {
    let (policy, _) = read(&["10.0.0.0/8"], &["q"]);
    let who = |source: &str| policy.sandboxes.identify(source.parse().unwrap(), &registered("q")).unwrap();
    let client = who("10.1.0.2");
    assert_eq!((&*client.sandbox, &*client.policy, client.identity.as_str()), ("r", "q", "source"));
    assert_eq!(client.words().0.map(|workspace| &**workspace), Some("w"));
    assert_eq!(&*who("10.1.0.4").sandbox, "build-10.1.0.4");
}

#[test]
fn one_that_is_no_longer_permitted_is_nobody_and_not_what_the_file_says() {
    for (networks, policies) in [(&[][..], &[][..]), (&["10.2.0.0/16"], &[]), (&["10.0.0.0/8"], &["q"])] {
        let (policy, _) = read(networks, policies);
        let refusal = policy.sandboxes.identify("10.1.0.2".parse().unwrap(), &registered("p")).unwrap_err();
        assert_eq!(refusal.reason, Reason::IdentityRejected);
    }
}

#[test]
fn one_that_asks_for_a_token_is_nobody_without() {
    let (policy, _) = read(&["10.0.0.0/8"], &["q"]);
    let reason = |source: &str, named: &str| {
        let found = policy.sandboxes.identify(source.parse().unwrap(), &registered_as(named, true));
        found.map(|client| client.sandbox.to_string()).map_err(|refusal| refusal.reason)
    };
    assert_eq!(reason("10.1.0.2", "q"), Err(Reason::IdentityRequired));
    assert_eq!(reason("10.1.0.2", "p"), Err(Reason::IdentityRejected), "it is not permitted at all");
    assert_eq!(reason("10.1.0.4", "q"), Ok("build-10.1.0.4".to_owned()));
}

#[test]
fn ids_of_the_file() {
    let (policy, _) = read(&[], &[]);
    for id in ["fixed", "anonymous", "build-10.0.0.7", "build-2001-db8--"] {
        assert!(policy.sandboxes.has_id(id), "{id}");
    }
    for id in ["fixe", "build-", "build-7", "build-10.0.0.7x", "r"] {
        assert!(!policy.sandboxes.has_id(id), "{id}");
    }
}

#[test]
fn wrong_settings() {
    for (networks, policies, said) in [
        (&["10.0.0.1/8"][..], &[][..], "host bits set"),
        (&["::ffff:10.0.0.0/104"], &[], "write the IPv4 network"),
        (&["10.0.0.0/8"], &["pp"], "there is no policy `pp`"),
        (&[], &["p"], "`register_policies` needs the networks"),
    ] {
        let (_, problems) = read(networks, policies);
        assert!(problems.contains(said), "{said}: {problems}");
    }
}
