//! What a proxy relays of plain HTTP: order, interim answers, trailers, framing, octets of fields.

use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::setup::{config, front, get};
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::http1;
use crate::support::origin::Origin;

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::start(|visit| {
        while let Some(request) = visit.request()? {
            let number: u64 = request.path()[1..].parse().unwrap();
            if number % 2 == 1 {
                thread::sleep(Duration::from_millis(40));
            }
            let body = format!("answer {number}");
            visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))?;
        }
        Ok(())
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    let all: String = (0..10).map(|n| get(&authority, &format!("/{n}"))).collect();
    client.send(all);
    for number in 0..10 {
        assert_eq!(client.response("GET").body, format!("answer {number}").into_bytes());
    }
}

#[test]
fn pipelined_requests_to_several_places_are_told_apart() {
    let named = |name: &'static str| {
        Origin::start(move |visit| {
            while let Some(request) = visit.request()? {
                let body = format!("{name}{}", request.path());
                visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))?;
            }
            Ok(())
        })
    };
    let (one, two) = (named("one"), named("two"));
    let text = config(&["one.test", "two.test"], one.port());
    let ports = format!("ports = [{}, {}]", one.port(), two.port());
    let egret = Egret::with(text.replace(&format!("ports = [{}]", one.port()), &ports)).start();
    let mut client = Client::connect(egret.proxy);
    let authority = |number: usize| match number % 3 {
        0 => format!("one.test:{}", one.port()),
        1 => "no.test:80".to_owned(),
        _ => format!("two.test:{}", two.port()),
    };
    let request = |number: usize| {
        let secret = format!("\r\nCookie: of={}\r\n\r\n", authority(number));
        get(&authority(number), &format!("/{number}")).replace("\r\n\r\n", &secret)
    };
    client.send((0..15).map(request).collect::<String>());
    for number in 0..15 {
        let answer = client.response("GET");
        let body = String::from_utf8_lossy(&answer.body);
        match number % 3 {
            0 => assert_eq!((answer.status, &*body), (200, &*format!("one/{number}"))),
            1 => assert_eq!((answer.status, answer.get("x-egret-reason")), (403, Some("domain_not_allowed"))),
            _ => assert_eq!((answer.status, &*body), (200, &*format!("two/{number}"))),
        }
    }
    for origin in [&one, &two] {
        let requests = origin.requests();
        assert_eq!(requests.len(), 5);
        for request in requests {
            let cookie = format!("of={}", request.get("host").unwrap());
            assert_eq!(request.get("cookie"), Some(cookie.as_str()));
        }
    }
}

#[test]
fn interim_answers_are_relayed() {
    let origin = Origin::replying(
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n\
         HTTP/1.1 103 Early Hints\r\nLink: </b.css>; rel=preload\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(get(&authority, "/"));
    for link in ["</a.css>; rel=preload", "</b.css>; rel=preload"] {
        let hint = client.response("GET");
        assert_eq!((hint.status, hint.get("link")), (103, Some(link)));
    }
    let answer = client.response("GET");
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"ok"[..]));
}

#[test]
fn trailers_are_relayed_both_ways() {
    let origin = Origin::replying(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
         5\r\nhello\r\n0\r\nX-Sum: abc\r\n\r\n",
    );
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nTE: trailers\r\nConnection: TE\r\n\
         Transfer-Encoding: chunked\r\nTrailer: X-Mark\r\n\r\n4\r\nbody\r\n0\r\nX-Mark: up\r\n\r\n"
    ));
    let answer = client.response("POST");
    assert_eq!(answer.body, b"hello");
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "abc".to_owned())]);
    let request = origin.requests().remove(0);
    assert_eq!(request.body, b"body");
    assert_eq!(request.trailers, [("x-mark".to_owned(), "up".to_owned())]);
}

/// How events are framed: a head, and what stands around each of them.
const FRAMINGS: [(&str, bool); 3] = [
    ("Transfer-Encoding: chunked\r\n", true),
    ("Connection: close\r\n", false),
    ("Connection: close\r\nContent-Encoding: gzip\r\n", false),
];

