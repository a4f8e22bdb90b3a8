//! A parent that does not open the tunnel: the client is told so, and nothing goes past it.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use crate::parent::{Act, Parent};
use crate::setup::{NAME, config_at, connect, decision, get, through};
use crate::support::client::Client;
use crate::support::dns_server::{Answer, DnsServer};
use crate::support::egret::Egret;
use crate::support::origin::Origin;
use crate::support::wait_for;

fn small() -> Origin {
    Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
}

/// What both kinds of client get when the parent answers so; the origin sees nothing. Returns the
/// detail of the record.
#[track_caller]
fn refused(act: impl Fn() -> Act + Send + Sync + 'static, status: u16, reason: &str) -> String {
    let (origin, parent) = (small(), Parent::start(move |_| act()));
    let egret = through(parent.address(), origin.port()).start();
    for (number, answer) in [connect(&egret, origin.port()), get(&egret, origin.port())].iter().enumerate() {
        assert_eq!((answer.status, answer.get("x-egret-reason")), (status, Some(reason)), "{answer:?}");
        let body = String::from_utf8_lossy(&answer.body);
        assert!(!body.contains(&parent.address().to_string()), "the client need not know: {body}");
        assert!(body.contains("The proxy on the way"), "{body}");
        let record = decision(&egret, number + 1);
        assert_eq!((&record["verdict"], &record["reason"]), (&"allow".into(), &reason.into()));
        assert_eq!(record["via_parent"], parent.address().to_string());
        assert!(record["dialed"].is_null(), "{record}");
    }
    assert_eq!(parent.targets(), [(); 2].map(|()| format!("127.0.0.1:{}", origin.port())));
    assert_eq!(origin.accepted(), 0, "nothing goes past the parent");
    decision(&egret, 2)["detail"].as_str().unwrap().to_owned()
}

#[test]
fn refusals_are_told_apart() {
    let detail = refused(|| Act::status("403 Filtered by policy"), 502, "connect_refused");
    assert!(detail.ends_with("it answered 403 Filtered by policy"), "{detail}");
    refused(|| Act::status("429 Too Many Requests"), 502, "connect_refused");
    refused(|| Act::status("502 Bad Gateway"), 502, "connect_unroutable");
    refused(|| Act::status("500 Unable to connect"), 502, "connect_unroutable");
    refused(|| Act::status("504 Gateway Timeout"), 504, "connect_timeout");
    refused(|| Act::status("302 Found\r\nLocation: http://portal.test/"), 502, "upstream_protocol");
}

#[test]
fn a_407_of_the_parent_is_the_operators_matter() {
    let challenge = "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"corp\"";
    let detail = refused(|| Act::status(challenge), 502, "upstream_protocol");
    assert!(detail.contains("check upstream.credentials_file"), "{detail}");
    let origin = small();
    let parent = Parent::start(move |_| Act::status(challenge));
    let egret = through(parent.address(), origin.port()).start();
    let answer = get(&egret, origin.port());
    assert_eq!(answer.get("proxy-authenticate"), None);
    let log = egret.log();
    assert!(log.contains("the parent proxy can't be used") && log.contains("credentials_file"), "{log}");
}

