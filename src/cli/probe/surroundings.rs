//! Who is around, as the kernel's tables tell: gateways, first addresses of subnets, neighbours.
//!
//! Reads text of `/proc/net` alone; a line that can't be read is none.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use ipnet::{Ipv4Net, Ipv6Net};

/// A route that answers with an error instead of leading anywhere (`RTF_REJECT`).
const REJECT: u32 = 0x200;
/// An entry whose hardware address is known (`ATF_COM`).
const COMPLETE: u32 = 0x2;
/// Addresses of a subnet that are looked through; engines give out the first ones first.
const MOST_LOOKED_AT: usize = 254;

/// Hosts near by, each with port 0; IPv6 addresses of a link have its scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// Next hops of routes, and the first address of each subnet that is on the link.
    pub(super) gateways: BTreeSet<SocketAddr>,
    /// Hosts that were spoken to on the link.
    pub(super) neighbours: BTreeSet<SocketAddr>,
    /// IPv4 subnets on the link.
    subnets: BTreeSet<Ipv4Net>,
    /// IPv6 subnets on the link; they have more addresses than can be looked through.
    pub(super) subnets6: BTreeSet<Ipv6Net>,
}

impl Surroundings {
    /// Of this process's network namespace.
    pub(super) fn look() -> Self {
        let read = |name| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
        Self::read(&read("route"), &read("ipv6_route"), &read("if_inet6"), &read("arp"))
    }

    fn read(routes: &str, routes6: &str, interfaces6: &str, arp: &str) -> Self {
        let routes: Vec<_> = routes.lines().skip(1).filter_map(Route::read).collect();
        let routes6: Vec<_> = routes6.lines().filter_map(Route6::read).collect();
        let mut gateways: BTreeSet<_> = routes.iter().filter_map(Route::gateway).collect();
        gateways.extend(routes6.iter().filter_map(|route| route.gateway(interfaces6)));
        Self {
            gateways,
            neighbours: arp.lines().skip(1).filter_map(neighbour).collect(),
            subnets: routes.iter().filter_map(Route::subnet).collect(),
            subnets6: routes6.iter().filter_map(Route6::subnet).collect(),
        }
    }

    /// Addresses on the link that somebody may have, from the lowest of each subnet on.
    pub(super) fn possible(&self) -> Vec<SocketAddr> {
        let hosts = self.subnets.iter().flat_map(|subnet| subnet.hosts().take(MOST_LOOKED_AT));
        hosts.map(|host| SocketAddr::new(host.into(), 0)).collect()
    }
}

/// A line of `/proc/net/route` that leads somewhere else than to this machine.
struct Route {
    destination: Ipv4Addr,
    next: Ipv4Addr,
    mask: Ipv4Addr,
}

impl Route {
    fn read(line: &str) -> Option<Self> {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [interface, destination, gateway, flags, _, _, _, mask, ..] = fields[..] else {
            return None;
        };
        if u32::from_str_radix(flags, 16).ok()? & REJECT != 0 || interface == "lo" {
            return None;
        }
        let address =
            |text| u32::from_str_radix(text, 16).ok().map(|bits| Ipv4Addr::from(bits.to_ne_bytes()));
        Some(Self { destination: address(destination)?, next: address(gateway)?, mask: address(mask)? })
    }

    /// The subnet on the link, if that is what it is; all addresses or one are none.
    fn subnet(&self) -> Option<Ipv4Net> {
        let net = Ipv4Net::with_netmask(self.destination, self.mask).ok()?;
        (self.next.is_unspecified() && !matches!(net.prefix_len(), 0 | 32)).then_some(net)
    }

    /// The next hop; for a subnet on the link its first address.
    fn gateway(&self) -> Option<SocketAddr> {
        let found = if self.next.is_unspecified() { self.subnet()?.hosts().next()? } else { self.next };
        Some(SocketAddr::new(found.into(), 0))
    }
}

