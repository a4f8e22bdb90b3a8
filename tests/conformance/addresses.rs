//! Each special address as the DNS answer for an allowed name.

use std::net::{IpAddr, SocketAddr};

use crate::bench::{self, Bench, Problems};
use crate::proxy::Policy;
use crate::rows::AddressRow;
use crate::support::dns_server::Answer;

pub fn run(bench: &mut Bench, row: &AddressRow) -> Result<Problems, String> {
    bench.ensure(&Policy::p0(), false)?;
    let address: IpAddr = row.address.parse().map_err(|error| format!("{}: {error}", row.address))?;
    // A name of its own, so that no cache joins two rows.
    let name = format!("n{}.allowed.example", row.number);
    let payload = format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n").into_bytes();
    let got = bench.request(payload, "CONNECT", bench::script(&name, vec![Answer::address(address)]));
    let problems = match row.expected.as_str() {
        "allow" => bench::check_allowed(&got, &[SocketAddr::new(address.to_canonical(), 443)], None),
        "deny" => bench::check_refused(&got, |status| status == 403, false),
        other => panic!("no such verdict: {other}"),
    };
    Ok(got.explain(problems))
}
