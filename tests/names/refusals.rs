//! What is refused: nothing of it reaches a DNS server.

use serde_json::json;

use crate::asker::{Connection, Question, ask, ask_from};
use crate::support::dns_message::{A, CNAME, HTTPS};
use crate::support::dns_server::Answer;
use crate::{BOTH, TREE, at, building, egret, last, records, server, upstream};

#[test]
fn a_name_that_may_not_be_reached_is_never_looked_up() {
    let dns = server(&[]);
    let policy = format!(
        "{TREE}[[policy.p.deny]]\ndomains = [\"no.allowed.test\"]\n\
         [[policy.p.allow]]\ndomains = [\"port.test\"]\nports = [8443]\n\
         [[policy.p.deny]]\ndomains = [\"port.test\"]\nports = [\"8000-9000\"]\n\
         [[policy.p.deny]]\ndomains = [\"half.allowed.test\"]\nports = [443]\n"
    );
    let egret = egret(&dns, &policy);
    for (name, reason) in [
        ("other.test", "domain_not_allowed"),
        ("www.denied.test", "domain_denied"),
        ("no.allowed.test", "domain_denied"),
        ("port.test", "domain_denied"),
        ("allowed.test.other.test", "domain_not_allowed"),
        ("notallowed.test", "domain_not_allowed"),
        ("metadata.google.internal", "domain_denied"),
        ("localhost", "domain_not_allowed"),
        ("data.stolen.tunnel.test", "domain_not_allowed"),
    ] {
        for kind in BOTH.into_iter().chain([HTTPS]) {
            let answer = ask(egret.names, &Question::new(name, kind));
            assert_eq!(answer.refusal(), (5, reason), "{name}");
            assert_eq!(answer.error.unwrap().0, 15, "{name}");
            assert!(answer.records.is_empty());
            let record = last(&egret);
            assert_eq!((&record["verdict"], &record["reason"]), (&json!("deny"), &json!(reason)));
            assert_eq!((&record["host"], &record["status"]), (&json!(name), &json!(5)));
        }
        // Who speaks no EDNS is told no more than that.
        let bare = Question::with(name, A, None);
        let answer = ask(egret.names, &bare);
        assert_eq!((answer.rcode, answer.octets.len()), (5, bare.octets.len()));
    }
    assert_eq!(upstream(&dns), []);
    // What is denied on one port is still there on another.
    assert_eq!(ask(egret.names, &Question::new("half.allowed.test", A)).rcode, 0);
}

#[test]
fn a_name_that_leads_where_it_must_not_is_refused_whole() {
    let mixed = Answer {
        a: vec![("93.184.215.14".parse().unwrap(), 60), ("10.0.0.1".parse().unwrap(), 60)],
        ..Answer::default()
    };
    let split = Answer { aaaa: vec![("fd00::1".parse().unwrap(), 60)], ..at("93.184.215.14", 60) };
    let alias = Answer {
        cname: vec![("alias.allowed.test".to_owned(), "inside.corp.test".to_owned(), 60)],
        ..at("192.168.0.1", 60)
    };
    let dns = server(&[
        ("private.allowed.test", at("10.0.0.1", 60)),
        ("loop.allowed.test", at("127.0.0.1", 60)),
        ("meta.allowed.test", at("169.254.169.254", 60)),
        ("mapped.allowed.test", at("::ffff:127.0.0.1", 60)),
        ("mixed.allowed.test", mixed),
        ("split.allowed.test", split),
        ("alias.allowed.test", alias),
    ]);
    let egret = egret(&dns, TREE);
    for (name, reason) in [
        ("private.allowed.test", "address_not_allowed"),
        ("loop.allowed.test", "address_not_allowed"),
        ("meta.allowed.test", "address_forbidden"),
        ("mapped.allowed.test", "address_forbidden"),
        ("mixed.allowed.test", "mixed_answer"),
        ("split.allowed.test", "mixed_answer"),
        ("alias.allowed.test", "address_not_allowed"),
    ] {
        for kind in BOTH.into_iter().chain([HTTPS]) {
            let answer = ask(egret.names, &Question::new(name, kind));
            assert_eq!((answer.refusal(), answer.records.len()), ((5, reason), 0), "{name}");
            assert_eq!((&last(&egret)["verdict"], &last(&egret)["reason"]), (&json!("deny"), &json!(reason)));
        }
    }
}

