//! What kind of place an IP address is: the special-purpose table, the metadata endpoints and
//! the IPv6 forms that hide an IPv4 address.
//!
//! Looks at binary addresses alone, never at text, and knows nothing of rules. The tables follow
//! the IANA IPv4 and IPv6 Special-Purpose Address Registries (snapshot of 2026-07-18), the RFCs
//! named in each row, and the cloud vendors' documentation. Library predicates such as
//! `is_global` disagree with the registries in places, which is why the tables stand here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A row of the tables: a range and what it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Range {
    /// The addresses.
    pub net: IpNet,
    /// What they are for, with the source.
    pub name: &'static str,
}

/// What kind of place an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Globally reachable.
    Public,
    /// Reachable only if a rule unlocks it by `addresses`.
    Private(&'static Range),
    /// Never reachable, whatever a rule says.
    Forbidden(&'static Range),
}

/// A prefix under which a NAT64 translator embeds IPv4 addresses (RFC 6052 section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64Prefix(Ipv6Net);

impl Nat64Prefix {
    /// The well-known prefix `64:ff9b::/96`.
    pub const WELL_KNOWN: Self = Self(Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96));

    /// A prefix of an operator's own; `None` if RFC 6052 does not allow its length.
    #[must_use]
    pub fn new(net: Ipv6Net) -> Option<Self> {
        matches!(net.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96).then_some(Self(net))
    }

    /// The IPv4 address inside, if the address lies under this prefix.
    #[must_use]
    pub fn embedded(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.0.contains(&address) {
            return None;
        }
        // Bits 64 to 71 are left out of the embedded address.
        let bits = address.to_bits();
        let low = |shift: u32| u32::try_from(bits >> shift & 0xffff_ffff).unwrap_or_default();
        let around = |before: u32| {
            let high = low(64) & ((1 << before) - 1); // the bits before the gap
            let after = low(24 + before) & (u32::MAX >> before); // and those after it
            high << (32 - before) | after
        };
        let v4 = match self.0.prefix_len() {
            32 => low(64),
            40 => around(24),
            48 => around(16),
            56 => around(8),
            64 => low(24),
            _ => low(0),
        };
        Some(Ipv4Addr::from_bits(v4))
    }
}

/// The class of an address. `nat64` are the operator's prefixes beside the well-known one.
#[must_use]
pub fn classify(address: IpAddr, nat64: &[Nat64Prefix]) -> Class {
    if let Some(range) = find(METADATA, address) {
        return Class::Forbidden(range);
    }
    let IpAddr::V6(v6) = address else {
        return classify_special(address);
    };
    if let Some(inside) = nat64_embedded(v6, nat64) {
        return classify(IpAddr::V4(inside), &[]);
    }
    if let Some(inside) = isatap_embedded(v6)
        && classify(IpAddr::V4(inside), &[]) != Class::Public
    {
        return Class::Forbidden(&ISATAP);
    }
    classify_special(address)
}

