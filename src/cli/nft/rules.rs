//! The text of the rule set.
//!
//! What is not named here is dropped, so the list of what may pass is the whole of it: connections to
//! egret's listeners, TCP that is diverted to one of them, and neighbour discovery.

use std::fmt::Write;
use std::net::SocketAddr;

use super::routes::{Family, MARK, commands};
use crate::config::Listen;

/// Without it there is no IPv6 at all.
const NEIGHBOURS: &str =
    "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } ip6 hoplimit 255 accept";
/// What answers connections that were made to the sandboxes' side.
const REPLIES: &str = "ct direction reply ct state established accept";
/// DNS, and DNS over TLS, to anyone else than egret.
const FOREIGN_DNS: &str = "tcp dport { 53, 853 } drop";
/// The same in datagrams.
const FOREIGN_DATAGRAMS: &str = "udp dport { 53, 853 } drop";
/// Where container engines answer DNS within a container's own namespace, behind a port of any number.
const ENGINE: &str = "ip daddr 127.0.0.11 drop";

/// The loopback of a namespace.
const OWN_4: &str = "ip daddr 127.0.0.0/8 accept";
/// The same over IPv6.
const OWN_6: &str = "ip6 daddr ::1 accept";
/// A client of TCP hears of it at once.
const RESET: &str = "reject with tcp reset";

/// Which traffic the rules are about.
pub(super) enum Side {
    /// What comes from these interfaces.
    Interfaces(Vec<String>),
    /// What this namespace sends, but for this user.
    User(u32),
}

/// A rule set as it was written.
pub(super) struct Written {
    pub(super) text: String,
    /// Families whose routes it needs beside it.
    pub(super) routes: Vec<Family>,
}

/// A rule set to be written.
pub(super) struct RuleSet<'a> {
    pub(super) table: &'a str,
    pub(super) side: Side,
    pub(super) tproxy: bool,
}

/// Removes the table, whether or not it is there, in one transaction.
pub(super) fn removal(table: &str) -> String {
    // Declaring it first makes sure that there is one to delete.
    format!("table inet {table}\ndelete table inet {table}\n")
}

impl RuleSet<'_> {
    /// The rule set for these listeners.
    ///
    /// # Errors
    /// A listener has no port yet, or none can be reached.
    pub(super) fn write(&self, listen: &Listen) -> Result<Written, String> {
        let doors = Doors::of(listen, matches!(self.side, Side::User(_)))?;
        let mut out =
            String::from("# Made by `egret nft`, which replaces this table and touches no other one.\n");
        if doors.transparent.is_empty() {
            out.push_str(
                "# [listen] transparent names nothing that can be reached: TCP is dropped, not diverted.\n",
            );
        }
        let mut routes = Vec::new();
        if self.tproxy {
            routes.extend(doors.transparent.iter().map(|&address| family(address)));
            push(&mut out, "# TPROXY needs these routes beside the table, which --apply sets:");
            commands(&routes).for_each(|command| push(&mut out, &format!("#   {command}")));
        }
        out.push_str(&removal(self.table));
        push(&mut out, &format!("table inet {} {{", self.table));
        match &self.side {
            Side::Interfaces(names) => self.write_interfaces(&mut out, names, &doors),
            Side::User(user) => write_user(&mut out, *user, &doors),
        }
        out.push_str("}\n");
        Ok(Written { text: out, routes })
    }

    fn write_interfaces(&self, out: &mut String, names: &[String], doors: &Doors) {
        let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
        // A set can't hold a name with a `*`.
        let other = names.iter().map(|name| format!("iifname != {name}")).collect::<Vec<_>>().join(" ");
        let others = format!("{other} accept");
        let known = "fib saddr . iif oif missing drop";
        let mut arrive = vec![others.as_str(), NEIGHBOURS, REPLIES, known];
        let listeners = doors.accepts();
        arrive.extend(listeners.iter().map(String::as_str));
        arrive.push(FOREIGN_DNS);
        let families: Vec<_> =
            doors.families().map(|f| format!("meta nfproto {f} meta l4proto tcp accept")).collect();
        arrive.extend(families.iter().map(String::as_str));
        arrive.push("drop");
        chain(out, "arrive", "filter hook prerouting priority mangle", &arrive);

        let mut divert = vec![others.as_str()];
        divert.extend(listeners.iter().map(String::as_str));
        let diverts = if self.tproxy { doors.tproxies() } else { redirects(&doors.transparent) };
        divert.extend(diverts.iter().map(String::as_str));
        // A name for a priority may stand with an offset: behind `arrive`, before any routing.
        let kind = if self.tproxy {
            "filter hook prerouting priority mangle + 1"
        } else {
            "nat hook prerouting priority dstnat"
        };
        chain(out, "divert", kind, &divert);

        let mut input = vec![others.as_str(), NEIGHBOURS, REPLIES];
        input.extend(listeners.iter().map(String::as_str));
        let diverted = format!("meta mark {MARK:#x} meta l4proto tcp accept");
        if self.tproxy {
            input.push(&diverted);
        }
        input.push("drop");
        chain(out, "input", "filter hook input priority filter", &input);
        chain(out, "forward", "filter hook forward priority filter", &[&others, "drop"]);
    }
}

