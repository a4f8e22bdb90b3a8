//! What a sandbox may use, and what ends what it has open, by every way in alike: limits, another
//! policy, the end of the process.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::asker::{Connection, Question, ask_from};
use crate::support::client::{Client, connect_from};
use crate::support::dns_message::A;
use crate::support::dns_server::{Answer, DnsServer};
use crate::support::egret::{Egret, SocksAt};
use crate::support::sink::{Script, Sink};
use crate::support::wait_for;
use crate::support::world::{self, CLIENT, DNS_ADDRESS, World};
use crate::ways::{self, DIVERTED, Place, Told, UNAWARE, WAYS, Way};

const LIMIT: Duration = Duration::from_secs(30);
/// Places that the policy allows, by name and by address. DNS is silent about the last two.
pub const NAMES: [&str; 4] = ["one.test", "two.test", "silent.test", "quiet.test"];
pub const ADDRESSES: [&str; 2] = ["93.184.215.14", "93.184.215.15"];

/// Nobody has the other half of it.
const TOKEN_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

pub struct Bounds {
    pub egret: Egret,
    sink: Sink,
    _dns: DnsServer,
    diverts: bool,
    policies: AtomicUsize,
    _files: TempDir,
    _world: World,
}

/// Everybody is one sandbox, under the policy of this number.
fn config(number: usize, limits: &str) -> String {
    let [one, two] = ADDRESSES;
    format!(
        "[timeouts]\nheader = \"60s\"\n\n\
         [dns]\nservers = [\"{DNS_ADDRESS}:53\"]\ntimeout = \"3s\"\n\
         hosts = {{ \"one.test\" = [\"{one}\"], \"two.test\" = [\"{two}\"] }}\n\n\
         [[sandbox]]\nid = \"box\"\nsource = [\"0.0.0.0/0\", \"::/0\"]\npolicy = \"p{number}\"\n\n\
         [policy.p{number}]\n[[policy.p{number}.allow]]\ndomains = {NAMES:?}\n\
         [[policy.p{number}.allow]]\naddresses = [\"{one}\", \"{two}\"]\n\
         [policy.p{number}.limits]\n{limits}\n"
    )
}

impl Bounds {
    pub fn open(shell: &str) -> Self {
        let files = TempDir::with_prefix("egret-entries-").unwrap();
        let world = World::enter(files.path()).unwrap();
        let dns =
            DnsServer::start(format!("{DNS_ADDRESS}:53").parse().unwrap(), |_| [151, 101, 66, 66].into());
        let mut building = Egret::with(config(0, ""))
            .socks(SocksAt::OwnPort)
            .names("127.0.0.1:0".parse().unwrap())
            .file("token.pub", TOKEN_KEY)
            .listen_lines(ways::LISTEN);
        if !shell.is_empty() {
            building = building.shell(shell);
        }
        let egret = building.start();
        let sink = Sink::start([80]).unwrap();
        sink.begin(Script { patient: true, ..Script::default() });
        let diverted = ways::divert();
        assert!(diverted.is_ok() || std::env::var("CI").is_err(), "{diverted:?}");
        let (diverts, policies) = (diverted.is_ok(), AtomicUsize::new(1));
        Self { egret, sink, _dns: dns.unwrap(), diverts, policies, _files: files, _world: world }
    }

    /// Begins anew under these limits, of which nothing is used.
    fn limited(&self, limits: &str) {
        self.sink.end();
        let number = self.policies.fetch_add(1, Ordering::Relaxed);
        self.egret.configure(&config(number, limits));
        let answer = self.egret.reload();
        assert_eq!(answer.status, 200, "{answer:?}");
        self.egret.audit_news();
    }

    pub fn ways(&self) -> impl Iterator<Item = &'static Way> {
        WAYS.iter().filter(|way| self.diverts || way.protocol != DIVERTED)
    }

    /// Ways whose connection the client has to itself, once it is let in.
    fn tunnels(&self) -> impl Iterator<Item = &'static Way> {
        self.ways().filter(|way| is_tunnel(way))
    }

    fn ask(&self, way: &Way, place: usize) -> Told {
        let by_address = way.name.ends_with("address");
        let host = if by_address { ADDRESSES[place] } else { NAMES[place] };
        (way.ask)(&self.egret, &Place { host: host.as_bytes(), port: 80 }).expect("a place like any other")
    }

    fn asked(&self, way: &Way, place: usize) -> String {
        match self.ask(way, place) {
            Told::Open(_) => "open".to_owned(),
            Told::Refused(word) => word,
        }
    }

    /// A way out that stays open: a tunnel, or a request whose body is not there yet.
    fn hold(&self, way: &Way) -> Client {
        if is_tunnel(way) {
            let Told::Open(client) = self.ask(way, 0) else { panic!("{}: it was refused", way.name) };
            return client;
        }
        let (mut client, target) = match way.protocol {
            DIVERTED => {
                (Client::connect_from(UNAWARE[0], format!("{}:80", ADDRESSES[0]).parse().unwrap()), "/")
            }
            _ => (Client::connect_from(CLIENT, self.egret.proxy), "http://one.test/"),
        };
        let before = self.egret.events("decision").len();
        client
            .send(format!("POST {target} HTTP/1.1\r\nHost: one.test\r\nContent-Length: 1000000\r\n\r\nsome"));
        wait_for("a decision", LIMIT, || self.egret.events("decision").len() > before);
        client
    }

    /// The one closing record since the last `audit_news`, once it is there.
    fn end(&self, way: &Way) -> Value {
        let mut text = String::new();
        wait_for(&format!("the closing record by {}", way.name), LIMIT, || {
            text += &String::from_utf8(self.egret.audit_news()).unwrap();
            text.contains("\"event\":\"close\"")
        });
        let mut records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.rfind(|record| record["event"] == "close").unwrap()
    }

    fn last_detail(&self) -> Value {
        self.egret.events("decision").pop().unwrap()["detail"].clone()
    }
}

