//! Hosts near by: the gateway, neighbours, and what listens on egret's own machine.
//!
//! A host that answers at all can be reached, whatever listens there now. Of egret's machine that is
//! so by design; there, nothing but egret's listeners may be open.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::Ipv6Net;
use tokio::task::JoinSet;

use super::Context;
use super::check::{Kind, Outcome, Plan};
use super::decisions::{Place, plan_refusal};
use super::socket::{self, Reach};
use super::surroundings::Surroundings;
use super::target::{Target, Way};

/// What is often open: shells, DNS, web, engines, clusters, databases, egret itself.
const PORTS: [u16; 22] = [
    21, 22, 25, 53, 80, 111, 443, 445, 2375, 2376, 2379, 3000, 3128, 3129, 5000, 5432, 6379, 6443, 8000,
    8080, 9090, 10250,
];
/// Where egret's control interface is by default.
pub(super) const CONTROL_PORT: u16 = 3129;

/// Adds a check of each host near by, directly and through the proxy. Those that are `named` have checks of
/// their own.
pub(super) fn plan_near(context: &Arc<Context>, around: Surroundings, named: &[SocketAddr], plan: &mut Plan) {
    let own = |host: &SocketAddr| {
        host.ip().is_loopback() || socket::own_address_towards(with_port(*host, 9)) == Some(host.ip())
    };
    let gateways: BTreeSet<_> = around.gateways.into_iter().filter(|host| !own(host)).collect();
    if gateways.is_empty() {
        let detail = "no route leads out of this machine, so there is none";
        plan.known("gateway", "-", Outcome::unsupported(detail));
    }
    let neighbours: Vec<_> = around.neighbours.difference(&gateways).copied().collect();
    plan_hosts(context, "gateway", gateways, plan);
    plan_hosts(context, "neighbour", neighbours, plan);
    let is_named = |subnet: &Ipv6Net| {
        named.iter().any(|host| matches!(host.ip(), IpAddr::V6(address) if subnet.contains(&address)))
    };
    for subnet in around.subnets6.iter().filter(|subnet| !is_named(subnet)) {
        let detail = "it has too many addresses to look through; name hosts that there are with --neighbour";
        plan.known("neighbour", subnet.to_string(), Outcome::unsupported(detail));
    }
}

fn plan_hosts(
    context: &Arc<Context>,
    group: &'static str,
    hosts: impl IntoIterator<Item = SocketAddr>,
    plan: &mut Plan,
) {
    for host in hosts {
        let shared = Arc::clone(context);
        plan.add(group, host.ip().to_string(), async move { check(&shared, host).await });
        // With a scope it is nothing that a proxy could be asked for.
        if !is_scoped(host) {
            plan_proxied(context, group, with_port(host, 80), plan);
        }
    }
}

/// Adds a check that the proxy does not lead there.
pub(super) fn plan_proxied(context: &Arc<Context>, group: &'static str, to: SocketAddr, plan: &mut Plan) {
    if let Ok(place) = to.to_string().parse::<Place>() {
        plan_refusal(context, group, &place, &[], plan);
    }
}

/// Adds checks that egret's control interface can't be reached, directly or through the proxy.
pub(super) fn plan_control(context: &Arc<Context>, controls: &[SocketAddr], plan: &mut Plan) {
    let proxy = context.proxy.as_ref().map(|proxy| proxy.address);
    let default = proxy.as_ref().map(|address| with_port(*address, CONTROL_PORT)).ok();
    let controls: Vec<_> =
        if controls.is_empty() { default.into_iter().collect() } else { controls.to_vec() };
    if controls.is_empty() {
        plan.known("control", "-", Outcome::unsupported("where it is, nobody said; name it with --control"));
    }
    for control in &controls {
        let (context, control) = (Arc::clone(context), *control);
        plan.add("control", format!("tcp:{control}"), async move {
            let _turn = context.turn().await;
            match socket::connect(control, context.patience).await {
                Ok(_) => Outcome::fail("connected").of(Kind::Reached),
                Err(Reach { kind: Kind::Other, detail }) => Outcome::unsupported(detail),
                // The machine is there, as the proxy shows, so a refusal is as good as silence.
                Err(Reach { kind, detail }) => Outcome::pass(detail).of(kind),
            }
        });
    }
    let ports: BTreeSet<_> = controls.iter().map(SocketAddr::port).collect();
    for port in &ports {
        for host in ["127.0.0.1", "[::1]", "localhost", "0.0.0.0"] {
            if let Ok(place) = format!("{host}:{port}").parse::<Place>() {
                plan_refusal(context, "control", &place, &[], plan);
            }
        }
    }
    for to in controls.iter().copied().chain(proxy.ok()) {
        plan_proxied(context, "control", to, plan);
    }
}

async fn check(context: &Context, host: SocketAddr) -> Outcome {
    let _turn = context.turn().await;
    let seen = Seen::of(context, host).await;
    seen.judge(context.may_refuse.contains(&host.ip()) || context.is_proxy(host.ip()))
}

