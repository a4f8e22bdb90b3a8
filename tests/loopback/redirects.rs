//! Redirects: what is decided of each place that a response names, what is recorded of it, and which
//! request counts as its consequence.

use serde_json::{Value, json};

use crate::setup::{NAME, config, config_asking, name_server};
use crate::support::client::Client;
use crate::support::dns_server::Answer;
use crate::support::egret::Egret;
use crate::support::http1::Response;
use crate::support::origin::Origin;
use crate::support::wait_for;

/// An origin whose responses have the fields that the request asks for, and two sandboxes before it:
/// one under a policy that enforces, at 127.0.0.2 one under a policy that only observes.
struct Site {
    egret: Egret,
    _origin: Origin,
    port: u16,
}

impl Site {
    fn new() -> Self {
        let origin = Origin::start(|visit| {
            while let Some(request) = visit.request()? {
                let (status, fields) = match request.get("fields") {
                    Some(fields) => ("302 Found", fields.replace(" | ", "\r\n") + "\r\n"),
                    None => ("200 OK", String::new()),
                };
                visit.send(format!("HTTP/1.1 {status}\r\n{fields}Content-Length: 0\r\n\r\n"))?;
            }
            Ok(())
        });
        let port = origin.port();
        let text = config(&[NAME, "files.test"], port);
        let (dns, rest) = text.split_once("[[sandbox]]").unwrap();
        let observing = rest.split_once("[policy.main]").unwrap().1.replace("policy.main", "policy.seen");
        let egret = Egret::with(format!(
            "{dns}[[sandbox]]\nid = \"seen\"\nsource = [\"127.0.0.2\"]\npolicy = \"seen\"\n\n[[sandbox]]{rest}\n\
             [policy.seen]\nmode = \"observe\"{observing}\n[[policy.seen.deny]]\ndomains = [\"denied.test\"]\n"
        ));
        Self { egret: egret.start(), _origin: origin, port }
    }

