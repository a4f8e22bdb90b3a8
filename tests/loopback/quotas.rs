//! Limits of a sandbox, as its clients meet them.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::setup::{config, config_asking, get, name_server};
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::http1::Response;
use crate::support::origin::Origin;
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(10);

/// `limits` for each client address on its own, in front of this origin as `a.test`.
fn limited(origin: &Origin, limits: &str) -> Egret {
    let text = config(&["a.test"], origin.port()).replace("\"box\"", "\"box-{ip}\"");
    Egret::with(format!("{text}\n[policy.main.limits]\n{limits}\n")).start()
}

fn connect(authority: &str) -> String {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

fn ask(egret: &Egret, source: &str, method: &str, request: impl AsRef<[u8]>) -> (Response, Client) {
    let mut client = Client::connect_from(source, egret.proxy);
    client.send(request);
    (client.response(method), client)
}

/// A 429 in every detail; the seconds to wait.
fn refused(answer: &Response, reason: &str) -> u64 {
    assert_eq!((answer.status, answer.get("x-egret-reason")), (429, Some(reason)), "{answer:?}");
    assert_eq!(answer.phrase, format!("egret {reason}"));
    let problem: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&problem["reason"], &problem["status"]), (&json!(reason), &json!(429)));
    answer.get("retry-after").unwrap().parse().unwrap()
}

#[test]
fn a_rate_holds_for_tunnels_and_comes_back_in_spite_of_refusals() {
    let origin = Origin::echoing();
    let egret = limited(&origin, "requests = \"1/2s burst 3\"");
    let authority = format!("a.test:{}", origin.port());
    for _ in 0..3 {
        assert_eq!(ask(&egret, "127.0.0.1", "CONNECT", connect(&authority)).0.status, 200);
    }
    let began = Instant::now();
    let mut refusals = 0;
    // Refused attempts must not push the moment away at which one succeeds again.
    loop {
        let (answer, mut client) = ask(&egret, "127.0.0.1", "CONNECT", connect(&authority));
        if answer.status == 200 {
            break;
        }
        let wait = refused(&answer, "rate_limited");
        assert!((1..=2).contains(&wait), "Retry-After: {wait}");
        assert!(client.until_end().is_empty());
        assert!(began.elapsed() < LIMIT, "still refused after {refusals} attempts");
        refusals += 1;
        if refusals == 1 {
            assert_eq!(
                ask(&egret, "127.0.0.2", "CONNECT", connect(&authority)).0.status,
                200,
                "another sandbox"
            );
        }
    }
    assert!(refusals > 0);
    let limited = |r: &&Value| r["reason"] == "rate_limited" && r["sandbox"] == "box-127.0.0.1";
    assert_eq!(egret.events("decision").iter().filter(limited).count(), refusals);
}

#[test]
fn slots_come_back_after_tunnels_and_after_failed_dials() {
    let origin = Origin::echoing();
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port() // free again at once, and nobody listens there
    };
    let ports = format!("ports = [{nobody}, {}]", origin.port());
    let text = config(&["a.test"], 1).replace("\"box\"", "\"box-{ip}\"").replace("ports = [1]", &ports);
    let egret = Egret::with(format!("{text}\n[policy.main.limits]\nconnections = 2\n")).start();
    let (there, absent) = (format!("a.test:{}", origin.port()), format!("a.test:{nobody}"));
    let open = || ask(&egret, "127.0.0.1", "CONNECT", connect(&there));
    for round in 0..3 {
        for _ in 0..5 {
            assert_eq!(ask(&egret, "127.0.0.1", "CONNECT", connect(&absent)).0.status, 502, "round {round}");
        }
        let tunnels = [open(), open()];
        assert!(tunnels.iter().all(|(answer, _)| answer.status == 200), "round {round}: {tunnels:?}");
        refused(&open().0, "too_many_connections");
        refused(&ask(&egret, "127.0.0.1", "GET", get(&there, "/")).0, "too_many_connections");
        assert_eq!(ask(&egret, "127.0.0.2", "CONNECT", connect(&there)).0.status, 200, "another sandbox");
        drop(tunnels);
        let closed = || egret.events("close").iter().filter(|r| r["reason"] == "allowed").count();
        wait_for("the ends of the tunnels", LIMIT, || closed() >= (round + 1) * 3);
    }
}

#[test]
fn requests_that_race_for_the_last_places_do_not_pass_together() {
    let origin = Origin::echoing();
    let egret = limited(&origin, "requests = \"20/h\"\nconnections = 15");
    let authority = format!("a.test:{}", origin.port());
    let statuses: Vec<_> = thread::scope(|scope| {
        let racers: Vec<_> = (0..64)
            .map(|_| scope.spawn(|| ask(&egret, "127.0.0.1", "CONNECT", connect(&authority))))
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });
    let count = |status: u16| statuses.iter().filter(|(answer, _)| answer.status == status).count();
    assert_eq!((count(200), count(429)), (15, 49));
    assert_eq!(origin.accepted(), 15);
    drop(statuses);
    wait_for("the ends of the tunnels", LIMIT, || egret.events("close").len() == 15);
    let after: Vec<_> =
        (0..8).map(|_| ask(&egret, "127.0.0.1", "CONNECT", connect(&authority)).0.status).collect();
    assert_eq!(after, [[200; 5].as_slice(), &[429; 3]].concat(), "five of twenty are left of the rate");
}

