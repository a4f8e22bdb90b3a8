//! The attacks, by every way in, in a world where every address answers and every dial is seen.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::rows::{End, POLICY, ROWS, Row};
use crate::support::dns_server::{Answer, DnsServer};
use crate::support::egret::{Egret, SocksAt};
use crate::support::sink::{Script, Sink};
use crate::support::wait_for;
use crate::support::witness::Witness;
use crate::support::world::{self, CLIENT, DNS_ADDRESS, World};
use crate::ways::{self, Place, Told, UNAWARE, WAYS, Way};

const PATIENCE: Duration = Duration::from_secs(30);
/// For a dial that follows a refusal.
const GRACE: Duration = Duration::from_millis(200);

/// The closed world with everything in it.
struct Bench {
    egret: Egret,
    sink: Sink,
    dns: DnsServer,
    witness: Witness,
    /// Does the system divert connections to egret?
    diverts: bool,
    _world: World,
}

impl Bench {
    fn open(files: &Path) -> Self {
        let world = World::enter(files).unwrap();
        let sink = Sink::start([22, 25, 80, 443, 8080]).unwrap();
        let dns_address = SocketAddr::new(DNS_ADDRESS.parse().unwrap(), 53);
        let dns = DnsServer::start(dns_address, |_| Ipv4Addr::new(151, 101, 66, 66)).unwrap();
        let config = format!("[dns]\nservers = [\"{dns_address}\"]\n{POLICY}");
        let egret = Egret::with(config).socks(SocksAt::OwnPort).listen_lines(ways::LISTEN).start();
        let clients = [CLIENT, UNAWARE[0], UNAWARE[1]].map(|address| address.parse().unwrap());
        let witness = Witness::open(clients.to_vec(), dns_address).unwrap();
        let diverted = ways::divert();
        if let Err(missing) = &diverted {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "nothing can be diverted: {missing}");
            println!("diverted connections are not tried: {missing}");
        }
        Self { egret, sink, dns, witness, diverts: diverted.is_ok(), _world: world }
    }

    /// The ways that there are here.
    fn ways(&self) -> impl Iterator<Item = &'static Way> {
        WAYS.iter().filter(|way| self.diverts || way.protocol != ways::DIVERTED)
    }

    /// Asks for the place of a row by one way; its decision and all that is wrong.
    fn run(&self, way: &Way, row: &Row) -> Option<(Value, Vec<String>)> {
        self.egret.audit_news();
        let script = Script { tunnel: row.inside.is_some(), ..Script::default() };
        self.sink.begin(script);
        self.witness.clear();
        self.dns.reset(scripts(row), None);
        let told = (way.ask)(&self.egret, &Place { host: row.host, port: row.port })?;
        let mut problems = Vec::new();
        let mut expect = |what: &str, good: bool| {
            if !good {
                problems.push(what.to_owned());
            }
        };
        let mut records = self.news("decision");
        let decision = match way.tunnels || row.end != End::Arrives {
            true => records.remove(0),
            false => records.pop().unwrap(),
        };
        expect("more than one decision", records.is_empty());
        let opens = matches!(row.end, End::Arrives | End::Closed);
        match told {
            Told::Open(mut client) => {
                expect("it was let in", opens);
                if let Some(inside) = row.inside {
                    client.send(inside());
                }
                if row.end == End::Closed {
                    expect("octets came back", client.until_end().is_empty());
                    let end = self.end_of(&decision["id"]);
                    expect(&format!("it ended with {}", end["reason"]), end["reason"] == row.reason);
                    expect("octets are counted", end["bytes_up"] == 0 && end["bytes_down"] == 0);
                    expect("octets arrived", self.sink.received() == 0);
                } else if row.inside.is_some() {
                    wait_for("octets at the target", PATIENCE, || self.sink.received() > 0);
                }
                drop(client);
            }
            Told::Refused(word) => {
                expect("it was refused", !opens);
                expect(&format!("the client was told {word}"), word == (way.word)(row.reason));
            }
        }
        if opens {
            wait_for("a dial", PATIENCE, || !self.witness.dials().is_empty());
        } else {
            expect(&format!("dialled {:?}", self.witness.dials()), self.witness.dials().is_empty());
        }
        let unasked = row.end != End::RefusedUnasked || self.dns.queries().is_empty();
        expect("a name was looked up", unasked);
        let decided = if row.end == End::Closed { "allowed" } else { row.reason };
        expect(&format!("the decision says {}", decision["reason"]), decision["reason"] == decided);
        let wants = if opens || row.reason == "dns_not_found" { "allow" } else { "deny" };
        expect(&format!("the verdict is {}", decision["verdict"]), decision["verdict"] == wants);
        expect("it is the sandbox's", decision["sandbox"] == "box" && decision["policy"] != "");
        let protocol = &decision["protocol"];
        // What has no head that could be read has none.
        let named = *protocol == way.protocol || protocol.is_null() && decision["method"].is_null();
        expect(&format!("the protocol is {protocol}"), named);
        self.sink.end();
        Some((decision, problems))
    }

    /// The closing record of a tunnel.
    fn end_of(&self, id: &Value) -> Value {
        let ends = || self.egret.events("close").into_iter().find(|end| end["id"] == *id);
        wait_for("the closing record", PATIENCE, || ends().is_some());
        ends().unwrap()
    }

    /// The records of a kind since the last time.
    fn news(&self, event: &str) -> Vec<Value> {
        let news = String::from_utf8(self.egret.audit_news()).unwrap();
        let records = news.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.filter(|record| record["event"] == event).collect()
    }
}

