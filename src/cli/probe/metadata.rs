//! The metadata services of clouds: asked for through the proxy in every spelling that some parser
//! takes for them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use egret_policy::METADATA_NAMES;

use super::Context;
use super::check::{Outcome, Plan, Verdict};
use super::proxy::{Proxy, refusal};

/// The one that most clouds have, and that gets every spelling.
const COMMON: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// The others, plainly.
const OTHERS: [&str; 10] = [
    "169.254.170.2",
    "169.254.170.23",
    "169.254.0.23",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fd00:42::42]",
    "[fe80::a9fe:a9fe]",
];

/// Adds a check for each spelling.
pub(super) fn plan(context: &Arc<Context>, plan: &mut Plan) {
    for host in hosts() {
        let (context, spelling) = (Arc::clone(context), host.clone());
        plan.add("metadata-proxy", host.escape_debug().to_string(), async move {
            match &context.proxy {
                Ok(proxy) => check(proxy, &spelling).await,
                Err(why) => Outcome::unsupported(why),
            }
        });
    }
}

/// All ways in for one spelling: the first that is not refused, or what refused them.
async fn check(proxy: &Proxy, host: &str) -> Outcome {
    let mut said = Vec::new();
    for port in [80, 443] {
        let answer = proxy.connect(&format!("{host}:{port}")).await.map(|(answer, _)| answer);
        said.push((format!("CONNECT :{port}"), refusal(answer, &[])));
    }
    let answer = proxy.get(&format!("http://{host}/latest/meta-data/")).await;
    said.push(("GET".to_owned(), refusal(answer, &[])));
    let worst = [Verdict::Fail, Verdict::Unsupported].into_iter().find_map(|verdict| {
        let (way, outcome) = said.iter().find(|(_, outcome)| outcome.verdict == verdict)?;
        Some(Outcome { detail: format!("{way}: {}", outcome.detail), ..outcome.clone() })
    });
    worst.unwrap_or_else(|| {
        let all: Vec<_> = said.iter().map(|(way, outcome)| format!("{way} {}", outcome.detail)).collect();
        Outcome::pass(all.join(", "))
    })
}

/// Every host to ask for, as it stands before the port.
fn hosts() -> Vec<String> {
    let mut out = of_address(COMMON);
    out.extend(OTHERS.map(str::to_owned));
    for name in METADATA_NAMES {
        out.push((*name).to_owned());
        out.push(format!("{name}."));
        out.push(name.to_ascii_uppercase());
    }
    out
}

/// Spellings of an IPv4 address: of `inet_aton`, of URL parsers, and of IPv6 around it.
fn of_address(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let whole = address.to_bits();
    let low24 = whole & 0x00ff_ffff;
    let low16 = whole & 0xffff;
    let v6 = |segments: [u16; 8]| format!("[{}]", Ipv6Addr::from(segments));
    let [high, low] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    vec![
        address.to_string(),
        format!("{address}."),
        format!("{whole}"),
        format!("0x{whole:x}"),
        format!("0X{whole:X}"),
        format!("0{whole:o}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("000{a:o}.000{b:o}.000{c:o}.000{d:o}"),
        format!("{a}.{low24}"),
        format!("{a}.{b}.{low16}"),
        format!("0x{a:x}.{b}.0{c:o}.{d}"),
        format!("{whole}."),
        format!("{}.{b}.{c}.{d}", u16::from(a) + 256),
        format!("{a}%2e{b}%2e{c}%2e{d}"),
        format!("{a}\u{3002}{b}\u{3002}{c}\u{3002}{d}"),
        format!("{}.{b}.{c}.{d}", full_width(a)),
        format!("probe@{address}"),
        format!("{UNKNOWN}\\@{address}"),
        format!("[::ffff:{address}]"),
        format!("[::FFFF:{high:X}:{low:X}]"),
        format!("[0:0:0:0:0:ffff:{high:x}:{low:x}]"),
        v6([0, 0, 0, 0, 0, 0, high, low]),
        v6([0, 0, 0, 0, 0xffff, 0, high, low]),
        v6([0x64, 0xff9b, 0, 0, 0, 0, high, low]),
        v6([0x64, 0xff9b, 1, 0, 0, 0, high, low]),
        v6([0x2002, high, low, 0, 0, 0, 0, 0]),
        format!("[fe80::{high:x}:{low:x}%25eth0]"),
        format!("[{address}]"),
    ]
}

/// What a URL may hold before an `@`.
const UNKNOWN: &str = super::proxy::UNKNOWN_NAME;

/// A number in full-width digits, which IDNA maps to the plain ones.
fn full_width(number: u8) -> String {
    let wide = |digit: char| char::from_u32(u32::from(digit) + 0xfee0).unwrap_or(digit);
    number.to_string().chars().map(wide).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_of_the_address() {
        let all = of_address(COMMON);
        for known in [
            "2852039166",
            "0xa9fea9fe",
            "0xa9.0xfe.0xa9.0xfe",
            "0251.0376.0251.0376",
            "169.16689662",
            "169.254.43518",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:a9fe:a9fe::]",
            "１６９.254.169.254",
        ] {
            assert!(all.iter().any(|spelling| spelling == known), "{known} in {all:?}");
        }
        let hosts = hosts();
        let different: std::collections::HashSet<_> = hosts.iter().collect();
        assert_eq!(different.len(), hosts.len());
        assert!(hosts.iter().all(|host| !host.contains([' ', '\r', '\n'])));
    }
}