/// The IPv4 address that a translator would reach, or the address itself.
#[must_use]
pub fn effective(address: IpAddr, nat64: &[Nat64Prefix]) -> IpAddr {
    match address {
        IpAddr::V6(v6) => nat64_embedded(v6, nat64).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// The forbidden range in which every address of `net` lies, if there is one.
#[must_use]
pub fn forbidden_around(net: &IpNet, nat64: &[Nat64Prefix]) -> Option<&'static Range> {
    if let IpNet::V6(v6) = net
        && let Some((inside, prefix)) = nat64_net(v6, nat64)
    {
        let inside = Ipv4Net::new(inside, prefix).ok()?;
        return forbidden_around(&IpNet::V4(inside.trunc()), &[]);
    }
    let named = METADATA.iter().chain(FORBIDDEN).find(|range| range.net.contains(net));
    named.or_else(|| match net {
        IpNet::V6(v6) => {
            let global = overlaps(v6, &GLOBAL_UNICAST);
            let unlockable = PRIVATE.iter().any(|range| match range.net {
                IpNet::V6(private) => overlaps(v6, &private),
                IpNet::V4(_) => false,
            });
            let translated = overlaps(v6, &Nat64Prefix::WELL_KNOWN.0);
            (!global && !unlockable && !translated).then_some(&OUTSIDE)
        }
        IpNet::V4(_) => None,
    })
}

/// Names under which clouds publish their metadata service; refused whatever they resolve to.
pub const METADATA_NAMES: &[&str] = &[
    "metadata.google.internal",
    "metadata.goog",
    "metadata",
    "instance-data",
    "instance-data.ec2.internal",
    "metadata.tencentyun.com",
    "api.metadata.cloud.ibm.com",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "metadata.azure.internal",
    "rancher-metadata",
];

fn nat64_embedded(address: Ipv6Addr, nat64: &[Nat64Prefix]) -> Option<Ipv4Addr> {
    let own = nat64.iter().find_map(|prefix| prefix.embedded(address));
    own.or_else(|| Nat64Prefix::WELL_KNOWN.embedded(address))
}

/// The IPv4 network inside an IPv6 one that lies under a /96 NAT64 prefix.
fn nat64_net(net: &Ipv6Net, nat64: &[Nat64Prefix]) -> Option<(Ipv4Addr, u8)> {
    let prefixes = nat64.iter().chain([&Nat64Prefix::WELL_KNOWN]);
    let around = prefixes.filter(|p| p.0.prefix_len() == 96).find(|p| p.0.contains(net))?;
    Some((around.embedded(net.network())?, net.prefix_len().checked_sub(96)?))
}

/// The IPv4 address in an ISATAP interface identifier (RFC 5214 section 6.1).
fn isatap_embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., marker_high, marker_low, high, low] = address.segments();
    let isatap = matches!(marker_high, 0 | 0x0200) && marker_low == 0x5efe;
    isatap.then(|| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
}

fn classify_special(address: IpAddr) -> Class {
    if let Some(range) = find(FORBIDDEN, address) {
        return Class::Forbidden(range);
    }
    if let Some(range) = find(PRIVATE, address) {
        return Class::Private(range);
    }
    match address {
        IpAddr::V6(v6) if !GLOBAL_UNICAST.contains(&v6) => Class::Forbidden(&OUTSIDE),
        _ => Class::Public,
    }
}

fn find(table: &'static [Range], address: IpAddr) -> Option<&'static Range> {
    table.iter().find(|range| range.net.contains(&address))
}

fn overlaps(a: &Ipv6Net, b: &Ipv6Net) -> bool {
    a.contains(b) || b.contains(a)
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8, name: &'static str) -> Range {
    Range { net: IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)), name }
}

/// A range by the first and last groups of its network address.
const fn v6(high: [u16; 3], low: [u16; 2], prefix: u8, name: &'static str) -> Range {
    let address = Ipv6Addr::new(high[0], high[1], high[2], 0, 0, 0, low[0], low[1]);
    Range { net: IpNet::V6(Ipv6Net::new_assert(address, prefix)), name }
}

/// Global unicast space as delegated by IANA (RFC 4291 section 2.4).
const GLOBAL_UNICAST: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

static OUTSIDE: Range = v6([0, 0, 0], [0, 0], 0, "outside global unicast 2000::/3 (RFC 4291)");
static ISATAP: Range = v6([0, 0, 0], [0, 0], 0, "ISATAP around a special address (RFC 5214)");

