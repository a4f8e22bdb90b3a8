//! Scripted DNS answers, and what the proxy makes of them.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::{self, Bench, Observation, Problems, QUIET};
use crate::proxy::Policy;
use crate::rows::DnsRow;
use crate::support::client::Exchange;
use crate::support::dns_server::Answer;

/// One request of a row.
struct Step {
    seen: Exchange,
    /// The dials that it added.
    dials: Vec<SocketAddr>,
}

pub fn run(bench: &mut Bench, row: &DnsRow) -> Result<Problems, String> {
    let listen = row.policy.listen_port.filter(|_| !row.policy.proxy_addresses.is_empty());
    let hosts: Vec<(String, String)> = row.answers.iter().flat_map(|a| a.hosts_file.clone()).collect();
    let search = search_list(row);
    let own_files = !hosts.is_empty() || !search.is_empty();
    if own_files && !bench.world.owns_files() {
        return Err(
            "needs its own /etc/hosts and /etc/resolv.conf, which this machine does not permit".to_owned()
        );
    }
    bench.world.set_name_files(&hosts, &search)?;
    for &address in &row.policy.proxy_addresses {
        bench.world.add_address(address)?;
    }
    if let Some(port) = listen {
        bench.sink.close(port); // it belongs to the proxy in this row
    }
    let result = observed(bench, row);
    bench.world.set_name_files(&[], &[])?;
    if let Some(port) = listen {
        bench.stop();
        bench.sink.open(port).map_err(|error| error.to_string())?;
    }
    result
}

fn observed(bench: &mut Bench, row: &DnsRow) -> Result<Problems, String> {
    let _unreachable = bench.world.unreachable(&row.expected.dial_failures)?;
    bench.ensure(&policy(row), true)?; // anew, for it may remember answers
    if row.question.name.contains("{{n}}") {
        bench.prepare(HashMap::new(), Some(row.answers.clone()));
    } else {
        bench.prepare(scripts(row), None);
    }
    let steps: Vec<Step> =
        schedule(row).into_iter().enumerate().map(|(n, at)| step(bench, row, n, at)).collect();
    let mut out = Vec::new();
    if row.answers.iter().any(|a| a.nss.is_some()) && bench.egret().has_mapped("libnss_") {
        out.push("loaded modules of the name service switch".to_owned());
    }
    let mut got = bench.observe(Exchange::default());
    out.extend(judge(row, &steps, &got));
    got.seen = steps.into_iter().next_back().map(|step| step.seen).unwrap_or_default();
    Ok(got.explain(out))
}

/// The search domains that a row's forbidden queries come from.
fn search_list(row: &DnsRow) -> Vec<String> {
    let prefix = format!("{}.", row.question.name);
    row.expected.must_not_query.iter().filter_map(|q| q.strip_prefix(&prefix)).map(str::to_owned).collect()
}

fn policy(row: &DnsRow) -> Policy {
    let mut policy = Policy::of(row.policy.rules.clone());
    policy.unlocks.clone_from(&row.policy.unlock);
    let port = row.policy.listen_port.unwrap_or_default();
    policy.listen =
        row.policy.proxy_addresses.iter().map(|&address| SocketAddr::new(address, port)).collect();
    if row.expected.outcome == "rate_limited" {
        // Half of the queries, for each name is asked for A and for AAAA.
        let names = row.expected.max_queries.expect("such a row bounds its queries") / 2;
        policy.limits.push(("domains", format!("\"{names}/hour\"")));
    }
    policy
}

/// The row's answers under its own name and under every target of its CNAME chains.
fn scripts(row: &DnsRow) -> HashMap<String, Vec<Answer>> {
    let targets = row.answers.iter().flat_map(|a| a.cname.iter().map(|(_, target, _)| target.to_lowercase()));
    let names = targets.chain([row.question.name.to_lowercase()]);
    names.map(|name| (name, row.answers.clone())).collect()
}

/// Seconds after the start of each request.
fn schedule(row: &DnsRow) -> Vec<f64> {
    match (row.expected.requests, &row.expected.requests_at[..]) {
        (Some(count), _) => {
            let window = row.expected.window_s.unwrap_or_default();
            (0..u32::try_from(count).unwrap()).map(|n| window * f64::from(n) / count as f64).collect()
        }
        (None, []) => vec![0.0],
        (None, times) => times.to_vec(),
    }
}