/// What a host did on every port and to an echo request.
#[derive(Debug, Default)]
struct Seen {
    /// Ports that answered, except egret's own.
    open: BTreeSet<String>,
    /// Answered, if only with a refusal.
    signs: BTreeSet<&'static str>,
    /// How the rest ended.
    kinds: BTreeSet<&'static str>,
    tried: usize,
    untried: usize,
}

impl Seen {
    async fn of(context: &Context, host: SocketAddr) -> Self {
        let mut tries = JoinSet::new();
        let ways = PORTS.iter().map(|port| (Way::Tcp, *port)).chain([(Way::Dns, 53), (Way::Icmp, 0)]);
        for (way, port) in ways {
            let target = Target { way, address: with_port(host, port) };
            if !context.listeners.contains(&target.address) || way == Way::Icmp {
                let patience = context.patience;
                tries.spawn(async move { (target, socket::reach(&target, patience).await) });
            }
        }
        let mut seen = Self::default();
        while let Some(Ok((target, reach))) = tries.join_next().await {
            seen.note(target, &reach);
        }
        seen
    }

    fn note(&mut self, target: Target, reach: &Reach) {
        self.tried += 1;
        match (target.way, reach.kind) {
            (Way::Icmp, Kind::Reached) => drop(self.signs.insert("answers echo requests")),
            (_, Kind::Reached) => drop(self.open.insert(target.to_string())),
            (_, Kind::Refused) => drop(self.signs.insert("refuses connections")),
            (_, Kind::Other | Kind::Handshake) => self.untried += 1,
            (_, kind) => drop(self.kinds.insert(kind.as_str())),
        }
    }

    fn judge(&self, may_refuse: bool) -> Outcome {
        let listed = |list: &BTreeSet<&'static str>| list.iter().copied().collect::<Vec<_>>().join(" and ");
        if !self.open.is_empty() {
            let open: Vec<_> = self.open.iter().cloned().collect();
            return Outcome::fail(format!("answers on {}", open.join(", "))).of(Kind::Reached);
        }
        if !self.signs.is_empty() && !may_refuse {
            let detail = format!(
                "it {}: it can be reached, and so can what listens there; drop packets to it, or name it with --may-refuse",
                listed(&self.signs)
            );
            return Outcome::fail(detail).of(Kind::Refused);
        }
        // Only what was tried tells; that echo requests can't be sent leaves the ports.
        if self.untried > 1 || self.tried == self.untried {
            return Outcome::unsupported(format!(
                "{} of {} attempts could not be made",
                self.untried, self.tried
            ));
        }
        if !self.signs.is_empty() {
            return Outcome::pass(format!("nothing is open on {} usual ports", PORTS.len()));
        }
        Outcome::pass(format!("{} on {} usual ports", listed(&self.kinds), PORTS.len()))
    }
}

/// The host with a port; its scope stays.
fn with_port(mut host: SocketAddr, port: u16) -> SocketAddr {
    host.set_port(port);
    host
}

fn is_scoped(host: SocketAddr) -> bool {
    matches!(host.ip(), IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    fn seen(reaches: &[(&str, Kind)]) -> Seen {
        let mut seen = Seen::default();
        for (target, kind) in reaches {
            seen.note(target.parse().unwrap(), &Reach::new(*kind, ""));
        }
        seen
    }

    #[test]
    fn a_host_that_answers_can_be_reached() {
        let silent = [("tcp:192.0.2.1:22", Kind::TimedOut), ("icmp:192.0.2.1", Kind::TimedOut)];
        assert_eq!(seen(&silent).judge(false).verdict, Verdict::Pass);
        for sign in [("tcp:192.0.2.1:80", Kind::Refused), ("icmp:192.0.2.1", Kind::Reached)] {
            let seen = seen(&[silent[0], sign]);
            assert_eq!(seen.judge(false).verdict, Verdict::Fail, "{sign:?}");
            assert_eq!(seen.judge(true).verdict, Verdict::Pass, "{sign:?}");
        }
        let open = seen(&[silent[0], ("dns:192.0.2.1", Kind::Reached)]);
        assert_eq!(open.judge(true).detail, "answers on dns:192.0.2.1:53");
        assert_eq!(open.judge(true).verdict, Verdict::Fail);
    }

    #[test]
    fn what_was_not_tried_shows_nothing() {
        assert_eq!(seen(&[]).judge(true).verdict, Verdict::Unsupported);
        let none = seen(&[("tcp:192.0.2.1:22", Kind::Other), ("tcp:192.0.2.1:23", Kind::Other)]);
        assert_eq!(none.judge(false).verdict, Verdict::Unsupported);
        let no_echo = seen(&[("tcp:192.0.2.1:22", Kind::Unreachable), ("icmp:192.0.2.1", Kind::Other)]);
        assert_eq!(no_echo.judge(false).verdict, Verdict::Pass);
    }
}
