//! Verdicts: the same however a request arrives, for whoever asks beside it, and as `explain` says.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::setup::{NAME, config, config_asking, get, name_server, small};
use crate::support::client::Client;
use crate::support::dns_server::Answer;
use crate::support::egret::{BINARY, Egret};
use crate::support::origin::Origin;
use crate::support::wait_for;

#[test]
fn how_a_head_arrives_changes_nothing() {
    let origin = Origin::echoing();
    let port = origin.port();
    let egret = Egret::with(config(&[NAME], port)).start();
    for (host, version, fields) in [
        (NAME, "1.1", ""),
        (NAME, "1.0", ""),
        (NAME, "1.1", "Via: 1.1 other\r\nForwarded: for=127.0.0.9\r\nX-Forwarded-For: 10.0.0.1\r\n"),
        ("elsewhere.test", "1.1", ""),
        (
            "elsewhere.test",
            "1.1",
            "Via: 1.1 other\r\nX-Sandbox-Id: other\r\nX-Forwarded-Host: origin.test\r\n",
        ),
    ] {
        let head = format!("CONNECT {host}:{port} HTTP/{version}\r\nHost: {host}:{port}\r\n{fields}\r\n");
        let (bytes, before) = ([head.as_bytes(), b"early"].concat(), origin.accepted());
        for cut in 0..=bytes.len() {
            let mut client = Client::connect(egret.proxy);
            // In two pieces, cut everywhere, or octet by octet.
            let pieces =
                if cut == 0 { bytes.chunks(1).collect() } else { vec![&bytes[..cut], &bytes[cut..]] };
            for piece in pieces {
                client.send(piece);
            }
            let answer = client.response("CONNECT");
            if host == NAME {
                assert_eq!(
                    (answer.status, answer.phrase.as_str()),
                    (200, "Connection established"),
                    "{head}"
                );
                assert_eq!(client.exactly(5), b"early", "{head}");
            } else {
                assert_eq!(
                    (answer.status, answer.phrase.as_str()),
                    (403, "egret domain_not_allowed"),
                    "{head}"
                );
                assert!(client.until_end().is_empty());
            }
        }
        assert_eq!(origin.accepted() == before, host != NAME, "{head}");
    }
}

#[test]
fn a_refusal_names_the_rule_and_no_secret() {
    let origin = small();
    let text = config(&[NAME], origin.port());
    let egret =
        Egret::with(format!("{text}\n[[deny]]\ndomains = [\"**.denied.test\"]\nreason = \"not this one\"\n"));
    let egret = egret.start();
    for (host, rule) in [("a.denied.test", true), ("elsewhere.test", false)] {
        let mut client = Client::connect(egret.proxy);
        client.send(format!(
            "GET http://{host}/path?token=secret1 HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer secret2\r\n\r\n"
        ));
        let answer = client.response("GET");
        let problem: Value = serde_json::from_slice(&answer.body).unwrap();
        let record = egret.events("decision").pop().unwrap();
        assert_eq!((answer.status, &problem["status"], &record["status"]), (403, &json!(403), &json!(403)));
        assert_eq!((&problem["host"], &problem["port"]), (&json!(host), &json!(80)));
        for (field, value) in
            [("reason", &problem["reason"]), ("id", &problem["request"]), ("rule", &problem["rule"])]
        {
            assert_eq!(&record[field], value, "{field}");
        }
        assert_eq!(problem["rule"].is_string(), rule, "{problem}");
        assert!(problem["hint"].as_str().is_some_and(|hint| !hint.is_empty()));
        assert_eq!(problem["title"] == json!("not this one"), rule, "{problem}");
        let all = format!("{answer:?}{problem}{record}");
        assert!(!all.contains("secret"), "{all}");
    }
}

/// A question of the corpus: method, target, the value of `Host`.
type Question = (String, String, String);

/// Questions that a client can ask word for word, and some that reach the origin.
fn questions(port: u16) -> Vec<Question> {
    let rows = include_str!("../data/targets.jsonl").lines().map(|row| serde_json::from_str(row).unwrap());
    let rows = rows.filter(|row: &Value| row["http_version"].is_null() && row["host_header"].is_string());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut all: Vec<_> =
        rows.map(|row| (text(&row["method"]), text(&row["target"]), text(&row["host_header"]))).collect();
    assert!(all.len() > 150, "{} questions", all.len());
    for host in ["a.origin.test", "denied.origin.test", "read.test", "A.ORIGIN.test.", "127.0.0.1"] {
        let authority = format!("{host}:{port}");
        all.push(("CONNECT".to_owned(), authority.clone(), authority.clone()));
        for (method, path) in [("GET", "/"), ("GET", "/v1/x?q=1"), ("GET", "/v1/%2e%2e/x"), ("POST", "/v1/x")]
        {
            all.push((method.to_owned(), format!("http://{authority}{path}"), authority.clone()));
        }
    }
    all
}

