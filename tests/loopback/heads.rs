//! Heads as the other side gets them: targets, spelling, what is odd but permitted, and what is not.

use crate::setup::{front, get, small};
use crate::support::client::Client;
use crate::support::http1;
use crate::support::origin::Origin;

#[test]
fn targets_arrive_in_origin_form_and_otherwise_as_sent() {
    let origin = small();
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    for (method, asked, seen) in [
        ("GET", "", "/"),
        ("GET", "?x=1", "/?x=1"),
        ("GET", "/?", "/?"),
        ("GET", "/a%2fb%7E%41/./x/../y;p=1//z", "/a%2fb%7E%41/./x/../y;p=1//z"),
        ("GET", "/q?a=b&c=%20+d/../e?f:@[]|^", "/q?a=b&c=%20+d/../e?f:@[]|^"),
        ("POST", "/x?", "/x?"),
        ("OPTIONS", "", "*"),
        ("OPTIONS", "/", "/"),
        ("OPTIONS", "/p", "/p"),
        ("OPTIONS", "?q", "/?q"),
    ] {
        client.send(format!("{method} http://{authority}{asked} HTTP/1.1\r\nHost: other.test\r\n\r\n"));
        assert_eq!(client.response(method).status, 200, "{method} {asked}");
        let request = origin.requests().pop().unwrap();
        assert_eq!(request.line, format!("{method} {seen} HTTP/1.1"));
        assert_eq!(request.get("host"), Some(authority.as_str()), "{method} {asked}");
    }
}

#[test]
fn long_and_odd_requests_that_mean_no_harm_pass() {
    let origin = small();
    let (egret, authority) = front(&origin);
    let query: String = (0..200).map(|n| format!("&filter[{n}]=caf%C3%A9+{n:032x}")).collect();
    let target = format!("/repos/550e8400-e29b-41d4-a716-446655440000/x@y,z=1!$'()*~?first=1{query}");
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "GET http://{authority}{target} HTTP/1.1\r\nHost: {authority}\r\nAuthorization: Bearer {}\r\n\
         Cookie: a=\"b c\"; d=e\r\nX-Empty:\r\nAccept: */*;q=0.1,\ttext/x\r\nUser-Agent: (x; \"y\\\"z\")\r\n\r\n",
        "t".repeat(4000)
    ));
    assert_eq!(client.response("GET").status, 200);
    let request = origin.requests().remove(0);
    assert_eq!(request.path(), target);
    assert_eq!(request.get("authorization").map(str::len), Some(4007));
    assert_eq!((request.get("cookie"), request.get("x-empty")), (Some("a=\"b c\"; d=e"), Some("")));
    assert_eq!(request.get("user-agent"), Some("(x; \"y\\\"z\")"));
}

/// Decision 0002: the spelling of names is lost, to one that servers and clients expect.
#[test]
fn names_of_fields_are_in_title_case_both_ways() {
    let origin = Origin::replying(
        "HTTP/1.1 200 OK\r\nX-Organization: Nintendo\r\nx-lower: 1\r\nX-UPPER: 2\r\nconTENT-lengTH: 0\r\n\r\n",
    );
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\ncontent-LENGTH: 2\r\nX-MiXeD-cAsE: 1\r\n\
         SOAPAction: x\r\nConnection: close\r\n\r\nhi"
    ));
    let got = http1::latin1(&client.until_end());
    for line in
        ["X-Organization: Nintendo", "X-Lower: 1", "X-Upper: 2", "Content-Length: 0", "Via: 1.1 egret"]
    {
        assert!(got.contains(&format!("\r\n{line}\r\n")), "{line} in {got}");
    }
    let head = http1::latin1(&origin.requests()[0].head) + "\r\n";
    for line in ["X-Mixed-Case: 1", "Soapaction: x", "Content-Length: 2", "Via: 1.1 egret"] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} in {head}");
    }
    assert!(head.contains("\r\nHost: "), "{head}");
}

#[test]
fn a_connect_has_no_body_and_outlives_a_close() {
    let origin = Origin::echoing();
    let (egret, authority) = front(&origin);
    let connect = |fields: &str| format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n");
    for fields in
        ["Connection: close\r\n", "Content-Length: 0\r\n", "Proxy-Connection: close\r\nContent-Length: 0\r\n"]
    {
        let mut client = Client::connect(egret.proxy);
        client.send(connect(fields));
        let answer = client.response("CONNECT");
        assert_eq!(answer.status, 200, "{fields}");
        for name in ["connection", "content-length", "transfer-encoding"] {
            assert_eq!(answer.get(name), None, "{fields}");
        }
        client.send("inside");
        assert_eq!(client.exactly(6), b"inside", "{fields}");
    }
    let before = origin.accepted();
    for fields in [
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 0\r\nContent-Length: 5\r\n",
    ] {
        let mut client = Client::connect(egret.proxy);
        client.send(connect(fields) + "hello");
        assert_eq!(client.response("CONNECT").status, 400, "{fields}");
        assert!(client.until_end().is_empty(), "{fields}");
    }
    assert_eq!(origin.accepted(), before);
}

/// What becomes of an answer whose head is not as it should be.
#[test]
fn odd_answers_are_repaired_or_refused_never_passed_on() {
    let bodiless = "Content-Length: 0\r\n\r\n";
    for (reply, status) in [
        (format!("HTTP/1.1 200\r\n{bodiless}"), 200),
        (format!("HTTP/1.1 200 \r\n{bodiless}"), 200),
        (format!("HTTP/1.1 299 W\u{e9}ird\r\n{bodiless}"), 299),
        (format!("HTTP/1.1 200 OK\r\nX-Name: \r\n{bodiless}"), 200),
        ("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), 204),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 1192\r\n\r\n".to_owned(), 304),
        (format!("HTTP/1.1 200 OK\r\nSecured by X: yes\r\n{bodiless}"), 502),
        (format!("HTTP/1.1 200 OK\r\nHTTP 1/1 302:\r\n{bodiless}"), 502),
        (format!("HTTP/1.1 200 OK\r\nX-Name: a\u{0}b\r\n{bodiless}"), 502),
        (format!("HTTP/1.1 2000 OK\r\n{bodiless}"), 502),
        (format!("HTTP/1.1 099 Low\r\n{bodiless}"), 502),
        (format!("ICY 200 OK\r\n{bodiless}"), 502),
        (format!("HTTP/1.1 407 Mine\r\n{bodiless}"), 502),
        ("plainly no HTTP at all\r\n\r\n".to_owned(), 502),
    ] {
        let octets: Vec<u8> = reply.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        let origin = Origin::replying(octets);
        let (egret, authority) = front(&origin);
        let mut client = Client::connect(egret.proxy);
        for round in 0..2 {
            client.send(get(&authority, "/"));
            let answer = client.response("GET");
            assert_eq!(answer.status, status, "{reply:?}, round {round}");
            if status == 502 {
                assert_eq!(answer.get("x-egret-reason"), Some("upstream_protocol"), "{reply:?}");
            }
        }
    }
}

#[test]
fn an_origin_of_http_1_0_is_no_reason_to_wait_for_100() {
    let origin = Origin::start(|visit| {
        visit.head()?;
        let body = visit.exactly(4)?;
        visit.send("HTTP/1.0 200 OK\r\n\r\n")?;
        visit.send(body)?;
        visit.finish()
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody"
    ));
    let answer = client.response("POST");
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"body"[..]));
}