fn is_tunnel(way: &Way) -> bool {
    way.tunnels || way.name == "diverted, server name"
}

#[test]
fn rates_and_distinct_hosts_hold() {
    world::in_a_world("bounds::rates_and_distinct_hosts_hold", || {
        let bounds = Bounds::open("");
        for way in bounds.ways() {
            bounds.limited("requests = \"1/h burst 2\"");
            let said = [0; 3].map(|place| bounds.asked(way, place));
            assert_eq!(said, ["open", "open", &(way.word)("rate_limited")], "{}", way.name);
            assert_eq!(bounds.last_detail(), "limit: requests", "{}", way.name);
            bounds.limited("domains = \"1/h\"");
            let said = [0, 1, 0].map(|place| bounds.asked(way, place));
            assert_eq!(said, ["open", &(way.word)("quota_exceeded"), "open"], "{}", way.name);
            // Names that are asked for count with them.
            let answer = ask_from(CLIENT.parse().unwrap(), bounds.egret.names, &Question::new(NAMES[1], A));
            let answer = answer.unwrap();
            assert_eq!(answer.refusal(), (5, "quota_exceeded"), "{}", way.name);
            assert_eq!(bounds.last_detail(), "limit: domains", "{}", way.name);
        }
    });
}

#[test]
fn slots_are_taken_and_come_back() {
    world::in_a_world("bounds::slots_are_taken_and_come_back", || {
        let bounds = Bounds::open("");
        for way in bounds.ways() {
            bounds.limited("connections = 1");
            let held = bounds.hold(way);
            for other in bounds.ways() {
                let wanted = (other.word)("too_many_connections");
                assert_eq!(bounds.asked(other, 0), wanted, "{} after {}", other.name, way.name);
            }
            drop(held);
            wait_for("a slot", LIMIT, || bounds.asked(way, 0) == "open");
        }
    });
}

#[test]
fn bytes_run_out() {
    world::in_a_world("bounds::bytes_run_out", || {
        let bounds = Bounds::open("");
        for way in bounds.ways() {
            bounds.limited("bytes = \"50kB/day\"");
            let mut client = bounds.hold(way);
            // The end may come while this is being sent.
            let _ = client.stream.write_all(&[b'x'; 80_000]);
            client.until_end();
            let end = bounds.end(way);
            assert_eq!(end["reason"], "quota_exceeded", "{}: {end}", way.name);
            let carried = end["bytes_up"].as_u64().unwrap() + end["bytes_down"].as_u64().unwrap();
            // A part of a body that does not fit whole does not pass at all.
            let exact = is_tunnel(way);
            assert!(if exact { carried == 50_000 } else { carried <= 50_000 }, "{}: {end}", way.name);
            for other in bounds.ways().filter(|_| exact) {
                assert_eq!(bounds.asked(other, 0), (other.word)("quota_exceeded"), "{}", other.name);
            }
        }
    });
}

#[test]
fn tunnels_end_in_time() {
    world::in_a_world("bounds::tunnels_end_in_time", || {
        let bounds = Bounds::open("");
        for (limits, reason) in
            [("tunnel_idle = \"1s\"", "idle_timeout"), ("tunnel_lifetime = \"1s\"", "lifetime_exceeded")]
        {
            bounds.limited(limits);
            for way in bounds.tunnels() {
                bounds.egret.audit_news();
                bounds.hold(way).until_end();
                assert_eq!(bounds.end(way)["reason"], reason, "{}", way.name);
            }
        }
    });
}