    fn ask(&self, source: &str, host: &str, fields: &str) -> Response {
        let mut client = Client::connect_from(source, self.egret.proxy);
        let authority = format!("{host}:{}", self.port);
        let fields = fields.replace("PORT", &self.port.to_string());
        let extra = if fields.is_empty() { String::new() } else { format!("Fields: {fields}\r\n") };
        client.send(format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{extra}\r\n"));
        client.response("GET")
    }

    /// The ID of the latest decision, and the one that sent its client there.
    fn latest(&self) -> (String, Value) {
        let record = self.egret.events("decision").pop().unwrap();
        (record["id"].as_str().unwrap().to_owned(), record["redirected_from"].clone())
    }
}

/// Which of several places it is that takes its time makes no difference.
#[test]
fn a_place_that_is_not_decided_in_time_is_on_record() {
    let dns = name_server();
    dns.reset([("silent.origin.test".to_owned(), vec![Answer::rcode("TIMEOUT")])].into(), None);
    let slow = "Location: http://silent.origin.test:PORT/\r\n";
    for before in ["", "Location: http://quick.origin.test:PORT/\r\n"] {
        let fields = format!("{before}{slow}");
        let origin = Origin::start(move |visit| {
            let Some(request) = visit.request()? else { return Ok(()) };
            let port = request.path().trim_start_matches('/').to_owned();
            let fields = fields.replace("PORT", &port);
            visit.send(format!("HTTP/1.1 302 Found\r\n{fields}Content-Length: 0\r\n\r\n"))
        });
        let port = origin.port();
        let text = config_asking(&dns, port)
            .replace("[dns]\n", "[timeouts]\nresponse = \"1s\"\n\n[dns]\ntimeout = \"10s\"\n");
        let egret = Egret::with(text).start();
        let mut client = Client::connect(egret.proxy);
        let authority = format!("www.origin.test:{port}");
        client.send(format!("GET http://{authority}/{port} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
        let answer = client.response("GET");
        assert_eq!(answer.get("x-egret-reason"), Some("redirect_denied"), "{answer:?}");
        wait_for("its record", Client::PATIENCE, || egret.events("redirect").len() == 1);
        let record = egret.events("redirect").pop().unwrap();
        assert_eq!((&record["verdict"], &record["reason"]), (&json!("deny"), &json!("redirect_denied")));
        assert_eq!(record["to"]["host"], "silent.origin.test", "{record}");
    }
}

const SIX_PLACES: &str = "Location: http://origin.test:PORT/ | Location: http://files.test:PORT/ | \
     Location: https://files.test:PORT/ | Location: https://origin.test:PORT/ | Location: http://nx.test/ | \
     Location: http://ny.test/";

#[test]
fn each_place_that_is_not_permitted_is_on_record() {
    let site = Site::new();
    let (enforced, observed) = ("127.0.0.1", "127.0.0.2");
    for (source, fields, status, verdict, to) in [
        (enforced, "Location: /x", 302, "", ""),
        (enforced, "Location: http://files.test:PORT/ | Location: /", 302, "", ""),
        // Spelt often, it is one place.
        (enforced, &["Location: /x"; 40].join(" | "), 302, "", ""),
        (enforced, "Location: / | Refresh: 0; url=http://no.test/", 403, "deny", "no.test"),
        (enforced, SIX_PLACES, 403, "deny", "nx.test"),
        (enforced, "Location: custom:x", 403, "deny", ""),
        (enforced, "Location: ftp://files.test/", 403, "deny", "files.test"),
        (enforced, "Location: http://own-host.invalid:PORT/", 403, "deny", "own-host.invalid"),
        (observed, "Location: http://93.184.215.14/", 302, "would_deny", "93.184.215.14"),
        (observed, "Location: custom:x", 302, "would_deny", ""),
        (observed, "Location: ftp://no.test/", 302, "would_deny", "no.test"),
        // Hard denials and deny rules hold, whatever the scheme.
        (observed, "Location: ftp://169.254.169.254/", 403, "deny", "169.254.169.254"),
        (observed, "Location: ftp://denied.test/", 403, "deny", "denied.test"),
        (observed, "Location: http://denied.test/", 403, "deny", "denied.test"),
    ] {
        let before = site.egret.events("redirect").len();
        let answer = site.ask(source, NAME, fields);
        assert_eq!(answer.status, status, "{source} {fields}");
        if status == 403 {
            assert_eq!(answer.get("x-egret-reason"), Some("redirect_denied"), "{fields}");
        }
        let (id, _) = site.latest();
        wait_for("the close", Client::PATIENCE, || {
            site.egret.events("close").iter().any(|record| record["id"] == id)
        });
        let news = site.egret.events("redirect").split_off(before);
        if verdict.is_empty() {
            assert!(news.is_empty(), "{fields}: {news:?}");
            continue;
        }
        let [record] = &news[..] else { panic!("{fields}: {news:?}") };
        let told = (&record["id"], &record["verdict"], &record["from"]["host"], &record["to"]["host"]);
        assert_eq!(told, (&json!(id), &json!(verdict), &json!(NAME), &json!(to)), "{fields}");
    }
}

#[test]
fn who_was_sent_somewhere_is_linked_and_nobody_else() {
    let site = Site::new();
    let files = "Location: http://files.test:PORT/";
    let follow = || {
        site.ask("127.0.0.1", "files.test", "");
        site.latest().1
    };
    // One place that is permitted does not make up for another: the client saw neither.
    assert_eq!(site.ask("127.0.0.1", NAME, &format!("{files} | Location: http://no.test/")).status, 403);
    assert_eq!(follow(), Value::Null);

    assert_eq!(site.ask("127.0.0.1", NAME, files).status, 302);
    let sender = site.latest().0;
    // However often it is sent elsewhere meanwhile.
    for _ in 0..100 {
        assert_eq!(site.ask("127.0.0.1", NAME, "Location: /again").status, 302);
    }
    assert_eq!(follow(), json!(sender));
    assert_eq!(site.ask("127.0.0.1", NAME, files).status, 302);
    let later = site.latest().0;
    assert_eq!(follow(), json!(later));
    assert_ne!(sender, later);
}