/// Metadata and platform endpoints, also those in public or unlockable space.
static METADATA: &[Range] = &[
    v4(169, 254, 169, 254, 32, "cloud metadata (AWS, GCP, Azure and others)"),
    v4(169, 254, 170, 2, 32, "AWS ECS credentials"),
    v4(169, 254, 170, 23, 32, "AWS EKS pod identity"),
    v4(169, 254, 169, 250, 31, "AWS KMS activation"),
    v4(169, 254, 169, 253, 32, "AWS resolver"),
    v4(169, 254, 169, 123, 32, "AWS time service"),
    v4(169, 254, 0, 23, 32, "Tencent Cloud metadata"),
    v4(169, 254, 42, 42, 32, "Scaleway metadata"),
    v4(169, 254, 20, 10, 32, "Kubernetes NodeLocal DNSCache"),
    v4(168, 63, 129, 16, 32, "Azure WireServer"),
    v4(192, 80, 8, 124, 32, "Equinix Metal metadata"),
    v4(100, 100, 100, 200, 32, "Alibaba Cloud metadata"),
    v4(100, 96, 0, 96, 32, "Volcengine metadata"),
    v4(100, 88, 222, 5, 32, "Tencent Cloud metadata (legacy)"),
    v4(192, 0, 0, 192, 32, "Oracle Classic metadata"),
    v6([0xfd00, 0xec2, 0], [0, 0], 32, "AWS instance services"),
    v6([0xfd20, 0xce, 0], [0, 0x254], 128, "GCP metadata"),
    v6([0xfd00, 0xc1, 0], [0xa9fe, 0xa9fe], 128, "Oracle Cloud metadata"),
    v6([0xfd00, 0x42, 0], [0, 0x42], 128, "Scaleway metadata"),
    v6([0xfd00, 0xa9fe, 0xa9fe], [0, 1], 128, "Akamai metadata"),
    v6([0xfe80, 0, 0], [0xa9fe, 0xa9fe], 128, "OpenStack metadata"),
];

/// Special-purpose ranges that no rule unlocks.
static FORBIDDEN: &[Range] = &[
    v4(0, 0, 0, 0, 8, "this network (RFC 791)"),
    v4(169, 254, 0, 0, 16, "link-local (RFC 3927)"),
    v4(192, 0, 0, 0, 24, "IETF protocol assignments (RFC 6890)"),
    v4(192, 31, 196, 0, 24, "AS112 (RFC 7535)"),
    v4(192, 175, 48, 0, 24, "AS112 (RFC 7534)"),
    v4(192, 52, 193, 0, 24, "AMT (RFC 7450)"),
    v4(192, 88, 99, 0, 24, "6to4 relay anycast (RFC 7526)"),
    v4(224, 0, 0, 0, 4, "multicast (RFC 5771)"),
    v4(255, 255, 255, 255, 32, "broadcast (RFC 919)"),
    v6([0, 0, 0], [0, 0], 128, "unspecified (RFC 4291)"),
    Range {
        net: IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96)),
        name: "IPv4-mapped (RFC 4291)",
    },
    Range {
        net: IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96)),
        name: "IPv4-translated (RFC 7915)",
    },
    v6([0x64, 0xff9b, 1], [0, 0], 48, "local NAT64 (RFC 8215)"),
    Range {
        net: IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 63)),
        name: "discard-only and dummy prefixes (RFC 6666, RFC 9780)",
    },
    v6([0x2001, 0, 0], [0, 0], 23, "IETF protocol assignments, Teredo (RFC 2928, RFC 4380)"),
    v6([0x2002, 0, 0], [0, 0], 16, "6to4 (RFC 3056)"),
    v6([0x2620, 0x4f, 0x8000], [0, 0], 48, "AS112 (RFC 7534)"),
    v6([0x5f00, 0, 0], [0, 0], 16, "SRv6 SIDs (RFC 9602)"),
    v6([0xfe80, 0, 0], [0, 0], 10, "link-local (RFC 4291)"),
    v6([0xfec0, 0, 0], [0, 0], 10, "site-local (RFC 3879)"),
    v6([0xff00, 0, 0], [0, 0], 8, "multicast (RFC 4291)"),
];