fn step(bench: &Bench, row: &DnsRow, number: usize, at: f64) -> Step {
    let due = bench.dns.epoch() + Duration::from_secs_f64(at);
    thread::sleep(due.saturating_duration_since(Instant::now()));
    let before = bench.dials().len();
    let name = row.question.name.replace("{{n}}", &number.to_string());
    let (port, many) = (row.question.port, row.expected.requests.is_some());
    let (method, payload) = if port == 80 {
        ("GET", format!("GET http://{name}/ HTTP/1.1\r\nHost: {name}\r\n\r\n"))
    } else {
        ("CONNECT", format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n"))
    };
    let mut talk = bench.talk(payload.into_bytes(), &[method]);
    let patience = row.expected.max_seconds.unwrap_or(if many { 3.0 } else { 12.0 });
    talk.limit = Duration::from_secs_f64(patience + 1.0);
    let quiet = if many { Duration::ZERO } else { QUIET };
    let seen =
        talk.run(|seen| seen.settled(quiet) && (bench.dials().len() > before || bench.arrived(seen, 0)));
    if !many {
        thread::sleep(Duration::from_millis(20)); // for a dial that follows
    }
    Step { seen, dials: bench.dials().split_off(before) }
}

fn judge(row: &DnsRow, steps: &[Step], got: &Observation) -> Problems {
    let mut common = limit_problems(row, steps, got);
    let forbidden = bench::canonical(&row.expected.must_not_dial);
    common.extend(got.dials.iter().filter(|d| forbidden.contains(&d.ip())).map(|d| format!("dialled {d}")));
    let asked = |name: &&String| got.queries.iter().any(|q| q.name == **name);
    common
        .extend(row.expected.must_not_query.iter().filter(asked).map(|name| format!("asked DNS for {name}")));
    let outcomes = std::iter::once(&row.expected.outcome).chain(&row.also_ok);
    bench::best(outcomes.map(|o| [common.clone(), outcome_problems(row, o, steps, got)].concat()).collect())
}

/// More queries, dials or time than the row permits.
fn limit_problems(row: &DnsRow, steps: &[Step], got: &Observation) -> Problems {
    let want = &row.expected;
    let mut out = Vec::new();
    let mut at_most = |what: &str, count: usize, most: Option<usize>| {
        if let Some(most) = most.filter(|&most| count > most) {
            out.push(format!("{count} {what}, at most {most}"));
        }
    };
    let mut kinds: HashMap<&str, usize> = HashMap::new();
    for query in got.queries.iter().filter(|q| q.name == row.question.name.to_lowercase()) {
        *kinds.entry(&query.kind).or_default() += 1;
    }
    at_most("queries", got.queries.len(), want.queries.or(want.max_queries));
    at_most("queries of one type", kinds.into_values().max().unwrap_or(0), want.max_queries_per_type);
    at_most("dials", got.dials.iter().collect::<HashSet<_>>().len(), want.max_dials);
    let slowest = steps.iter().map(|s| s.seen.elapsed.as_secs_f64()).fold(0.0, f64::max);
    if want.max_seconds.is_some_and(|most| slowest > most) {
        out.push(format!("took {slowest:.1} s, at most {:?}", want.max_seconds));
    }
    out
}

/// Every outcome, in the words of the case files, that fits one request.
fn labels(step: &Step, queries: bool) -> Vec<&'static str> {
    let status = step.seen.status().unwrap_or_default();
    let dialled = !step.dials.is_empty();
    match status {
        // Without a dial of its own: over a pooled connection, to an address checked before.
        200..300 if dialled || step.seen.last_word().is_some_and(|r| !r.body.is_empty()) => {
            vec!["connect", "connect_filtered"]
        }
        429 => vec!["rate_limited"],
        403 if !dialled && queries => vec!["deny_address"],
        403 if !dialled => vec!["deny_address", "deny_domain"],
        502 | 504 if !dialled => vec!["dns_error", "upstream_error"],
        500.. => vec!["upstream_error"],
        _ => Vec::new(),
    }
}

/// Problems of one acceptable outcome over all requests of the row.
fn outcome_problems(row: &DnsRow, expected: &str, steps: &[Step], got: &Observation) -> Problems {
    if expected == "rate_limited" {
        let limited = steps.iter().any(|s| s.seen.status() == Some(429));
        return if limited { Vec::new() } else { vec!["no request was limited (429)".to_owned()] };
    }
    let permitted =
        bench::canonical(&[&row.expected.dial_any_of[..], &row.expected.dial_failures[..]].concat());
    for (number, step) in steps.iter().enumerate() {
        let last = number + 1 == steps.len();
        let label = match (expected, last) {
            ("connect_then_deny", false) => "connect",
            ("connect_then_deny", true) => "deny_address",
            (other, _) => other,
        };
        let found = labels(step, !got.queries.is_empty());
        if !found.contains(&label) {
            let seen = bench::describe(&step.seen);
            return vec![format!(
                "request {}: {seen}, dialled {:?}, expected {label}",
                number + 1,
                step.dials
            )];
        }
        let stray = |d: &&SocketAddr| {
            let elsewhere = label == "connect" && !permitted.is_empty() && !permitted.contains(&d.ip());
            elsewhere || d.port() != row.question.port
        };
        if let Some(stray) = step.dials.iter().find(|d| label.starts_with("connect") && stray(d)) {
            return vec![format!("request {}: dialled {stray}", number + 1)];
        }
    }
    Vec::new()
}