/// What this namespace sends. The first packet of egret's own connections shows its user; the last
/// ones may show none, so the connection is marked.
fn write_user(out: &mut String, user: u32, doors: &Doors) {
    let own = format!("meta skuid {user} ct mark set {MARK:#x} accept");
    let marked = format!("ct mark {MARK:#x} accept");
    let local = "fib daddr type local accept";
    let control = format!("{} drop", place(doors.control, "tcp"));
    let listeners = doors.accepts();
    let mut leave = vec![own.as_str(), &marked, &control, NEIGHBOURS, REPLIES];
    leave.extend(listeners.iter().map(String::as_str));
    leave.extend([FOREIGN_DNS, FOREIGN_DATAGRAMS, ENGINE, local, "meta l4proto tcp accept", "drop"]);
    chain(out, "leave", "filter hook output priority mangle", &leave);

    let mut divert = vec![marked.as_str(), local];
    let diverts = redirects(&doors.transparent);
    divert.extend(diverts.iter().map(String::as_str));
    chain(out, "divert", "nat hook output priority -100", &divert);

    let output = [marked.as_str(), &control, NEIGHBOURS, REPLIES, local, "drop"];
    chain(out, "output", "filter hook output priority filter", &output);
}

/// The rules within `egret run --transparent`: a namespace in which all that is sent stays, wherever it
/// was meant to go. TCP comes to one of these addresses, but for what is meant for the loopback, where
/// the command may have servers of its own.
///
/// Nothing depends on them but who hears of what: there is no way out that they could close.
pub(in crate::cli) fn of_run(transparent: &[SocketAddr]) -> String {
    // Nothing that was diverted carries these addresses yet.
    let direct = transparent.iter().map(|&to| format!("{} {RESET}", place(to, "tcp")));
    let mut leave: Vec<String> = direct.collect();
    leave.extend([OWN_4, OWN_6, REPLIES].map(str::to_owned));
    leave.push(format!("tcp dport {{ 53, 853 }} {RESET}"));
    leave.extend(["meta l4proto tcp accept", "drop"].map(str::to_owned));
    let mut divert = [OWN_4, OWN_6].map(str::to_owned).to_vec();
    divert.extend(redirects(transparent));
    let mut out = String::from("table inet egret {\n");
    chain(&mut out, "leave", "filter hook output priority mangle", &leave);
    chain(&mut out, "divert", "nat hook output priority -100", &divert);
    out.push_str("}\n");
    out
}

/// Egret's listeners, as far as the sandboxes' side can reach them.
struct Doors {
    /// All of them.
    tcp: Vec<SocketAddr>,
    /// Those that take what is diverted, at most one a family.
    transparent: Vec<SocketAddr>,
    /// Those that take datagrams.
    dns: Vec<SocketAddr>,
    control: SocketAddr,
}