/// Special-purpose ranges that a rule may unlock by `addresses`.
static PRIVATE: &[Range] = &[
    v4(10, 0, 0, 0, 8, "private (RFC 1918)"),
    v4(100, 64, 0, 0, 10, "shared address space, CGNAT (RFC 6598)"),
    v4(127, 0, 0, 0, 8, "loopback (RFC 1122)"),
    v4(172, 16, 0, 0, 12, "private (RFC 1918)"),
    v4(192, 0, 2, 0, 24, "documentation (RFC 5737)"),
    v4(192, 168, 0, 0, 16, "private (RFC 1918)"),
    v4(198, 18, 0, 0, 15, "benchmarking (RFC 2544)"),
    v4(198, 51, 100, 0, 24, "documentation (RFC 5737)"),
    v4(203, 0, 113, 0, 24, "documentation (RFC 5737)"),
    v4(240, 0, 0, 0, 4, "reserved (RFC 1112)"),
    v6([0, 0, 0], [0, 1], 128, "loopback (RFC 4291)"),
    v6([0x2001, 0xdb8, 0], [0, 0], 32, "documentation (RFC 3849)"),
    v6([0x3fff, 0, 0], [0, 0], 20, "documentation (RFC 9637)"),
    v6([0xfc00, 0, 0], [0, 0], 7, "unique local (RFC 4193)"),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn class(address: &str) -> Class {
        classify(address.parse().unwrap(), &[])
    }

    fn is_forbidden(net: &str) -> bool {
        forbidden_around(&net.parse().unwrap(), &[]).is_some()
    }

    #[test]
    fn nat64_layouts_of_rfc_6052() {
        // The table of RFC 6052 section 2.4.
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ] {
            let prefix = Nat64Prefix::new(prefix.parse().unwrap()).unwrap();
            let inside = prefix.embedded(address.parse().unwrap());
            assert_eq!(inside, Some(Ipv4Addr::new(192, 0, 2, 33)), "{address}");
        }
        assert_eq!(Nat64Prefix::new("2001:db8::/33".parse().unwrap()), None);
    }

    #[test]
    fn a_configured_prefix_is_judged_by_what_it_embeds() {
        let own = [Nat64Prefix::new("2001:db8:64::/96".parse().unwrap()).unwrap()];
        let class = |a: &str| classify(a.parse().unwrap(), &own);
        assert_eq!(class("2001:db8:64::8.8.8.8"), Class::Public);
        assert!(matches!(class("2001:db8:64::169.254.169.254"), Class::Forbidden(_)));
        assert!(matches!(class("2001:db8:64::10.0.0.1"), Class::Private(_)));
        assert_eq!(effective("64:ff9b::a00:1".parse().unwrap(), &[]), "10.0.0.1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn metadata_wins_over_the_range_around_it() {
        for address in ["168.63.129.16", "100.100.100.200", "fd00:ec2::254", "64:ff9b::a83f:8110"] {
            assert!(matches!(class(address), Class::Forbidden(_)), "{address}");
        }
        assert!(matches!(class("fd00:ec3::254"), Class::Private(_)));
    }

    #[test]
    fn isatap_is_judged_by_what_it_embeds() {
        assert!(matches!(class("2606:4700::5efe:10.0.0.1"), Class::Forbidden(_)));
        assert!(matches!(class("2606:4700::200:5efe:127.0.0.1"), Class::Forbidden(_)));
        assert_eq!(class("2606:4700::5efe:8.8.8.8"), Class::Public);
        assert_eq!(class("2606:4700::a9fe:a9fe"), Class::Public);
    }

    #[test]
    fn forbidden_around_wants_the_whole_network_inside() {
        for net in
            ["169.254.0.0/16", "169.254.169.254/32", "::ffff:168.0.0.0/103", "fd00:ec2::/32", "4000::/3"]
        {
            assert!(is_forbidden(net), "{net}");
        }
        assert!(is_forbidden("64:ff9b::a9fe:a9fe/128"));
        for net in ["100.64.0.0/10", "127.0.0.0/8", "fd00::/8", "::1/128", "64:ff9b::/96", "8.0.0.0/5"] {
            assert!(!is_forbidden(net), "{net}");
        }
    }
}
