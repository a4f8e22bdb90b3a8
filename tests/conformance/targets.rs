//! Request targets in every spelling: what is refused, and where the rest goes.

use std::net::SocketAddr;

use crate::bench::{self, Bench, Problems};
use crate::corpus::PUBLIC;
use crate::proxy::Policy;
use crate::rows::TargetRow;

pub fn run(bench: &mut Bench, row: &TargetRow) -> Result<Problems, String> {
    bench.ensure(&Policy::p0(), false)?;
    let host = row.host_header.as_ref().map(|value| format!("Host: {value}\r\n")).unwrap_or_default();
    let version = row.http_version.as_deref().unwrap_or("1.1");
    let head = format!("{} {} HTTP/{version}\r\n{host}\r\n", row.method, row.target);
    let got = bench.request(head.into_bytes(), &row.method, Default::default());
    let ports = row.canonical_port.map_or(vec![80, 443], |port| vec![port]);
    let permitted: Vec<SocketAddr> =
        ports.into_iter().map(|port| SocketAddr::new(PUBLIC.into(), port)).collect();
    let judge = |verdict: &str| match verdict {
        "allow" => {
            let host = row.forwarded_host.as_deref().filter(|_| got.seen.status() == Some(200));
            bench::check_allowed(&got, &permitted, host)
        }
        "bad_request" => bench::check_refused(&got, |status| (400..500).contains(&status), true),
        "deny_domain" => bench::check_refused(&got, |status| status == 403, true),
        "deny_address" => bench::check_refused(&got, |status| status == 403, false),
        other => panic!("no such verdict: {other}"),
    };
    let verdicts = std::iter::once(&row.expected).chain(&row.also_ok);
    Ok(got.explain(bench::best(verdicts.map(|verdict| judge(verdict)).collect())))
}