impl Doors {
    /// `local`: is the loopback the sandboxes' side too?
    fn of(listen: &Listen, local: bool) -> Result<Self, String> {
        let reached = |address: &&SocketAddr| local || !address.ip().is_loopback();
        let mut transparent: Vec<SocketAddr> = Vec::new();
        for address in listen.transparent.iter().filter(reached) {
            if !transparent.iter().any(|other| other.is_ipv4() == address.is_ipv4()) {
                transparent.push(*address);
            }
        }
        if transparent.is_empty() && !listen.transparent.is_empty() {
            return Err("[listen] transparent is on loopback alone, where nothing from an interface can be diverted to; listen at the interface's address, or at 0.0.0.0 and [::]".to_owned());
        }
        let all = listen
            .proxy
            .iter()
            .chain(&listen.tls)
            .chain(&listen.socks)
            .chain(&listen.dns)
            .chain(&listen.transparent);
        let mut tcp: Vec<SocketAddr> = all.filter(reached).copied().collect();
        // One that takes both is listed under both.
        tcp.sort();
        tcp.dedup();
        if tcp.iter().any(|address| address.port() == 0) {
            return Err("[listen] leaves a port to the system; write the number".to_owned());
        }
        if tcp.is_empty() {
            return Err("all of [listen] is on loopback, which sandboxes behind an interface don't reach; listen at the interface's address".to_owned());
        }
        let dns = listen.dns.iter().filter(reached).copied().collect();
        Ok(Self { tcp, transparent, dns, control: listen.control })
    }

    fn accepts(&self) -> Vec<String> {
        let tcp = self.tcp.iter().map(|&address| format!("{} accept", place(address, "tcp")));
        tcp.chain(self.dns.iter().map(|&address| format!("{} accept", place(address, "udp")))).collect()
    }

    /// Families of which TCP is diverted.
    fn families(&self) -> impl Iterator<Item = &'static str> {
        self.transparent.iter().map(|&address| protocol(family(address)))
    }

    fn tproxies(&self) -> Vec<String> {
        let rule = |&address: &SocketAddr| {
            let family = family(address);
            let (protocol, ip) = (protocol(family), family.word());
            let to = match address.ip().is_unspecified() {
                true => format!(":{}", address.port()),
                false => address.to_string(),
            };
            format!(
                "meta nfproto {protocol} meta l4proto tcp tproxy {ip} to {to} meta mark set {MARK:#x} accept"
            )
        };
        self.transparent.iter().map(rule).collect()
    }
}

/// A listener at a certain address takes what is sent there; REDIRECT would choose another one of the
/// interface's.
fn redirects(transparent: &[SocketAddr]) -> Vec<String> {
    let rule = |&address: &SocketAddr| {
        let family = family(address);
        let (port, protocol, ip) = (address.port(), protocol(family), family.word());
        let to = if address.ip().is_unspecified() || address.ip().is_loopback() {
            format!("redirect to :{port}")
        } else {
            format!("dnat {ip} to {address}")
        };
        format!("meta nfproto {protocol} meta l4proto tcp {to}")
    };
    transparent.iter().map(rule).collect()
}

const fn family(address: SocketAddr) -> Family {
    if address.is_ipv4() { Family::V4 } else { Family::V6 }
}

/// How nft calls the family as a protocol.
const fn protocol(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

/// What goes to this listener by this transport.
fn place(address: SocketAddr, transport: &str) -> String {
    let family = family(address);
    let port = address.port();
    if address.ip().is_unspecified() {
        return format!("meta nfproto {} fib daddr type local {transport} dport {port}", protocol(family));
    }
    format!("{} daddr {} {transport} dport {port}", family.word(), address.ip())
}

fn chain(out: &mut String, name: &str, kind: &str, rules: &[impl AsRef<str>]) {
    push(out, &format!("\tchain {name} {{\n\t\ttype {kind}; policy accept;"));
    for rule in rules {
        push(out, &format!("\t\t{}", rule.as_ref()));
    }
    push(out, "\t}");
}

fn push(out: &mut String, line: &str) {
    // A String takes whatever is written.
    let _ = writeln!(out, "{line}");
}
