//! The same rows as questions for names: no name is looked up, and no address told, that another way in
//! would not dial. A question has no port and opens nothing, so it ends by words of its own.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use tempfile::TempDir;

use crate::rows::{End, POLICY, ROWS, Row};
use crate::support::asker::{Connection, Message, Question, ask_from};
use crate::support::dns_message::{A, AAAA, HTTPS};
use crate::support::dns_server::{Answer, DnsServer};
use crate::support::egret::Egret;
use crate::support::witness::Witness;
use crate::support::world::{self, CLIENT, DNS_ADDRESS, World};

/// Room for all rows: how fast a sandbox may ask is tried elsewhere.
const LIMITS: &str = "[policy.main.limits]\ndns_queries = \"100000/s burst 100000\"\n";

/// The host of a row on the wire; nothing where that can't be written, or says nothing about a name.
fn name(row: &Row) -> Option<Vec<u8>> {
    // A question has no port, and carries nothing.
    if row.reason == "port_not_allowed" || row.inside.is_some() {
        return None;
    }
    let host = row.host.strip_suffix(b".").unwrap_or(row.host);
    let mut octets = Vec::new();
    for label in host.split(|byte| *byte == b'.').filter(|_| !host.is_empty()) {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length))?;
        octets.push(length);
        octets.extend(label);
    }
    octets.push(0);
    Some(octets)
}

/// The reason for which a row ends, asked as a name: one that is an address is none.
fn reason(row: &Row) -> &'static str {
    let text = String::from_utf8_lossy(row.host);
    let is_address = text.starts_with('[') || text.parse::<IpAddr>().is_ok();
    if is_address { "bad_request" } else { row.reason }
}

/// The code that goes with a reason.
fn code(reason: &str) -> u16 {
    match reason {
        "allowed" => 0,
        "dns_not_found" => 3,
        _ => 5,
    }
}

fn scripts(row: &Row) -> HashMap<String, Vec<Answer>> {
    let name = String::from_utf8_lossy(row.host).trim_end_matches('.').to_ascii_lowercase();
    let mut answer = if row.answers.is_empty() { Answer::rcode("NXDOMAIN") } else { Answer::default() };
    for address in row.answers.iter().map(|text| text.parse::<IpAddr>().unwrap()) {
        let list = if address.is_ipv4() { &mut answer.a } else { &mut answer.aaaa };
        list.push((address, 0));
    }
    HashMap::from([(name, vec![answer])])
}

#[test]
fn questions_end_like_every_way_in() {
    world::in_a_world("questions::questions_end_like_every_way_in", try_questions);
}

fn try_questions() {
    let files = TempDir::with_prefix("egret-entries-").unwrap();
    let _world = World::enter(files.path()).unwrap();
    let dns_address = SocketAddr::new(DNS_ADDRESS.parse().unwrap(), 53);
    let dns = DnsServer::start(dns_address, |_| [151, 101, 66, 66].into()).unwrap();
    let config = format!("[dns]\nservers = [\"{dns_address}\"]\n{POLICY}\n{LIMITS}");
    let egret = Egret::with(config).names("127.0.0.1:0".parse().unwrap()).start();
    let client: IpAddr = CLIENT.parse().unwrap();
    let witness = Witness::open(vec![client], dns_address).unwrap();
    let (mut tried, mut failures) = (0, Vec::new());
    for row in ROWS {
        let Some(name) = name(row) else { continue };
        tried += 1;
        for (kind, udp) in [(A, true), (AAAA, true), (HTTPS, true), (A, false)] {
            dns.reset(scripts(row), None);
            witness.clear();
            egret.audit_news();
            let question = Question::for_octets(&name, kind, Some(1232));
            let answer = match udp {
                true => ask_from(client, egret.names, &question).expect("an answer"),
                false => Connection::open(egret.names).ask(&question),
            };
            let dialled = witness.dials().into_iter().any(|target| target != egret.names);
            let news = String::from_utf8(egret.audit_news()).unwrap();
            for problem in problems(row, kind, &answer, &news, dns.queries().len()) {
                failures.push(format!("{} {kind}: {problem}", row.host.escape_ascii()));
            }
            assert!(!dialled, "{} was dialled", row.host.escape_ascii());
        }
    }
    assert!(tried > ROWS.len() / 2, "only {tried} of {} rows", ROWS.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What is wrong with an answer to a row, and with its record.
fn problems(row: &Row, kind: u16, answer: &Message, news: &str, queries: usize) -> Vec<String> {
    let (mut out, reason) = (Vec::new(), reason(row));
    let mut expect = |what: String, good: bool| {
        if !good {
            out.push(what);
        }
    };
    let said = if code(reason) == 5 { reason } else { "" };
    expect(format!("the answer was {:?}", answer.refusal()), answer.refusal() == (code(reason), said));
    let permitted = row.answers.iter().map(|text| text.parse::<IpAddr>().unwrap());
    let permitted = permitted.filter(|address| reason == "allowed" && address.is_ipv4() == (kind == A));
    let permitted: Vec<_> = permitted.filter(|_| kind != HTTPS).collect();
    expect(format!("it told {:?}", answer.addresses()), answer.addresses() == permitted);
    let unasked = row.end == End::RefusedUnasked || reason == "bad_request";
    // That there is no such name is remembered for a moment.
    let known = queries == 0 && reason == "dns_not_found";
    expect(format!("{queries} questions were passed on"), known || (queries == 0) == unasked);
    let records = news.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let records: Vec<_> = records.filter(|record| record["event"] != "start").collect();
    let [record] = records.as_slice() else {
        expect(format!("{} records", records.len()), false);
        return out;
    };
    let verdict = if matches!(reason, "allowed" | "dns_not_found") { "allow" } else { "deny" };
    for (key, value) in [
        ("event", "decision"),
        ("protocol", "dns"),
        ("sandbox", "box"),
        ("verdict", verdict),
        ("reason", reason),
    ] {
        expect(format!("{key} is {}", record[key]), record[key] == value);
    }
    expect("a port is recorded".to_owned(), record.get("port").is_none());
    out
}
