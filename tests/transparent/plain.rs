//! Everything that is neither HTTP nor TLS: by its address, and without waiting for a client that
//! waits itself.

use std::io::Read;

use crate::http::connect;
use crate::in_site;
use crate::origins::BANNER;
use crate::site::{LITERAL, LITERAL_6, LITERAL_TLS, REFUSED, text};
use crate::support::wait_for;

in_site! {
fn a_server_that_speaks_first(site) {
    site.divert();
    for address in [LITERAL, LITERAL_6] {
        let mut client = connect(address, 2525);
        let mut banner = [0; BANNER.len()];
        client.stream.read_exact(&mut banner).unwrap();
        assert_eq!(text(&banner), BANNER);
        client.send("EHLO me\r\n");
        assert_eq!(text(&client.exactly(13)), "250 EHLO me\r\n");
        let record = site.decision(address);
        assert_eq!((&record["protocol"], &record["dialed"]), (&"transparent".into(), &address.into()));
    }
}
}

in_site! {
fn a_client_that_speaks_first(site) {
    site.divert();
    // The empty line alone is how some protocols ask for everything.
    for line in ["SSH-2.0-me\r\n", "get key\r\n", "\u{1}\u{2}\r\n", "\r\n"] {
        let mut client = connect(LITERAL, 2525);
        client.send(line);
        let expected = format!("{BANNER}250 {}\r\n", line.trim_end());
        assert_eq!(text(&client.exactly(expected.len())), expected);
    }
}
}

in_site! {
/// Refused ones are reset: a plain end would look like an answer.
fn what_no_rule_names(site) {
    site.divert();
    let mut client = connect(REFUSED, 2525);
    let mut byte = [0];
    let error = client.stream.read(&mut byte).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let record = site.decision(REFUSED);
    assert_eq!((&record["verdict"], &record["reason"]), (&"deny".into(), &"address_not_allowed".into()));
    assert_eq!((&record["original"], &record["port"]), (&REFUSED.into(), &2525.into()));
    // Where the rule asks for TLS, a server that speaks first gets no word through.
    let mut silent = connect(LITERAL_TLS, 2525);
    assert_eq!(silent.until_end(), b"");
    wait_for("the end of the tunnel", crate::site::PATIENCE, || {
        site.egret.events("close").iter().any(|record| record["reason"] == "tls_timeout")
    });
    site.assert_untouched(&[REFUSED]);
}
}

in_site! {
/// A client at its end of sending, such as a port scan, is decided like any other.
fn a_client_that_says_nothing(site) {
    site.divert();
    let mut client = connect(LITERAL, 2525);
    client.finish();
    assert_eq!(text(&client.until_end()), BANNER);
}
}

in_site! {
/// Limits and the observing mode hold as for a CONNECT.
fn limits_and_observation(site) {
    site.divert();
    site.reload(|config| config.replace("[policy.p]", "[policy.p]\nlimits = { connections = 1 }\nmode = \"observe\""));
    let mut first = connect(REFUSED, 2525);
    assert_eq!(text(&first.exactly(BANNER.len())), BANNER);
    assert_eq!(site.decision(REFUSED)["verdict"], "would_deny");
    let mut second = connect(LITERAL, 2525);
    assert_eq!(second.until_end(), b"");
    assert_eq!(site.decision(LITERAL)["reason"], "too_many_connections");
}
}