#[test]
fn other_types_classes_and_operations_are_refused() {
    let dns = server(&[]);
    let egret = egret(&dns, TREE);
    // NS, CNAME, SOA, NULL, PTR, MX, TXT, SRV, NAPTR, DS, SVCB, AXFR, ANY, CAA, of private use
    for kind in [2, CNAME, 6, 10, 12, 15, 16, 33, 35, 43, 64, 252, 255, 257, 65400] {
        let answer = ask(egret.names, &Question::new("www.allowed.test", kind));
        assert_eq!(answer.refusal(), (5, "bad_request"), "type {kind}");
        assert_eq!(answer.error.unwrap().0, 21);
    }
    assert_eq!(last(&egret)["qtype"], "TYPE65400");
    assert_eq!(last(&egret)["detail"], "type TYPE65400 is not answered");
    assert_eq!(last(&egret)["host"], "www.allowed.test");
    let class = |class: u8| Question::with("www.allowed.test", A, None).patched(33, &[class]);
    assert_eq!(ask(egret.names, &class(3)).rcode, 5);
    assert_eq!(ask(egret.names, &class(255)).rcode, 5);
    for opcode in [1_u8, 2, 4, 5, 6, 15] {
        let question = Question::new("www.allowed.test", A).patched(2, &[opcode << 3]);
        assert_eq!(ask(egret.names, &question).rcode, 4, "operation {opcode}");
    }
    let version = Question::new("www.allowed.test", A);
    let at = version.octets.len() - 5;
    assert_eq!(ask(egret.names, &version.patched(at, &[1])).rcode, 16);
    assert_eq!(upstream(&dns), []);
    assert_eq!(records(&egret).len(), 15 + 2 + 6 + 1);
    assert!(records(&egret).iter().all(|record| record["reason"] == "bad_request"));
}

#[test]
fn odd_names_are_no_names() {
    let dns = server(&[]);
    let egret = egret(&dns, "default = \"allow\"\n");
    for (name, shown) in [
        ("", "."),
        ("2130706433", "2130706433"),
        ("0x7f.1", "0x7f.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("a b.test", "a b.test"),
        ("*.test", "*.test"),
        ("a@b.test", "a@b.test"),
        ("a%2eb.test", "a%2eb.test"),
    ] {
        let answer = ask(egret.names, &Question::new(name, A));
        assert_eq!(answer.refusal(), (5, "bad_request"), "{name}");
        let record = last(&egret);
        assert_eq!(record["host"], shown, "{name}");
    }
    for odd in [b"a.b", b"a\0b", b"a\xffb"] {
        let question = Question::new("xxx.test", A).patched(13, odd);
        assert_eq!(ask(egret.names, &question).refusal(), (5, "bad_request"));
    }
    assert_eq!(upstream(&dns), []);
}

#[test]
fn who_is_nobody_is_told_nothing() {
    let dns = server(&[]);
    let key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    let token = "[identity]\ntoken_keys = [\"token.pub\"]\n[[sandbox]]\nid = \"held\"\nsource = [\"127.0.0.3\"]\npolicy = \"p\"\nauth = \"token\"\n";
    let config = token.to_owned() + &crate::config(&dns, TREE);
    let egret = crate::support::egret::Egret::with(config)
        .names("127.0.0.1:0".parse().unwrap())
        .file("token.pub", key)
        .start();
    let question = Question::new("www.allowed.test", A);
    for source in ["127.0.0.2", "127.0.0.3"] {
        let answer = ask_from(source.parse().unwrap(), egret.names, &question).unwrap();
        assert_eq!((answer.rcode, answer.error, answer.records.len()), (5, None, 0), "{source}");
        // Nothing is gained by asking in another's name.
        assert!(answer.octets.len() <= question.octets.len());
        let record = last(&egret);
        assert_eq!(record["reason"], "identity_required", "{source}");
        assert!(record.get("sandbox").is_none());
    }
    assert_eq!(upstream(&dns), []);
    assert_eq!(ask(egret.names, &question).rcode, 0);
}

#[test]
fn a_reload_counts_for_the_next_question() {
    let dns = server(&[]);
    let egret = egret(&dns, TREE);
    let question = Question::new("www.allowed.test", A);
    assert_eq!(ask(egret.names, &question).rcode, 0);
    egret.configure(&crate::config(&dns, ""));
    assert_eq!(egret.reload().status, 200);
    assert_eq!(ask(egret.names, &question).refusal(), (5, "domain_not_allowed"));
}

#[test]
fn nobody_reaches_the_listener_through_the_proxy() {
    let dns = server(&[]);
    let policy = "[[policy.p.allow]]\naddresses = [\"127.0.0.0/8\"]\nports = [\"1-65535\"]\n";
    let egret = building(&dns, policy).start();
    let mut client = crate::support::client::Client::connect(egret.proxy);
    client.send(format!("CONNECT {} HTTP/1.1\r\nHost: {}\r\n\r\n", egret.names, egret.names));
    let response = client.final_response("CONNECT");
    assert_eq!(response.status, 403);
    let record = egret.events("decision").pop().unwrap();
    assert_eq!(record["reason"], "address_forbidden");
}

#[test]
fn what_can_not_be_recorded_is_not_answered() {
    let dns = server(&[]);
    let egret = building(&dns, TREE).audit("file = \"/dev/full\"\n").start();
    let question = Question::new("www.allowed.test", A);
    let answer = ask(egret.names, &question);
    assert_eq!((answer.refusal(), answer.records.len()), ((2, "audit_unavailable"), 0));
    let answer = Connection::open(egret.names).ask(&question);
    assert_eq!(answer.refusal(), (2, "audit_unavailable"));
}
