//! What the ledger, the control interface and `egret domains` say of each way in.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::bounds::{ADDRESSES, Bounds, NAMES};
use crate::support::asker::{Question, ask_from};
use crate::support::dns_message::A;
use crate::support::egret::BINARY;
use crate::support::wait_for;
use crate::support::world::{self, CLIENT};
use crate::ways::{DIVERTED, Place, Told};

#[test]
fn every_way_in_is_known_by_the_same_fields() {
    world::in_a_world("known::every_way_in_is_known_by_the_same_fields", try_fields);
}

fn try_fields() {
    let bounds = Bounds::open("");
    let (mut allowed, mut asked) = (BTreeMap::new(), Vec::new());
    for way in bounds.ways() {
        let by_address = way.name.ends_with("address");
        let places =
            if by_address { [ADDRESSES[0], "93.184.215.99"] } else { [NAMES[0], "elsewhere.example"] };
        for (place, opens) in places.into_iter().zip([true, false]) {
            let told = (way.ask)(&bounds.egret, &Place { host: place.as_bytes(), port: 80 }).unwrap();
            assert_eq!(matches!(told, Told::Open(_)), opens, "{} {place}", way.name);
            asked.push((way.protocol, place, Some(80)));
        }
        *allowed.entry(places[0]).or_insert(0) += 1;
    }
    for name in [NAMES[0], "elsewhere.example"] {
        ask_from(CLIENT.parse().unwrap(), bounds.egret.names, &Question::new(name, A)).unwrap();
        asked.push(("dns", name, None));
    }
    let decisions = decisions(&bounds, "");
    assert_eq!(decisions.len(), asked.len());
    // Newest first.
    for (record, (protocol, host, port)) in decisions.iter().rev().zip(&asked) {
        let has = |key: &str| !record[key].is_null();
        assert_eq!(
            (&record["protocol"], &record["host"]),
            (&(*protocol).into(), &(*host).into()),
            "{record}"
        );
        assert_eq!(record["port"].as_u64(), *port, "{record}");
        assert!(["ts", "id", "client", "reason", "generation"].iter().all(|key| has(key)), "{record}");
        let who = ["sandbox", "identity", "policy"].map(|key| record[key].clone());
        assert_eq!(who, ["box", "source", "p0"].map(Value::from), "{record}");
        let verdict = if NAMES.contains(host) || ADDRESSES.contains(host) { "allow" } else { "deny" };
        assert_eq!(record["verdict"], verdict, "{record}");
        assert_eq!(has("original"), *protocol == DIVERTED, "{record}");
        assert_eq!(has("qtype"), *protocol == "dns", "{record}");
        assert_eq!(has("dialed"), verdict == "allow" && *protocol != "dns", "{record}");
        // What speaks HTTP with egret has a method, and nothing else has.
        let http =
            matches!(*protocol, "connect" | "http") || *protocol == DIVERTED && record["scheme"] == "http";
        assert_eq!(has("method"), http, "{record}");
    }
    let of_host = self::decisions(&bounds, "&host=elsewhere.example&verdict=deny");
    assert_eq!(of_host.len(), asked.iter().filter(|(_, host, _)| *host == "elsewhere.example").count());
    // What is open still ends before it is counted.
    wait_for("the closing records", std::time::Duration::from_secs(30), || {
        bounds.egret.events("close").len() == allowed.values().sum::<usize>()
    });
    let control = bounds.egret.control.to_string();
    let run = Command::new(BINARY)
        .args(["domains", "--json", "--sandbox", "box", "--control", &control])
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let rows = String::from_utf8(run.stdout).unwrap();
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let row = |host: &str, port: Option<u64>| {
        let found = rows.iter().find(|row| row["host"] == host && row["port"].as_u64() == port);
        found.unwrap_or_else(|| panic!("no row for {host} {port:?}: {rows:?}"))
    };
    for (host, count) in &allowed {
        let row = row(host, Some(80));
        assert_eq!((&row["requests"], &row["allow"]), (&(*count).into(), &(*count).into()), "{row}");
        assert!(row["bytes_down"].as_u64().unwrap() > 0, "{row}");
        assert_eq!(row["last_verdict"], "allow", "{row}");
    }
    for name in [NAMES[0], "elsewhere.example"] {
        let row = row(name, None);
        assert_eq!((&row["requests"], &row["bytes_down"]), (&1.into(), &0.into()), "{row}");
    }
    let refused = row("elsewhere.example", Some(80));
    assert_eq!(
        (&refused["deny"], &refused["last_reason"]),
        (&refused["requests"], &"domain_not_allowed".into())
    );
    let address = row("93.184.215.99", Some(80));
    assert_eq!(
        (&address["deny"], &address["last_reason"]),
        (&address["requests"], &"address_not_allowed".into())
    );
}

fn decisions(bounds: &Bounds, more: &str) -> Vec<Value> {
    let answer = bounds.egret.control("GET", &format!("/v1/decisions?sandbox=box&limit=1000{more}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut body: Value = serde_json::from_slice(&answer.body).unwrap();
    body["decisions"].as_array_mut().unwrap().drain(..).collect()
}