#[test]
fn hosts_beyond_the_quota_are_refused_before_they_are_looked_up() {
    let (origin, dns) = (Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), name_server());
    let text = config_asking(&dns, origin.port()) + "\n[policy.main.limits]\ndomains = \"2/h\"\n";
    let egret = Egret::with(text).start();
    let mut client = Client::connect(egret.proxy);
    let mut ask = |host: &str| {
        client.send(get(&format!("{host}:{}", origin.port()), "/"));
        client.response("GET")
    };
    assert_eq!(ask("a.origin.test").status, 200);
    assert_eq!(ask("denied.elsewhere").status, 403, "what was not allowed does not count");
    assert_eq!(ask("b.origin.test").status, 200);
    let wait = refused(&ask("c.origin.test"), "quota_exceeded");
    assert!((3500..=3600).contains(&wait), "Retry-After: {wait}");
    assert!(dns.queries().iter().all(|asked| asked.name != "c.origin.test"));
    assert_eq!((ask("A.origin.test.").status, ask("b.origin.test").status), (200, 200), "known ones pass");
}

#[test]
fn a_quota_of_bytes_cuts_what_is_open_and_counts_to_the_byte() {
    let origin = Origin::echoing();
    let authority = format!("a.test:{}", origin.port());
    for (limits, up, down) in
        [("bytes_up = \"100kB/h\"", 100_000, None), ("bytes = \"150kB/h\"", 75_000, Some(75_000))]
    {
        let egret = limited(&origin, limits);
        let (answer, mut client) = ask(&egret, "127.0.0.1", "CONNECT", connect(&authority));
        assert_eq!(answer.status, 200);
        // Step by step, so that both directions are used alike.
        for _ in 0..up / 5000 - 1 {
            client.send([7; 5000]);
            assert_eq!(client.exactly(5000), [7; 5000]);
        }
        client.send([7; 20_000]);
        client.until_end();
        wait_for("the close record", LIMIT, || !egret.events("close").is_empty());
        let close = egret.events("close").remove(0);
        assert_eq!(close["reason"], "quota_exceeded", "{close}");
        let (sent, got) = (close["bytes_up"].as_u64().unwrap(), close["bytes_down"].as_u64().unwrap());
        match down {
            None => assert_eq!(sent, up, "{close}"),
            Some(down) => assert_eq!(sent + got, up + down, "{close}"),
        }
        refused(&ask(&egret, "127.0.0.1", "CONNECT", connect(&authority)).0, "quota_exceeded");
        assert_eq!(ask(&egret, "127.0.0.2", "CONNECT", connect(&authority)).0.status, 200, "another sandbox");
    }
}

#[test]
fn a_body_that_no_longer_fits_is_a_refusal_unless_its_beginning_has_left() {
    let origin = Origin::start(|visit| {
        while let Some(request) = visit.request()? {
            let length: usize = request.path()[1..].parse().unwrap();
            let body = "z".repeat(length);
            visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"))?;
        }
        Ok(())
    });
    let authority = format!("a.test:{}", origin.port());
    for limit in ["bytes_down", "bytes"] {
        let egret = limited(&origin, &format!("{limit} = \"100/h\""));
        let get = |length: usize| get(&authority, &format!("/{length}"));
        assert_eq!(ask(&egret, "127.0.0.1", "GET", get(60)).0.body.len(), 60);
        let mut client = Client::connect_from("127.0.0.1", egret.proxy);
        client.send(get(41).replacen("\r\n", "\r\nConnection: close\r\n", 1));
        let answer = String::from_utf8(client.until_end()).unwrap();
        wait_for("the close record", LIMIT, || egret.events("close").len() == 2);
        let close = egret.events("close").remove(1);
        assert_eq!(close["reason"], "quota_exceeded");
        if answer.starts_with("HTTP/1.1 200 ") {
            // Its head had left before the body was there.
            assert!(answer.matches('z').count() <= 40, "{answer}");
        } else {
            assert!(answer.starts_with("HTTP/1.1 429 egret quota_exceeded\r\n"), "{answer}");
            let wait = answer.split("\r\nRetry-After: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            assert!(wait.is_some_and(|text| (3500..=3600).contains(&text.parse().unwrap())), "{answer}");
            assert_eq!((&close["status"], &close["bytes_down"]), (&json!(429), &json!(0)));
        }
        refused(&ask(&egret, "127.0.0.1", "GET", get(0)).0, "quota_exceeded");
    }
}