/// What DNS says to a row; nothing exists that it does not name.
fn scripts(row: &Row) -> HashMap<String, Vec<Answer>> {
    let name = String::from_utf8_lossy(row.host).to_ascii_lowercase();
    let mut answer = Answer::default();
    if row.answers.is_empty() {
        answer = Answer::rcode("NXDOMAIN");
    }
    for address in row.answers {
        let one = Answer::address(address.parse().unwrap());
        // No row's answer is to be known to the next one.
        answer.a.extend(one.a.iter().map(|(address, _)| (*address, 0)));
        answer.aaaa.extend(one.aaaa.iter().map(|(address, _)| (*address, 0)));
    }
    HashMap::from([(name.trim_end_matches('.').to_owned(), vec![answer])])
}

#[test]
fn every_way_in_ends_alike() {
    world::in_a_world("attacks::every_way_in_ends_alike", try_every_way_in);
}

fn try_every_way_in() {
    let files = TempDir::with_prefix("egret-entries-").unwrap();
    let bench = Bench::open(files.path());
    let mut failures = Vec::new();
    let mut tried = 0;
    for row in ROWS {
        let mut first: Option<(&str, Value)> = None;
        for way in bench.ways().filter(|way| way.tunnels || row.inside.is_none()) {
            let Some((decision, problems)) = bench.run(way, row) else { continue };
            tried += 1;
            let host = String::from_utf8_lossy(row.host);
            for problem in problems {
                failures.push(format!("{host}:{} by {}: {problem}\n  {decision}", row.port, way.name));
            }
            // Of what is no destination each shows what stood there.
            let same = |key: &str| first.as_ref().is_none_or(|(_, other)| other[key] == decision[key]);
            for key in ["verdict", "reason", "rule", "policy", "addresses", "host", "port"] {
                let differs = row.reason == "bad_request" && matches!(key, "host" | "port");
                if !same(key) && !differs {
                    let other = first.as_ref().map(|(name, other)| format!("{name}: {}", other[key]));
                    failures.push(format!("{host} by {}: {key} is {}, {other:?}", way.name, decision[key]));
                }
            }
            first.get_or_insert((way.name, decision));
        }
    }
    std::thread::sleep(GRACE);
    assert!(tried > 3 * ROWS.len() / 2, "only {tried} questions for {} rows", ROWS.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_listeners_themselves_are_out_of_reach() {
    world::in_a_world("attacks::the_listeners_themselves_are_out_of_reach", reach_for_the_listeners);
}

fn reach_for_the_listeners() {
    let files = TempDir::with_prefix("egret-entries-").unwrap();
    let bench = Bench::open(files.path());
    // Names that any address would be permitted for, but for these.
    bench.egret.configure(&format!(
        "[dns]\nservers = [\"{DNS_ADDRESS}:53\"]\n[[sandbox]]\nid = \"box\"\nsource = [\"0.0.0.0/0\"]\npolicy = \"main\"\n\
         [[policy.main.allow]]\naddresses = [\"127.0.0.0/8\"]\nports = \"1-65535\"\n\
         [[policy.main.allow]]\ndomains = [\"own.test\"]\naddresses = [\"127.0.0.0/8\"]\nports = \"1-65535\"\n"
    ));
    assert_eq!(bench.egret.reload().status, 200);
    bench.witness.clear();
    let own = Answer::address(Ipv4Addr::LOCALHOST.into());
    bench.dns.reset(HashMap::from([("own.test".to_owned(), vec![own])]), None);
    for port in [bench.egret.proxy.port(), bench.egret.socks.port(), bench.egret.control.port()] {
        for way in bench.ways() {
            for host in ["127.0.0.1", "own.test"] {
                let Some(told) = (way.ask)(&bench.egret, &Place { host: host.as_bytes(), port }) else {
                    continue;
                };
                let Told::Refused(word) = told else { panic!("{host}:{port} was open by {}", way.name) };
                assert_eq!(word, (way.word)("address_forbidden"), "{host}:{port} by {}", way.name);
            }
        }
    }
    std::thread::sleep(GRACE);
    assert!(bench.witness.dials().is_empty(), "{:?}", bench.witness.dials());
}

#[test]
fn observing_lets_every_way_pass_and_says_so() {
    world::in_a_world("attacks::observing_lets_every_way_pass_and_says_so", observe_every_way_in);
}

fn observe_every_way_in() {
    let files = TempDir::with_prefix("egret-entries-").unwrap();
    let bench = Bench::open(files.path());
    let text = POLICY.replace("[policy.main]\n", "[policy.main]\nmode = \"observe\"\n");
    bench.egret.configure(&format!("[dns]\nservers = [\"{DNS_ADDRESS}:53\"]\n{text}"));
    assert_eq!(bench.egret.reload().status, 200);
    bench.egret.audit_news();
    for way in bench.ways() {
        // What only the allow rules refuse passes; private and denied places do not.
        for (host, verdict) in [
            ("elsewhere.test", "would_deny"),
            ("1.1.1.1", "would_deny"),
            ("10.0.0.1", "deny"),
            ("denied.allowed.test", "deny"),
        ] {
            let Some(told) = (way.ask)(&bench.egret, &Place { host: host.as_bytes(), port: 80 }) else {
                continue;
            };
            assert_eq!(matches!(told, Told::Open(_)), verdict == "would_deny", "{host} by {}", way.name);
            let decision = bench.news("decision").pop().unwrap();
            assert_eq!(
                (&decision["verdict"], &decision["protocol"]),
                (&verdict.into(), &way.protocol.into())
            );
        }
    }
}