/// What there is to compare: verdict, rule and, of a denial, reason and status.
fn verdict(answer: &Value) -> Value {
    let denied = answer["verdict"] == "deny";
    let of_denial = |key: &str| if denied { answer[key].clone() } else { Value::Null };
    json!([answer["verdict"], answer["rule"], of_denial("reason"), of_denial("status")])
}

#[test]
fn explain_says_what_happens() {
    let (origin, dns) = (small(), name_server());
    let port = origin.port();
    let text = config_asking(&dns, port)
        + &format!(
            "\n[[policy.main.allow]]\ndomains = [\"example.com\", \"*.allowed.example\", \"api.example:443\"]\n\
             \n[[policy.main.allow]]\ndomains = [\"read.test\"]\naddresses = [\"127.0.0.0/8\"]\nports = [{port}]\n\
             methods = [\"GET\"]\npaths = [\"/v1/**\"]\n\
             \n[[policy.main.deny]]\ndomains = [\"denied.origin.test\"]\n"
        );
    let egret = Egret::with(text).start();
    let asked = questions(port);
    let batch: String = asked
        .iter()
        .map(|(method, target, host)| {
            json!({"sandbox": "box", "method": method, "target": target, "host_header": host}).to_string()
                + "\n"
        })
        .collect();
    let mut explain = Command::new(BINARY);
    explain.args(["explain", "--batch", "-", "--config"]).arg(egret.config_file()).current_dir(egret.dir());
    let mut explain = explain.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = explain.stdin.take().unwrap();
    let writer = thread::spawn(move || input.write_all(batch.as_bytes()));
    let output = explain.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let explained: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(explained.len(), asked.len());

    for (method, target, host) in &asked {
        let mut client = Client::connect(egret.proxy);
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response(method);
    }
    let lived = egret.events("decision");
    assert_eq!(lived.len(), asked.len(), "one decision each");
    let mut verdicts = std::collections::BTreeSet::new();
    for ((question, explained), lived) in asked.iter().zip(&explained).zip(&lived) {
        assert_eq!(verdict(explained), verdict(lived), "{question:?}\n{explained}\n{lived}");
        verdicts.insert(explained["reason"].as_str().unwrap().to_owned());
    }
    for reason in ["allowed", "bad_request", "domain_not_allowed", "domain_denied", "address_not_allowed"] {
        assert!(verdicts.contains(reason), "no question was answered {reason}: {verdicts:?}");
    }
}