fn events_arrive_one_by_one(fields: &'static str, chunked: bool, through_a_tunnel: bool) {
    let (go_on, waits) = mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    let origin = Origin::start(move |visit| {
        visit.request()?;
        visit.send(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{fields}\r\n"))?;
        for number in 0..20 {
            let event = format!("data: {number:02}\n\n");
            let size = event.len();
            visit.send(if chunked { format!("{size:x}\r\n{event}\r\n") } else { event })?;
            // The next event is sent only when the client has this one: a proxy that buffers stops here.
            waits.lock().unwrap().recv().unwrap();
        }
        if chunked { visit.send("0\r\n\r\n") } else { visit.finish() }
    });
    let (egret, authority) = front(&origin);
    let mut client = match through_a_tunnel {
        true => Client::tunnel(egret.proxy, &authority),
        false => Client::connect(egret.proxy),
    };
    client.send(get(&authority, "/events"));
    let head = client.head("GET");
    assert_eq!((head.status, head.get("content-length")), (200, None));
    let mut seen = Vec::new();
    for number in 0..20 {
        let event = format!("data: {number:02}\n\n").into_bytes();
        while http1::find(&seen, &event).is_none() {
            seen.extend(client.some());
        }
        go_on.send(()).unwrap();
    }
}

#[test]
fn events_arrive_one_by_one_over_plain_http() {
    FRAMINGS.into_iter().for_each(|(fields, chunked)| events_arrive_one_by_one(fields, chunked, false));
}

#[test]
fn events_arrive_one_by_one_through_a_tunnel() {
    FRAMINGS.into_iter().for_each(|(fields, chunked)| events_arrive_one_by_one(fields, chunked, true));
}

fn expecting(authority: &str) -> String {
    format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    )
}

