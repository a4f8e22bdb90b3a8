//! Who a request comes from, by certificate, token and address together.

use crate::pki::{Pair, Pki, printed, uri};
use crate::setup::{answering, connect, decision, front, get, reason, rules};
use crate::support::egret::Egret;

/// Certificate, token and address in every combination, and who that makes of the client.
#[test]
fn every_combination_has_one_answer() {
    let (origin, pki) = (answering(), Pki::new());
    printed(&["token", "keygen", "--out", &pki.text("token")]);
    let token = |sandbox: &str| {
        let key = pki.text("token.key");
        let token = printed(&["token", "mint", "--key", &key, "--sandbox", sandbox, "--policy", "main"]);
        format!("Proxy-Authorization: Bearer {}\r\n", token.trim())
    };
    let keys = format!("[identity]\ntoken_keys = [{:?}]\n\n{}", pki.path("token.pub"), rules(&origin));
    let egret = Egret::with(keys).tls(&crate::setup::lines(&pki)).start();

    let build: Pair = pki.client("build-7");
    let wants = pki.client("wants-1");
    let unknown = pki.client("stranger");
    let nameless = pki.sign(|params| params.subject_alt_names = vec![uri("build-1"), uri("build-2")]);
    let bad = "Proxy-Authorization: Bearer x.y.z\r\n".to_owned();
    let none = String::new();
    let ok = |sandbox: &'static str, identity: &'static str| Ok((sandbox, identity));
    let rejected = || Err((407, "identity_rejected"));
    let required = || Err((407, "identity_required"));
    for (number, (certificate, credentials, source, expected)) in [
        // Nothing but an address.
        (None, &none, "127.0.0.1", ok("by-source", "source")),
        (None, &none, "127.0.0.3", required()),
        (None, &none, "127.0.0.9", required()),
        // A certificate, from whatever address.
        (Some(&build), &none, "127.0.0.1", ok("build-7", "cert")),
        (Some(&build), &none, "127.0.0.3", ok("build-7", "cert")),
        (Some(&build), &none, "127.0.0.9", ok("build-7", "cert")),
        (Some(&wants), &none, "127.0.0.3", ok("wants-1", "cert")),
        (Some(&wants), &none, "127.0.0.1", rejected()),
        (Some(&unknown), &none, "127.0.0.1", rejected()),
        (Some(&nameless), &none, "127.0.0.1", rejected()),
        // A token alone.
        (None, &token("build-7"), "127.0.0.1", ok("build-7", "token")),
        (None, &token("other"), "127.0.0.9", ok("other", "token")),
        (None, &bad, "127.0.0.1", rejected()),
        // Both, which have to agree; then the token decides.
        (Some(&build), &token("build-7"), "127.0.0.9", ok("build-7", "token")),
        (Some(&unknown), &token("stranger"), "127.0.0.9", ok("stranger", "token")),
        (Some(&build), &token("build-8"), "127.0.0.1", rejected()),
        (Some(&nameless), &token("build-1"), "127.0.0.1", rejected()),
        (Some(&build), &bad, "127.0.0.1", rejected()),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = connect(&egret, &pki, source, certificate);
        client.send(get(&origin, credentials));
        let answer = client.response("GET");
        let record = decision(&egret, number + 1);
        match expected {
            Ok((sandbox, identity)) => {
                assert_eq!(answer.status, 200, "row {number}: {record}");
                assert_eq!(
                    (&record["sandbox"], &record["identity"]),
                    (&sandbox.into(), &identity.into()),
                    "row {number}: {record}"
                );
            }
            Err(refused) => {
                assert_eq!(reason(&answer), refused, "row {number}: {record}");
                assert!(record.get("sandbox").is_none(), "row {number}: {record}");
                if certificate.is_some() {
                    let (rest, end) = client.until_end();
                    assert!(rest.is_empty() && end.is_ok(), "row {number}: {end:?}");
                }
            }
        }
    }
}

#[test]
fn without_token_keys_a_bad_certificate_is_a_403() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).start();
    let mut client = connect(&egret, &pki, "127.0.0.1", Some(&pki.client("stranger")));
    client.send(get(&origin, ""));
    assert_eq!(reason(&client.response("GET")), (403, "identity_rejected"));
    let record = decision(&egret, 1);
    assert_eq!(record["detail"], "no entry is for certificates of stranger from this address");
}

/// Who sent the last request over a connection says nothing: its certificate is judged again.
#[test]
fn an_expired_certificate_ends_its_connection() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).start();
    let pair = pki.valid("build-7", -100, 3);
    let expires = crate::pki::now() + 3;
    let mut client = connect(&egret, &pki, "127.0.0.1", Some(&pair));
    client.send(get(&origin, ""));
    assert_eq!(client.response("GET").status, 200);
    while crate::pki::now() <= expires {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    client.send(get(&origin, ""));
    assert_eq!(reason(&client.response("GET")), (403, "identity_rejected"));
    assert_eq!(decision(&egret, 2)["detail"], "the certificate has expired");
    let (rest, end) = client.until_end();
    assert!(rest.is_empty() && end.is_ok(), "{end:?}");
}