#[test]
fn another_policy_ends_what_it_refuses() {
    world::in_a_world("bounds::another_policy_ends_what_it_refuses", || {
        let bounds = Bounds::open("");
        let text = config(7, "");
        let refusing = text.replace("\"one.test\", ", "").replace(ADDRESSES[0], "93.184.215.99");
        let elsewhere = text.replace("source = [\"0.0.0.0/0\", \"::/0\"]", "source = [\"198.51.100.0/24\"]");
        let held_back = text.replace("policy = \"p7\"", "policy = \"p7\"\nauth = \"token\"");
        let token_keys = format!("[identity]\ntoken_keys = [{:?}]\n\n", bounds.egret.dir().join("token.pub"));
        for change in [refusing, elsewhere, token_keys + &held_back] {
            bounds.limited("");
            let mut held: Vec<_> = bounds.ways().map(|way| (way, bounds.hold(way))).collect();
            let before = bounds.egret.events("close").len();
            bounds.egret.configure(&change);
            assert_eq!(bounds.egret.reload().status, 200);
            for (_, client) in &mut held {
                client.until_end();
            }
            let ends = || bounds.egret.events("close").split_off(before);
            wait_for("the closing records", LIMIT, || ends().len() == held.len());
            for end in ends() {
                assert_eq!(end["reason"], "policy_changed", "{end}");
            }
        }
    });
}

#[test]
fn a_stop_lets_what_is_open_end() {
    world::in_a_world("bounds::a_stop_lets_what_is_open_end", try_stop);
}

fn try_stop() {
    let mut bounds = Bounds::open("");
    bounds.limited("");
    let ways: Vec<_> = bounds.ways().collect();
    let mut held: Vec<_> = ways.iter().map(|way| bounds.hold(way)).collect();
    // Half of a first line, and questions whose answer takes until the end of a look-up.
    let mut half = bounds.diverts.then(|| {
        let mut client = Client::connect_from(UNAWARE[0], format!("{}:80", ADDRESSES[0]).parse().unwrap());
        client.send("GE");
        client
    });
    let silent = [NAMES[2].to_owned(), NAMES[3].to_owned()];
    bounds._dns.reset(silent.clone().map(|name| (name, vec![Answer::rcode("TIMEOUT")])).into(), None);
    let names = bounds.egret.names;
    let by_udp = std::thread::spawn(move || {
        ask_from(CLIENT.parse().unwrap(), names, &Question::new(NAMES[2], A)).expect("an answer")
    });
    let mut by_tcp = Connection::open(names);
    by_tcp.send(&Question::new(NAMES[3], A).octets);
    let mut idle = Connection::open(names);
    wait_for("both questions", LIMIT, || {
        silent.iter().all(|name| bounds._dns.queries().iter().any(|asked| asked.name == *name))
    });
    bounds.egret.signal(Signal::TERM);
    assert_eq!(by_tcp.receive().expect("an answer").refusal(), (2, "dns_timeout"));
    assert_eq!(by_udp.join().unwrap().refusal(), (2, "dns_timeout"));
    assert!(by_tcp.receive().is_none() && idle.receive().is_none());
    if let Some(half) = &mut half {
        assert!(half.until_end().is_empty(), "what has not been asked is not answered");
    }
    let before = bounds.sink.received();
    for (way, client) in ways.iter().zip(&mut held) {
        client.send("still");
        assert!(bounds.egret.exited().is_none(), "{}", way.name);
    }
    wait_for("octets of all", LIMIT, || bounds.sink.received() == before + 5 * held.len());
    drop(held);
    assert!(bounds.egret.wait().success());
    let ends = bounds.egret.events("close");
    assert_eq!(ends.len(), ways.len());
    assert_eq!(bounds.egret.events("stop").len(), 1);
}

#[test]
fn beyond_the_ceiling_nothing_looks_like_an_answer() {
    world::in_a_world("bounds::beyond_the_ceiling_nothing_looks_like_an_answer", try_ceiling);
}

fn try_ceiling() {
    // Descriptors for one client beside the reserve.
    let bounds = Bounds::open("ulimit -n 68");
    if !bounds.diverts {
        return;
    }
    let target = format!("{}:80", ADDRESSES[0]).parse().unwrap();
    // A reset may come before the connection is known to be there.
    let connect = || {
        let stream = connect_from(UNAWARE[0].parse().unwrap(), target)?;
        stream.set_read_timeout(Some(LIMIT)).map(|()| stream)
    };
    let mut held = None;
    // The place of whoever asked whether it was up may not be free yet.
    wait_for("a place", LIMIT, || {
        let asked = connect().and_then(|mut stream| {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: one.test\r\n\r\n")?;
            stream.peek(&mut [0])?;
            Ok(stream)
        });
        held = asked.ok();
        held.is_some()
    });
    let turned_away = connect().and_then(|mut stream| stream.read(&mut [0])).expect_err("a reset");
    assert_eq!(turned_away.kind(), ErrorKind::ConnectionReset);
    let limit = || bounds.egret.events("limit").pop();
    wait_for("a record", LIMIT, || limit().is_some_and(|record| record["sandbox"] == "box"));
    let record = limit().unwrap();
    assert_eq!((&record["limit"], &record["reason"]), (&"max_connections".into(), &"overloaded".into()));
}
