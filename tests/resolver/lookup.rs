//! What the resolver asks, and what it takes from answers.

use std::net::IpAddr;
use std::time::Duration;

use crate::scripted::*;
use egret::resolve::{DnsServers, ResolveError, Resolver, ResolverSettings};

fn settings(servers: &[&DnsServer]) -> ResolverSettings {
    let specs = servers.iter().map(|server| server.addr.to_string().parse().unwrap()).collect();
    ResolverSettings { servers: DnsServers::List(specs), ..ResolverSettings::default() }
}

fn resolver(server: &DnsServer) -> Resolver {
    Resolver::new(settings(&[server])).unwrap()
}

async fn addresses(resolver: &Resolver, name: &str) -> Result<Vec<String>, ResolveError> {
    let answer = resolver.lookup(name).await?;
    Ok(answer.addresses.iter().map(IpAddr::to_string).collect())
}

/// 192.0.2.7 for every A question, nothing for AAAA.
fn only_v4(question: &Question) -> Vec<Reply> {
    match question.kind {
        A => records([address(&question.name, "192.0.2.7", 300)]),
        _ => nothing(),
    }
}

/// The same after 200 ms, and not to be kept.
fn slow_v4(question: &Question) -> Vec<Reply> {
    match question.kind {
        A => vec![Reply {
            answers: vec![address(&question.name, "192.0.2.7", 0)],
            delay: Duration::from_millis(200),
            ..Reply::default()
        }],
        _ => nothing(),
    }
}

#[tokio::test]
async fn one_absolute_question_for_each_family() {
    let server = DnsServer::start(only_v4);
    assert_eq!(addresses(&resolver(&server), "a.test").await.unwrap(), ["192.0.2.7"]);
    let mut asked = server.answerer.questions();
    asked.sort_by_key(|question| question.kind);
    let expected = |kind| Question {
        name: "a.test.".into(),
        kind,
        transport: "udp",
        recursion_desired: true,
        edns: true,
        earlier: 0,
    };
    assert_eq!(asked, [expected(A), expected(AAAA)]);
}

#[tokio::test]
async fn single_labels_and_odd_labels_are_asked_as_they_are() {
    let server = DnsServer::start(only_v4);
    let resolver = resolver(&server);
    for name in ["intranet", "_443._tcp.a.test", "-a-.b_.test", "1.2.3.4.in-addr.test"] {
        assert_eq!(addresses(&resolver, name).await.unwrap(), ["192.0.2.7"], "{name}");
        assert_eq!(server.count(&format!("{name}."), A), 1, "{name}");
    }
    assert_eq!(server.answerer.questions().len(), 8);
}

#[tokio::test]
async fn names_that_no_question_can_hold_fail_without_one() {
    let server = DnsServer::start(only_v4);
    let resolver = resolver(&server);
    for name in ["", "a..test", &"a".repeat(64), &"a.".repeat(200)] {
        assert!(matches!(resolver.lookup(name).await, Err(ResolveError::Failed(_))), "{name:?}");
    }
    assert!(server.answerer.questions().is_empty());
}

#[tokio::test]
async fn both_families_ipv6_first_each_address_once() {
    let server = DnsServer::start(|question| match question.kind {
        A => records(["192.0.2.2", "192.0.2.1", "192.0.2.2"].map(|ip| address(&question.name, ip, 60))),
        _ => records([address(&question.name, "2001:db8::1", 60)]),
    });
    let found = addresses(&resolver(&server), "a.test").await.unwrap();
    assert_eq!(found, ["2001:db8::1", "192.0.2.2", "192.0.2.1"]);
}

#[tokio::test]
async fn large_answers_come_whole_over_tcp() {
    let server = DnsServer::start(|question| match (question.kind, question.transport) {
        (A, "udp") => vec![Reply {
            truncated: true,
            answers: vec![address(&question.name, "192.0.2.99", 60)],
            ..Reply::default()
        }],
        (A, _) => {
            records((0..400).map(|n| address(&question.name, &format!("198.51.{}.{}", n / 256, n % 256), 60)))
        }
        _ => nothing(),
    });
    let found = addresses(&resolver(&server), "a.test").await.unwrap();
    assert_eq!(found.len(), 400);
    assert!(!found.contains(&"192.0.2.99".into()));
}

#[tokio::test]
async fn aliases_are_followed_in_the_answer() {
    let server = DnsServer::start(|question| match question.kind {
        A => records([
            // Out of order on purpose; the addresses beside the chain are not the name's.
            address("pop.cdn.test", "192.0.2.7", 60),
            cname("edge.cdn.test", "POP.cdn.test", 60),
            cname("a.test", "edge.cdn.test", 60),
            address("edge.other.test", "192.0.2.66", 60),
        ]),
        _ => nothing(),
    });
    assert_eq!(addresses(&resolver(&server), "a.test").await.unwrap(), ["192.0.2.7"]);
}