#[test]
fn a_body_waits_for_100_continue() {
    let origin = Origin::start(|visit| {
        visit.head()?;
        visit.send("HTTP/1.1 100 Continue\r\n\r\n")?;
        let body = visit.exactly(4)?;
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")?;
        visit.send(body)?;
        visit.finish()
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(expecting(&authority));
    assert_eq!(client.response("POST").status, 100);
    client.send("body");
    assert_eq!(client.final_response("POST").body, b"body");
}

#[test]
fn a_final_answer_in_place_of_100_is_relayed() {
    for reply in ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 417 Expectation Failed\r\n"] {
        let reply = format!("{reply}Content-Length: 2\r\nConnection: close\r\n\r\nno");
        let status: u16 = reply[9..12].parse().unwrap();
        let origin = Origin::start(move |visit| {
            visit.head()?;
            visit.send(&reply)?;
            visit.finish()
        });
        let (egret, authority) = front(&origin);
        let mut client = Client::connect(egret.proxy);
        client.send(expecting(&authority));
        let answer = client.final_response("POST");
        assert_eq!((answer.status, answer.body.as_slice()), (status, &b"no"[..]));
    }
}

#[test]
fn a_body_sent_without_waiting_for_100_arrives() {
    let origin = Origin::start(|visit| {
        visit.head()?;
        let body = visit.exactly(4)?;
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")?;
        visit.send(body)?;
        visit.finish()
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(expecting(&authority));
    thread::sleep(Duration::from_millis(300)); // as clients do that give up waiting
    client.send("body");
    assert_eq!(client.final_response("POST").body, b"body");
}

#[test]
fn an_upload_that_the_origin_refuses_midway_shows_the_refusal() {
    let origin = Origin::start(|visit| {
        visit.head()?;
        visit.exactly(1 << 16)?;
        visit.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large")?;
        visit.finish()
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nContent-Length: {}\r\n\r\n",
        64 << 20
    ));
    let mut sending = client.stream.try_clone().unwrap();
    // The proxy may stop reading: what counts is that the answer can be read all the same.
    let sender = thread::spawn(move || crate::support::digest::send(&mut sending, 64 << 20, 1));
    let answer = client.response("POST");
    assert_eq!((answer.status, answer.body.as_slice()), (403, &b"too large"[..]));
    drop(client);
    let _ = sender.join().unwrap();
}

#[test]
fn an_upload_that_no_rule_allows_shows_the_refusal() {
    let (egret, _) = front(&Origin::replying(""));
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "POST http://elsewhere.test/ HTTP/1.1\r\nHost: elsewhere.test\r\nContent-Length: {}\r\n\r\n",
        8 << 20
    ));
    let sending = client.stream.try_clone().unwrap();
    let sender = thread::spawn(move || crate::support::digest::send(sending, 8 << 20, 1));
    let answer = client.response("POST");
    assert_eq!((answer.status, answer.get("x-egret-reason")), (403, Some("domain_not_allowed")));
    drop(client);
    let _ = sender.join().unwrap();
}

#[test]
fn answers_without_a_body_keep_the_connection_in_step() {
    let origin = Origin::start(|visit| {
        while let Some(request) = visit.request()? {
            visit.send(match (request.method(), request.path()) {
                ("HEAD", _) => "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
                (_, "/204") => "HTTP/1.1 204 No Content\r\n\r\n",
                (_, "/304") => "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 1000\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast",
            })?;
        }
        Ok(())
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(format!("HEAD http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
    let answer = client.response("HEAD");
    assert_eq!((answer.status, answer.get("content-length")), (200, Some("1000")));
    client.send(get(&authority, "/204"));
    let answer = client.response("GET");
    assert_eq!((answer.status, answer.get("transfer-encoding")), (204, None));
    client.send(get(&authority, "/304"));
    let answer = client.response("GET");
    assert_eq!((answer.status, answer.get("etag")), (304, Some("\"x\"")));
    client.send(get(&authority, "/"));
    assert_eq!(client.response("GET").body, b"last");
}

#[test]
fn lines_of_a_repeated_field_stay_apart_and_in_order() {
    let origin = Origin::replying(
        "HTTP/1.1 200 OK\r\nSet-Cookie: a=1, b\r\nX-Between: x\r\nSet-Cookie: c=2\r\nSet-Cookie: a=3\r\n\
         Content-Length: 0\r\n\r\n",
    );
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nX-Tag: one\r\nX-Tag: two, three\r\nX-Tag: four\r\n\r\n"
    ));
    assert_eq!(client.response("GET").all("set-cookie"), ["a=1, b", "c=2", "a=3"]);
    let request = origin.requests().remove(0);
    let tags: Vec<_> =
        request.headers.iter().filter(|(n, _)| n == "x-tag").map(|(_, v)| v.as_str()).collect();
    assert_eq!(tags, ["one", "two, three", "four"]);
}

#[test]
fn octets_above_ascii_in_field_values_are_unchanged() {
    let value: Vec<u8> = (0x80..=0xff).collect();
    let reply = [b"HTTP/1.1 200 OK\r\nX-Name: ", &value[..], b"\r\nContent-Length: 0\r\n\r\n"].concat();
    let origin = Origin::replying(reply);
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    let head = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nX-Name: ");
    client.send([head.as_bytes(), &value, b"\r\n\r\n"].concat());
    let answer = client.response("GET");
    assert_eq!(answer.get("x-name"), Some(http1::latin1(&value).as_str()));
    assert!(http1::find(&origin.requests()[0].head, &value).is_some());
}

#[test]
fn a_chunked_request_keeps_its_body_and_the_next_request_its_place() {
    let origin = Origin::start(|visit| {
        while let Some(request) = visit.request()? {
            let length = request.body.len();
            visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"))?;
            visit.send(request.body)?;
        }
        Ok(())
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    let chunked = format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    );
    client.send(chunked + &get(&authority, "/"));
    assert_eq!(client.response("POST").body, b"abcde");
    assert_eq!(client.response("GET").status, 200);
}