#[test]
fn faults_are_told_apart() {
    refused(|| Act::Say(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()), 502, "upstream_protocol");
    refused(|| Act::Say(b"HTTP/1.1 200 OK\r\nbroken header\r\n\r\n".to_vec()), 502, "upstream_protocol");
    refused(|| Act::Say(Vec::new()), 502, "upstream_closed");
    refused(|| Act::Say(b"HTTP/1.1 200 OK\r\nX: y\r\n".to_vec()), 502, "upstream_closed");
    refused(
        || Act::Say([b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; 100_000], b"\r\n\r\n".to_vec()].concat()),
        502,
        "upstream_protocol",
    );
    let fields = "X: y\r\n".repeat(300);
    refused(move || Act::Say(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").into()), 502, "upstream_protocol");
    for text in [
        // A status that is none, HTTP of another version, a body without a head, an alert of TLS.
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 No\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX\0: y\r\n\r\n",
        "<html>200 OK</html>\r\n\r\n",
        "\u{15}\u{3}\u{3}\0\u{2}\u{2}F",
    ] {
        refused(move || Act::Say(text.into()), 502, "upstream_protocol");
    }
    refused(|| Act::Reset, 502, "upstream_closed");
    // A 101 is no tunnel.
    refused(|| Act::status("101 Switching Protocols\r\nUpgrade: x"), 502, "upstream_protocol");
}

#[test]
fn a_silent_parent_has_the_time_of_a_connect() {
    let began = Instant::now();
    refused(|| Act::Wait, 504, "connect_timeout");
    assert!(began.elapsed() >= Duration::from_secs(8), "twice the four seconds of the configuration");
}

/// Progress buys no time, neither within a head nor by interim answers.
#[test]
fn a_parent_that_drips_has_the_time_of_a_connect() {
    for text in [
        "HTTP/1.1 200 OK\r\nX: a field that takes its time\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200",
    ] {
        let began = Instant::now();
        refused(move || Act::Drip(text, Duration::from_millis(150)), 504, "connect_timeout");
        assert!(began.elapsed() < Duration::from_secs(14), "twice four seconds: {:?}", began.elapsed());
    }
}

#[test]
fn tunnels_are_counted_by_what_came_of_them() {
    let origin = small();
    let parent = Parent::start(|request| match request.path().starts_with("127.0.0.9:") {
        true => Act::status("502 Bad Gateway"),
        false => Act::tunnel(),
    });
    let config = |parent: &str| config_at(parent, &["127.0.0.9", "127.0.0.1"], origin.port(), "");
    let egret = Egret::with(config(&parent.address().to_string())).start();
    assert_eq!(connect(&egret, origin.port()).status, 200);
    assert_eq!(get(&egret, origin.port()).status, 200);
    let refusing = Parent::start(|_| Act::status("403 Forbidden"));
    egret.configure(&config(&refusing.address().to_string()));
    assert_eq!(egret.reload().status, 200);
    assert_eq!(connect(&egret, origin.port()).status, 502);
    let metrics = String::from_utf8(egret.control("GET", "/metrics").body).unwrap();
    for (result, count) in [("ok", 2), ("connect_unroutable", 2), ("connect_refused", 1)] {
        let line = format!("egret_parent_tunnels_total{{result=\"{result}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[test]
fn endless_interim_answers_leave_others_their_turn() {
    let (origin, parent) = (small(), Parent::start(|_| Act::Flood("HTTP/1.1 100 Continue\r\n\r\n")));
    let egret = through(parent.address(), origin.port()).start();
    let target = format!("{NAME}:{}", origin.port());
    let began = Instant::now();
    let mut flooded: Vec<_> = (0..8).map(|_| Client::connect(egret.proxy)).collect();
    for client in &mut flooded {
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    }
    wait_for("the floods", Duration::from_secs(10), || parent.heads().len() == flooded.len());
    let mut other = Client::connect(egret.proxy);
    other.send("GET http://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n");
    assert_eq!(other.response("GET").status, 403);
    for mut client in flooded {
        assert_eq!(client.response("CONNECT").status, 504);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "they have four seconds: {:?}", began.elapsed());
}

#[test]
fn a_parent_that_is_down_is_not_gone_past() {
    let origin = small();
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let egret = through(closed, origin.port()).start();
    for answer in [connect(&egret, origin.port()), get(&egret, origin.port())] {
        assert_eq!((answer.status, answer.get("x-egret-reason")), (502, Some("connect_refused")));
    }
    let record = decision(&egret, 2);
    assert_eq!(record["via_parent"], closed.to_string());
    assert_eq!(origin.accepted(), 0);
    // It is allowed to come up again.
    let body = egret.control("GET", "/readyz");
    assert!(!String::from_utf8_lossy(&body.body).contains(&closed.to_string()));
}

#[test]
fn a_name_of_the_parent_is_looked_up_like_any_other() {
    let (origin, parent) = (small(), Parent::open());
    let port = parent.address().port();
    let dns = DnsServer::start("127.0.0.1:0".parse().unwrap(), |_| Ipv4Addr::LOCALHOST).unwrap();
    let answers = [
        ("gone.corp".to_owned(), vec![Answer::rcode("NXDOMAIN")]),
        ("broken.corp".to_owned(), vec![Answer::rcode("SERVFAIL")]),
        ("silent.corp".to_owned(), vec![Answer::rcode("TIMEOUT")]),
    ];
    dns.reset(answers.into(), None);
    let config = |name: &str| {
        let text = config_at(&format!("{name}:{port}"), &["127.0.0.1"], origin.port(), "");
        text.replace("127.0.0.1:9", &dns.address.to_string())
    };
    let egret = Egret::with(config("proxy.corp")).start();
    assert_eq!(get(&egret, origin.port()).body, b"ok");
    assert_eq!(decision(&egret, 1)["via_parent"], format!("proxy.corp:{port}"));
    assert_eq!(parent.targets(), [format!("127.0.0.1:{}", origin.port())]);
    for (number, (name, status, reason)) in [
        ("gone.corp", 502, "connect_unroutable"),
        ("broken.corp", 502, "connect_unroutable"),
        ("silent.corp", 504, "connect_timeout"),
    ]
    .into_iter()
    .enumerate()
    {
        egret.configure(&config(name));
        assert_eq!(egret.reload().status, 200);
        let answer = connect(&egret, origin.port());
        assert_eq!((answer.status, answer.get("x-egret-reason")), (status, Some(reason)), "{name}");
        let detail = decision(&egret, number + 2)["detail"].to_string();
        assert!(detail.contains(name) && detail.contains("can't be resolved"), "{detail}");
    }
    assert_eq!(origin.accepted(), 1);
}

/// A parent that can't reach the first address it is asked for, and says so with this status.
fn second_address(first: &'static str) -> (Vec<String>, u16) {
    let origin = small();
    let parent = Parent::start(move |request| match request.path().starts_with("127.0.0.9:") {
        true if first.is_empty() => Act::Wait,
        true => Act::status(first),
        false => Act::tunnel(),
    });
    let addresses = ["127.0.0.9", "127.0.0.1"];
    let text = config_at(&parent.address().to_string(), &addresses, origin.port(), "");
    let egret = Egret::with(text).start();
    let status = get(&egret, origin.port()).status;
    let record = decision(&egret, 1);
    if status == 200 {
        assert_eq!(record["dialed"], "127.0.0.1");
        assert!(record["detail"].as_str().unwrap().contains("127.0.0.9"), "{record}");
    }
    let targets = parent.targets().into_iter();
    (targets.map(|target| target.split(':').next().unwrap().to_owned()).collect(), status)
}

#[test]
fn what_the_parent_cannot_reach_falls_over_to_the_next_address() {
    let both = || vec!["127.0.0.9".to_owned(), "127.0.0.1".to_owned()];
    for first in ["502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout", ""] {
        assert_eq!(second_address(first), (both(), 200), "{first:?}");
    }
    for first in ["403 Forbidden", "407 Who", "500 Oops", "302 Found"] {
        let (asked, status) = second_address(first);
        assert_eq!((asked, status), (vec!["127.0.0.9".to_owned()], 502), "{first:?}");
    }
}

#[test]
fn the_parent_gets_no_name_and_one_address_of_a_name_that_changes() {
    let (origin, parent) = (Origin::echoing(), Parent::open());
    let dns = DnsServer::start("127.0.0.1:0".parse().unwrap(), |_| Ipv4Addr::LOCALHOST).unwrap();
    // The first answer is fine; from the second look-up on the name points at a metadata service.
    let address =
        |address: &str, t: f64| Answer { t, a: vec![(address.parse().unwrap(), 0)], ..Answer::default() };
    let answers = vec![address("127.0.0.1", 0.0), address("169.254.169.254", 0.01)];
    dns.reset([("rebind.test".to_owned(), answers)].into(), None);
    let text = config_at(&parent.address().to_string(), &["127.0.0.1"], origin.port(), "");
    let egret = Egret::with(text.replace("127.0.0.1:9", &dns.address.to_string())).start();
    let authority = format!("rebind.test:{}", origin.port());
    let _first = Client::tunnel(egret.proxy, &authority);
    let mut second = Client::connect(egret.proxy);
    second.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
    assert_eq!(second.response("CONNECT").get("x-egret-reason"), Some("address_forbidden"));
    assert_eq!(parent.targets(), [format!("127.0.0.1:{}", origin.port())]);
}

#[test]
fn names_are_checked_before_the_parent_hears_of_them() {
    let (origin, parent) = (small(), Parent::open());
    let egret = through(parent.address(), origin.port()).start();
    let port = origin.port();
    for (target, reason) in [
        (format!("no.example:{port}"), "domain_not_allowed"),
        ("169.254.169.254:80".to_owned(), "address_forbidden"),
        (format!("{NAME}:1"), "port_not_allowed"),
        // The parent's own address, as any other literal without a rule.
        (parent.address().to_string(), "address_not_allowed"),
    ] {
        let mut client = Client::connect(egret.proxy);
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        let answer = client.response("CONNECT");
        assert_eq!(answer.status, 403, "{target}");
        assert_eq!(answer.get("x-egret-reason"), Some(reason), "{target}");
    }
    assert!(parent.targets().is_empty());
}

#[test]
fn no_header_of_a_client_names_a_parent() {
    let (origin, parent, other) = (small(), Parent::open(), Parent::open());
    let egret = through(parent.address(), origin.port()).start();
    let authority = format!("{NAME}:{}", origin.port());
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nX-Upstream-Https-Proxy: http://{}\r\n\r\n",
        other.address()
    ));
    assert_eq!(client.response("CONNECT").status, 200);
    assert_eq!((parent.heads().len(), other.heads().len()), (1, 0));
    assert_eq!(parent.heads()[0].get("x-upstream-https-proxy"), None);
}

#[test]
fn a_rule_that_unlocks_the_parents_address_does_not_unlock_the_parent() {
    let parent = Parent::open();
    let port = parent.address().port();
    // The rule allows every name at the loopback, on the parent's own port.
    for more in ["", "no_proxy = [\"**.test\"]"] {
        let egret = Egret::with(config_at(&format!("localhost:{port}"), &["127.0.0.1"], port, more)).start();
        let answer = connect(&egret, port);
        assert_eq!((answer.status, answer.get("x-egret-reason")), (403, Some("address_forbidden")));
        assert_eq!(decision(&egret, 1)["verdict"], "deny");
    }
    assert_eq!(parent.origin.accepted(), 0);
}

#[test]
fn a_parent_that_leads_back_here_is_a_loop() {
    let origin = small();
    let dns = DnsServer::start("127.0.0.1:0".parse().unwrap(), |_| Ipv4Addr::LOCALHOST).unwrap();
    let own: std::net::SocketAddr = {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        free.local_addr().unwrap()
    };
    let control = {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        free.local_addr().unwrap()
    };
    // By a name that only DNS knows: that shows when it is used.
    let text = config_at(&format!("self.corp:{}", own.port()), &["127.0.0.1"], origin.port(), "");
    let text = text.replace("127.0.0.1:9", &dns.address.to_string());
    let egret = Egret::with(text).listen(&[own], control).start();
    let answer = get(&egret, origin.port());
    assert_eq!((answer.status, answer.get("x-egret-reason")), (502, Some("proxy_loop")));
    assert!(decision(&egret, 1)["detail"].to_string().contains("listener of egret itself"));
    drop(egret);
    // By its address: that shows at the start.
    let text = config_at(&own.to_string(), &["127.0.0.1"], origin.port(), "");
    let error = Egret::with(text).listen(&[own], control).try_start().unwrap_err();
    assert!(error.contains("is a listener of egret itself"), "{error}");
    assert_eq!(origin.accepted(), 0);
}
