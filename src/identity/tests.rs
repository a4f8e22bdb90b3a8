#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use egret_policy::reader::read_document;
use egret_policy::{Identity, Listeners, Problems, SourceFile, Surroundings};
use serde_json::json;

use super::*;

const CONFIG: &str = "[[sandbox]]\nid = \"by-source\"\nsource = [\"127.0.0.1\"]\npolicy = \"main\"\n\
    [[sandbox]]\nid = \"by-token\"\nsource = [\"127.0.0.2\"]\npolicy = \"main\"\nauth = \"token\"\n\
    [policy.main]\n";

struct World {
    policy: Policy,
    key: SigningKey,
    identities: Identities,
    _state: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let file = SourceFile::new("f.toml", CONFIG.to_owned());
        let mut problems = Problems::default();
        let around = Surroundings {
            generation: 1,
            listeners: Listeners::default(),
            nat64: Vec::new(),
            anonymous: None,
            tokens: true,
            register: egret_policy::RegisterText::default(),
            certificates: true,
        };
        let policy = read_document(&file, &mut problems, |mut root, problems| {
            Policy::read(&mut root, around, &mut |_| Err(String::new()), problems)
        });
        assert!(!problems.any_error(), "{problems}");
        let state = tempfile::tempdir().unwrap();
        let key = SigningKey::generate().unwrap();
        let keys = TokenKeys::new(vec![key.public().unwrap()], "egret");
        let identities = Identities::new(
            Some(keys),
            None,
            Revocations::open(state.path(), now()).unwrap(),
            Registry::open(state.path(), now()).unwrap(),
        );
        Self { policy, key, identities, _state: state }
    }

    fn token(&self, id: &str, policy: &str) -> String {
        let claims = json!({
            "sub": "box", "policy": policy, "aud": "egret", "exp": now() + 60, "nbf": now(), "iat": now(),
            "jti": id,
        });
        sign(&serde_json::from_value(claims).unwrap(), &self.key).unwrap()
    }

    fn identify(&self, source: &str, values: &[&str]) -> Result<Client, Unidentified> {
        let values = values.iter().map(|value| value.as_bytes());
        let credentials = Credentials::read(values);
        self.identities.identify(&self.policy, source.parse().unwrap(), None, credentials)
    }

    fn reason(&self, source: &str, values: &[&str]) -> (Reason, String) {
        let refusal = self.identify(source, values).unwrap_err().refusal;
        (refusal.reason, refusal.detail.as_deref().unwrap_or_default().to_owned())
    }
}

#[test]
fn without_credentials_the_source_decides() {
    let world = World::new();
    assert_eq!(&*world.identify("127.0.0.1", &[]).unwrap().sandbox, "by-source");
    assert_eq!(&*world.identify("::ffff:127.0.0.1", &[]).unwrap().sandbox, "by-source");
    assert_eq!(world.reason("127.0.0.2", &[]).0, Reason::IdentityRequired);
    assert_eq!(world.reason("127.0.0.3", &[]).0, Reason::IdentityRequired);
}

#[test]
fn with_credentials_they_alone_decide() {
    let world = World::new();
    let token = world.token("t", "main");
    for source in ["127.0.0.1", "127.0.0.2", "127.0.0.3"] {
        let client = world.identify(source, &[&format!("Bearer {token}")]).unwrap();
        assert_eq!(&*client.sandbox, "box");
        assert!(matches!(client.identity, Identity::Token(_)));
    }
    for bad in ["", "Bearer x.y.z", "Basic !!!!", "Negotiate abc"] {
        assert_eq!(world.reason("127.0.0.1", &[bad]).0, Reason::IdentityRejected, "{bad}");
    }
    let value = format!("Bearer {token}");
    assert_eq!(world.reason("127.0.0.1", &[&value, &value]).0, Reason::IdentityRejected);
    let (reason, detail) = world.reason("127.0.0.1", &[&format!("Bearer {}", world.token("t", "gone"))]);
    assert_eq!(reason, Reason::IdentityRejected);
    assert_eq!(detail, "the token names a policy that does not exist: sandbox box, token t");
}

#[test]
fn while_tokens_are_off_credentials_are_refused() {
    let world = World::new();
    let value = format!("Bearer {}", world.token("t", "main"));
    let client = world.identify("127.0.0.1", &[&value]).unwrap();
    assert!(world.identities.still_hold(&client));
    world.identities.replace_keys(None);
    assert!(!world.identities.still_hold(&client));
    assert_eq!(world.reason("127.0.0.1", &[&value]).0, Reason::IdentityRejected);
    assert_eq!(&*world.identify("127.0.0.1", &[]).unwrap().sandbox, "by-source");
}

#[test]
fn a_revoked_token_no_longer_holds() {
    let world = World::new();
    let values = ["one", "two"].map(|id| format!("Bearer {}", world.token(id, "main")));
    let clients = values.each_ref().map(|value| world.identify("127.0.0.1", &[value]).unwrap());
    world.identities.revoke(Revocation::Jti("one".to_owned())).unwrap();
    assert_eq!(clients.each_ref().map(|client| world.identities.still_hold(client)), [false, true]);
    let (reason, detail) = world.reason("127.0.0.1", &[&values[0]]);
    assert_eq!(
        (reason, &*detail),
        (Reason::IdentityRejected, "the token has been revoked: sandbox box, token one")
    );
    world.identities.revoke(Revocation::Sandbox("box".to_owned())).unwrap();
    assert!(!world.identities.still_hold(&clients[1]));
    let by_source = world.identify("127.0.0.1", &[]).unwrap();
    assert!(world.identities.still_hold(&by_source));
}

#[test]
fn guessing_is_slowed_down_and_good_clients_are_not() {
    let world = World::new();
    let good = format!("Bearer {}", world.token("t", "main"));
    world.identify("127.0.0.1", &[&good]).unwrap();
    let reasons: Vec<_> =
        (0..30).map(|n| world.reason("127.0.0.1", &[&format!("Bearer a.b.{n}")]).0).collect();
    let rejected = reasons.iter().filter(|reason| **reason == Reason::IdentityRejected).count();
    assert_eq!((rejected, reasons[29]), (20, Reason::RateLimited));
    let unidentified = world.identify("127.0.0.1", &["Basic !!!!"]).unwrap_err();
    assert!(unidentified.retry_after.is_some_and(|left| !left.is_zero()));
    assert!(world.identify("127.0.0.1", &[&good]).is_ok());
    assert!(world.identify("127.0.0.1", &[]).is_ok(), "without credentials there is nothing to guess");
    assert!(world.identify("127.0.0.9", &[&good]).is_ok());
}