#[tokio::test]
async fn an_alias_without_its_target_is_asked_for() {
    let server = DnsServer::start(|question| match (&*question.name, question.kind) {
        ("a.test.", _) => records([cname("a.test", "b.test", 60)]),
        ("b.test.", A) => records([address("b.test", "192.0.2.7", 60)]),
        _ => nothing(),
    });
    assert_eq!(addresses(&resolver(&server), "a.test").await.unwrap(), ["192.0.2.7"]);
    assert_eq!((server.count("a.test.", A), server.count("b.test.", A)), (1, 1));
}

#[tokio::test]
async fn loops_and_long_chains_fail_after_bounded_work() {
    let server = DnsServer::start(|question| match &*question.name {
        "loop.test." => records([cname("loop.test", "b.test", 60), cname("b.test", "loop.test", 60)]),
        "self.test." => records([cname("self.test", "self.test", 60)]),
        "fork.test." => records([cname("fork.test", "b.test", 60), cname("fork.test", "c.test", 60)]),
        "long.test." => {
            let owner = |n: u32| {
                if n == 0 { "long.test".into() } else { format!("c{n}.test") }
            };
            let chain = (0..20).map(|n| cname(&owner(n), &owner(n + 1), 60));
            records(chain.chain([address("c20.test", "192.0.2.7", 60)]))
        }
        // An endless chain, one step a message.
        name => records([cname(name, &format!("x{name}"), 60)]),
    });
    let resolver = resolver(&server);
    for (name, cause) in [
        ("loop.test", "loop"),
        ("self.test", "loop"),
        ("fork.test", "forks"),
        ("long.test", "16 steps"),
        ("endless.test", "16 steps"),
    ] {
        match addresses(&resolver, name).await {
            Err(ResolveError::Failed(text)) => assert!(text.contains(cause), "{name}: {text}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    for name in ["loop.test.", "self.test.", "fork.test.", "long.test."] {
        assert_eq!(server.count(name, A), 1, "{name}");
    }
    let endless = server.answerer.questions().iter().filter(|q| q.name.ends_with("endless.test.")).count();
    assert!(endless <= 16, "{endless} questions");
}

#[tokio::test]
async fn only_the_answer_section_and_the_right_owner_count() {
    let server = DnsServer::start(|question| match (&*question.name, question.kind) {
        ("owner.test.", A) => records([address("evil.test", "127.0.0.1", 60)]),
        ("glue.test.", A) => vec![Reply {
            authorities: vec![soa("test", 60, 60)],
            additionals: vec![address("glue.test", "127.0.0.1", 60)],
            ..Reply::default()
        }],
        // HTTPS record (type 65) with an address hint (RFC 9460).
        ("hint.test.", A) => records([record("hint.test", 65, IN, 60, &[0, 1, 0, 0, 4, 0, 4, 127, 0, 0, 1])]),
        // An IPv6 address in the answer to the IPv4 question.
        ("family.test.", A) => records([address("family.test", "::1", 60)]),
        _ => nothing(),
    });
    let resolver = resolver(&server);
    for name in ["owner.test", "glue.test", "hint.test", "family.test"] {
        let found = addresses(&resolver, name).await;
        assert_eq!(found, Err(ResolveError::NotFound { nxdomain: false }), "{name}");
    }
}

#[tokio::test]
async fn an_answer_with_a_wrong_id_is_waited_out() {
    let server = DnsServer::start(|question| match question.kind {
        A => vec![
            Reply {
                wrong_id: true,
                answers: vec![address(&question.name, "127.0.0.1", 60)],
                ..Reply::default()
            },
            Reply { answers: vec![address(&question.name, "192.0.2.7", 60)], ..Reply::default() },
        ],
        _ => nothing(),
    });
    assert_eq!(addresses(&resolver(&server), "a.test").await.unwrap(), ["192.0.2.7"]);
}

#[tokio::test]
async fn a_server_that_lowers_the_case_is_asked_over_tcp() {
    let server = DnsServer::start(|question| match question.kind {
        A => vec![Reply {
            lower_case: true,
            answers: vec![address(&question.name, "192.0.2.7", 60)],
            ..Reply::default()
        }],
        _ => vec![Reply { lower_case: true, ..Reply::default() }],
    });
    let name = "a-name-with-many-letters.test";
    assert_eq!(addresses(&resolver(&server), name).await.unwrap(), ["192.0.2.7"]);
}

#[tokio::test]
async fn answers_live_as_long_as_their_smallest_ttl() {
    let server = DnsServer::start(|question| match question.kind {
        A => records([
            cname(&question.name, "b.test", 1),
            address("b.test", &format!("192.0.2.{}", question.earlier), 300),
        ]),
        _ => nothing(),
    });
    let resolver = resolver(&server);
    assert_eq!(addresses(&resolver, "a.test").await.unwrap(), ["192.0.2.0"]);
    assert_eq!(addresses(&resolver, "a.test").await.unwrap(), ["192.0.2.0"]);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(addresses(&resolver, "a.test").await.unwrap(), ["192.0.2.1"]);
}

#[tokio::test]
async fn no_ttl_and_absurd_ttls_are_not_kept() {
    let server = DnsServer::start(|question| {
        let ttl = if question.name == "zero.test." { 0 } else { u32::MAX };
        match question.kind {
            A => records([address(&question.name, &format!("192.0.2.{}", question.earlier), ttl)]),
            _ => nothing(),
        }
    });
    let resolver = resolver(&server);
    for name in ["zero.test", "huge.test"] {
        for n in 0..3 {
            assert_eq!(addresses(&resolver, name).await.unwrap(), [format!("192.0.2.{n}")]);
            let asked = (server.count(&format!("{name}."), A), server.count(&format!("{name}."), AAAA));
            assert_eq!(asked, (n + 1, n + 1), "{name}");
        }
    }
}

#[tokio::test]
async fn the_same_name_at_the_same_time_is_asked_once() {
    let server = DnsServer::start(slow_v4);
    let resolver = std::sync::Arc::new(resolver(&server));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let resolver = std::sync::Arc::clone(&resolver);
        tasks.spawn(async move { addresses(&resolver, "a.test").await });
    }
    // One that gives up takes nobody with it; the others came first.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let impatient = tokio::time::timeout(Duration::from_millis(50), resolver.lookup("a.test")).await;
    assert!(impatient.is_err());
    for found in tasks.join_all().await {
        assert_eq!(found.unwrap(), ["192.0.2.7"]);
    }
    assert_eq!((server.count("a.test.", A), server.count("a.test.", AAAA)), (1, 1));
}

#[tokio::test]
async fn more_names_at_once_than_turns() {
    let server = DnsServer::start(only_v4);
    let settings = ResolverSettings { timeout: Duration::from_secs(120), ..settings(&[&server]) };
    let resolver = std::sync::Arc::new(Resolver::new(settings).unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..1500 {
        let resolver = std::sync::Arc::clone(&resolver);
        tasks.spawn(async move { addresses(&resolver, &format!("n{n}.test")).await });
    }
    for found in tasks.join_all().await {
        assert_eq!(found.unwrap(), ["192.0.2.7"]);
    }
}

#[tokio::test]
async fn a_waiter_takes_over_from_one_that_gives_up() {
    let server = DnsServer::start(slow_v4);
    let resolver = std::sync::Arc::new(resolver(&server));
    let other = std::sync::Arc::clone(&resolver);
    let first = tokio::spawn(async move { other.lookup("a.test").await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let other = std::sync::Arc::clone(&resolver);
    let second = tokio::spawn(async move { addresses(&other, "a.test").await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    first.abort();
    assert_eq!(second.await.unwrap().unwrap(), ["192.0.2.7"]);
}

#[tokio::test]
async fn fixed_names_and_localhost_ask_nobody() {
    let server = DnsServer::start(only_v4);
    let mut settings = settings(&[&server]);
    settings.hosts.insert("origin.test".into(), vec!["127.0.0.1".parse().unwrap()]);
    settings.hosts.insert("fixed.localhost".into(), vec!["192.0.2.1".parse().unwrap()]);
    settings.hosts.insert("none.test".into(), Vec::new());
    let resolver = Resolver::new(settings).unwrap();
    assert_eq!(addresses(&resolver, "origin.test").await.unwrap(), ["127.0.0.1"]);
    assert_eq!(addresses(&resolver, "fixed.localhost").await.unwrap(), ["192.0.2.1"]);
    assert_eq!(addresses(&resolver, "none.test").await, Err(ResolveError::NotFound { nxdomain: false }));
    for name in ["localhost", "a.b.localhost"] {
        assert_eq!(addresses(&resolver, name).await.unwrap(), ["::1", "127.0.0.1"], "{name}");
    }
    assert!(server.answerer.questions().is_empty());
    assert_eq!(addresses(&resolver, "notlocalhost").await.unwrap(), ["192.0.2.7"]);
}