#[test]
fn sandboxes_side_by_side_get_what_is_theirs() {
    let origin = small();
    let port = origin.port();
    let text = config(&[NAME], port).replace("127.0.0.0/8", "127.0.0.2/32");
    let text = format!(
        "{text}\n[[sandbox]]\nid = \"other\"\nsource = [\"127.0.0.3/32\"]\npolicy = \"nothing\"\n\n[policy.nothing]\n"
    );
    let egret = Egret::with(text).start();
    let proxy = egret.proxy;
    let clients: Vec<_> = (0..8)
        .map(|number| {
            thread::spawn(move || {
                let (source, status) = if number % 2 == 0 { ("127.0.0.2", 200) } else { ("127.0.0.3", 403) };
                let mut client = Client::connect_from(source, proxy);
                for round in 0..50 {
                    client.send(get(&format!("{NAME}:{port}"), &format!("/{number}")));
                    assert_eq!(client.response("GET").status, status, "{source}, round {round}");
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let records = egret.events("decision");
    let count = |sandbox: &str, verdict: &str, client: &str| {
        let same = |r: &&Value| {
            r["sandbox"] == sandbox
                && r["verdict"] == verdict
                && r["client"].as_str().unwrap().starts_with(client)
        };
        records.iter().filter(same).count()
    };
    assert_eq!(records.len(), 400);
    assert_eq!(count("box", "allow", "127.0.0.2:"), 200);
    assert_eq!(count("other", "deny", "127.0.0.3:"), 200);
    assert_eq!(origin.requests().len(), 200);
}

#[test]
fn one_look_up_decides_and_is_what_is_dialled() {
    let (origin, dns) = (small(), name_server());
    let from =
        |t: f64, address: &str| Answer { t, a: vec![(address.parse().unwrap(), 0)], ..Answer::default() };
    let egret = Egret::with(config_asking(&dns, origin.port())).start();
    for method in ["GET", "CONNECT"] {
        let name = format!("{}.{NAME}", method.to_lowercase());
        dns.reset([(name.clone(), vec![from(0.0, "127.0.0.1"), from(0.01, "127.0.0.2")])].into(), None);
        let authority = format!("{name}:{}", origin.port());
        let request = match method {
            "GET" => get(&authority, "/"),
            _ => format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"),
        };
        let before = origin.accepted();
        for (round, status) in [(1, 200), (2, 403)] {
            let mut client = Client::connect(egret.proxy);
            client.send(&request);
            assert_eq!(client.response(method).status, status, "{method}, round {round}");
            let asked = dns.queries().into_iter().filter(|asked| asked.name == name).count();
            assert_eq!(asked, 2 * round, "{method}: one question for each family and request");
        }
        // Not even over the connection that is still open from before.
        assert_eq!(origin.accepted(), before + 1, "{method}");
        let records = egret.events("decision");
        let [.., first, second] = records.as_slice() else { panic!("{records:?}") };
        assert_eq!((&first["addresses"], &first["dialed"]), (&json!(["127.0.0.1"]), &json!("127.0.0.1")));
        assert_eq!((&second["addresses"], &second["dialed"]), (&json!(["127.0.0.2"]), &Value::Null));
        assert_eq!(second["reason"], "address_not_allowed");
    }
}

#[test]
fn both_hops_of_a_redirect_are_in_the_file() {
    let origin = Origin::start(|visit| {
        while let Some(request) = visit.request()? {
            let next = request.path().strip_prefix("/to/").unwrap_or_default();
            let next =
                if next.is_empty() { String::new() } else { format!("Location: http://{next}/blob\r\n") };
            let status = if next.is_empty() { "200 OK" } else { "307 Temporary Redirect" };
            visit.send(format!("HTTP/1.1 {status}\r\n{next}Content-Length: 0\r\n\r\n"))?;
        }
        Ok(())
    });
    let port = origin.port();
    let egret = Egret::with(config(&[NAME, "files.test"], port)).start();
    let mut client = Client::connect(egret.proxy);
    let mut ask = |host: &str, path: &str| {
        client.send(get(&format!("{host}:{port}"), path));
        client.response("GET")
    };
    let refused = ask(NAME, "/to/cdn.test");
    assert_eq!((refused.status, refused.get("x-egret-reason")), (403, Some("redirect_denied")));
    assert_eq!(refused.get("location"), None);
    wait_for("the redirect record", Client::PATIENCE, || !egret.events("redirect").is_empty());
    let redirect = egret.events("redirect").remove(0);
    assert_eq!((&redirect["from"]["host"], &redirect["to"]["host"]), (&json!(NAME), &json!("cdn.test")));
    assert_eq!(redirect["id"], refused.get("x-egret-request").unwrap());
    assert_eq!(ask("cdn.test", "/blob").status, 403, "a client that follows all the same");

    let permitted = ask(NAME, &format!("/to/files.test:{port}"));
    assert_eq!((permitted.status, permitted.get("location").is_some()), (307, true));
    assert_eq!(ask("files.test", "/blob").status, 200);
    let decisions = egret.events("decision");
    let [first, _, third, fourth] = decisions.as_slice() else { panic!("{decisions:?}") };
    assert_eq!(first["redirected_from"], Value::Null);
    assert_eq!((&fourth["host"], &fourth["redirected_from"]), (&json!("files.test"), &third["id"]));
    assert!(decisions.iter().all(|record| record["sandbox"] == "box"));
}

#[test]
fn its_own_listeners_are_no_destination_whatever_allows_them() {
    let free = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let (proxy, control) = (free(), free());
    let ports = format!("ports = [{}, {}]", proxy.port(), control.port());
    let text = config(&[NAME], 1).replace("ports = [1]", &ports);
    let literals = format!("\n[[policy.main.allow]]\naddresses = [\"127.0.0.0/8\"]\n{ports}\n");
    let egret = Egret::with(text + &literals).listen(&[proxy], control).start();
    for port in [proxy.port(), control.port()] {
        for host in [NAME, "127.0.0.1", "[::ffff:127.0.0.1]"] {
            let authority = format!("{host}:{port}");
            let connect = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
            for (method, request) in [("GET", get(&authority, "/")), ("CONNECT", connect)] {
                let mut client = Client::connect(egret.proxy);
                client.send(request);
                let answer = client.response(method);
                assert_eq!(
                    (answer.status, answer.get("x-egret-reason")),
                    (403, Some("address_forbidden")),
                    "{method} {authority}"
                );
            }
        }
    }
    let dialled = egret.events("decision").iter().filter(|record| !record["dialed"].is_null()).count();
    assert_eq!(dialled, 0);
}