/// The same of `/proc/net/ipv6_route`; the columns are those of `net/ipv6/route.c`.
struct Route6<'a> {
    destination: Ipv6Net,
    next: Ipv6Addr,
    device: &'a str,
}

impl<'a> Route6<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [destination, prefix, _, _, next, _, _, _, flags, device] = fields[..] else {
            return None;
        };
        if u32::from_str_radix(flags, 16).ok()? & REJECT != 0 || device == "lo" {
            return None;
        }
        let address = |text| u128::from_str_radix(text, 16).ok().map(Ipv6Addr::from_bits);
        let prefix = u8::from_str_radix(prefix, 16).ok()?;
        let destination = Ipv6Net::new(address(destination)?, prefix).ok()?;
        Some(Self { destination, next: address(next)?, device })
    }

    /// The subnet on the link. Every link has that of its own addresses, which is not counted.
    fn subnet(&self) -> Option<Ipv6Net> {
        let net = self.destination;
        let special = net.addr().is_multicast() || net.addr().is_unicast_link_local();
        let leads_on = !self.next.is_unspecified();
        (!leads_on && !special && !matches!(net.prefix_len(), 0 | 128)).then_some(net)
    }

    /// The next hop; for a subnet on the link its first address.
    fn gateway(&self, interfaces: &str) -> Option<SocketAddr> {
        let found = if self.next.is_unspecified() {
            Ipv6Addr::from_bits(self.subnet()?.addr().to_bits().checked_add(1)?)
        } else {
            self.next
        };
        let scope = if found.is_unicast_link_local() { index(self.device, interfaces)? } else { 0 };
        Some(SocketAddrV6::new(found, 0, 0, scope).into())
    }
}

/// An interface's index, from `/proc/net/if_inet6`.
fn index(device: &str, interfaces: &str) -> Option<u32> {
    interfaces.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, index, _, _, _, name] = fields[..] else {
            return None;
        };
        if name == device { u32::from_str_radix(index, 16).ok() } else { None }
    })
}

fn neighbour(line: &str) -> Option<SocketAddr> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let [address, _, flags, ..] = fields[..] else {
        return None;
    };
    let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()?;
    let address: IpAddr = address.parse().ok()?;
    (flags & COMPLETE != 0).then(|| SocketAddr::new(address, 0))
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    const ROUTES: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        eth0\t00001EAC\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        *\t00000A0A\t00000000\t0201\t0\t0\t0\t0000FFFF\t0\t0\t0\nnonsense\n";
    const ROUTES6: &str = "\
        fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n\
        fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000002 00000000 00000001     eth0\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000002 00000000 00000003     eth0\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";
    const INTERFACES: &str = "fd000000000000000000000000000002 1f 40 00 82     eth0\n";
    const ARP: &str = "IP address       HW type     Flags       HW address            Mask     Device\n\
        172.30.0.9       0x1         0x2         02:fc:00:00:00:05     *        eth0\n\
        172.30.0.8       0x1         0x0         00:00:00:00:00:00     *        eth0\n";

    #[test]
    fn tables_of_the_kernel_are_read() {
        let found = Surroundings::read(ROUTES, ROUTES6, INTERFACES, ARP);
        let shown: Vec<_> = found.gateways.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["172.30.0.1:0", "192.0.2.1:0", "[fd00::1]:0", "[fe80::1%31]:0"]);
        assert_eq!(found.neighbours, BTreeSet::from(["172.30.0.9:0".parse().unwrap()]));
        let possible = found.possible();
        assert_eq!((possible.len(), possible[253].to_string().as_str()), (254, "172.30.0.254:0"));
        assert_eq!(found.subnets6, BTreeSet::from(["fd00::/64".parse().unwrap()]));
    }

    #[test]
    fn nonsense_is_nobody() {
        for text in ["", "a b c", "\0", "eth0 zz zz zz 0 0 0 zz", "x\nx x x x x x x x x x"] {
            assert_eq!(Surroundings::read(text, text, text, text), Surroundings::default(), "{text:?}");
        }
    }
}
