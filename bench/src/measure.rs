//! What is measured of one proxy in one round.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::load::{self, Way};
use crate::origin::Origin;
use crate::proxy::{Kind, Running, Setup};

const CLIENTS: usize = 64;
const BULK_TUNNELS: usize = 8;
/// Clients where only the length of the allowlist changes.
const LIST_CLIENTS: usize = 16;
/// What goes through an idle tunnel before it counts as used.
const USED: usize = 64 << 10;
/// For what ends late: closing connections, the last lines of a log.
const SETTLE: Duration = Duration::from_millis(500);

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    pub rounds: usize,
    /// For each measure.
    pub time: Duration,
    pub idle_tunnels: usize,
    /// Lengths of allowlists.
    pub lists: [usize; 3],
    /// The length of the one with which the start is timed.
    pub start_list: usize,
    /// Only what changes of the way of a request or a tunnel show in.
    pub brief: bool,
}

impl Plan {
    pub fn whole(rounds: usize, time: Duration) -> Self {
        Self {
            rounds,
            time,
            idle_tunnels: 2000,
            lists: [10, 1000, 100_000],
            start_list: 10_000,
            brief: false,
        }
    }

    pub fn smoke() -> Self {
        let time = Duration::from_millis(200);
        Self { rounds: 1, time, idle_tunnels: 50, lists: [10, 20, 50], start_list: 100, brief: false }
    }
}

/// Everything about one proxy; what can't be said of no proxy is absent.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    pub plain_rate: f64,
    pub plain_p50_ms: f64,
    pub plain_p99_ms: f64,
    pub plain_cpu: Option<f64>,
    pub connect_rate: f64,
    pub connect_cpu: Option<f64>,
    pub down_gbits: Option<f64>,
    pub up_gbits: Option<f64>,
    pub down_cpu: Option<f64>,
    pub up_cpu: Option<f64>,
    pub idle_fresh: Option<f64>,
    pub idle_used: Option<f64>,
    pub list_rates: [Option<f64>; 3],
    pub start_ms: Option<f64>,
    pub log_octets: Option<f64>,
    /// Requests a second with the log, as a part of those without.
    pub log_cost: Option<f64>,
}

/// Starts the proxy as often as it takes, and measures.
pub async fn all(kind: Kind, egret: &Path, origin: &Origin, plan: &Plan) -> Result<Figures, Failure> {
    let mut figures = Figures::default();
    let usual = Setup { names: 10, log: true };
    let proxy = kind.start(egret, origin, usual).await?;
    let idle = measure_idle(&proxy, origin, plan).await?;
    (figures.idle_fresh, figures.idle_used) = (idle.map(|i| i.0), idle.map(|i| i.1));
    let plain = measure_plain(&proxy, origin, plan).await?;
    (figures.plain_rate, figures.plain_cpu, figures.log_octets) = (plain.rate, plain.cpu, plain.log_octets);
    (figures.plain_p50_ms, figures.plain_p99_ms) = (plain.p50_ms, plain.p99_ms);

    let spent = Spent::begin(&proxy)?;
    let count = load::connects(&proxy, origin, CLIENTS, plan.time).await?;
    figures.connect_rate = count as f64 / spent.began.elapsed().as_secs_f64();
    figures.connect_cpu = spent.cpu(&proxy)?.map(|cpu| cpu * 10_000.0 / count as f64);
    if plan.brief {
        return Ok(figures);
    }
    for way in [Way::Down, Way::Up] {
        tokio::time::sleep(SETTLE).await;
        let spent = Spent::begin(&proxy)?;
        let octets = load::bulk(&proxy, origin, way, BULK_TUNNELS, plan.time).await?;
        let gbits = octets as f64 * 8e-9 / spent.began.elapsed().as_secs_f64();
        let cpu = spent.cpu(&proxy)?.map(|cpu| cpu * 1e9 / octets as f64);
        match way {
            Way::Down => (figures.down_gbits, figures.down_cpu) = (Some(gbits), cpu),
            Way::Up => (figures.up_gbits, figures.up_cpu) = (Some(gbits), cpu),
        }
    }
    drop(proxy);
    if kind == Kind::Direct {
        return Ok(figures);
    }

    let proxy = kind.start(egret, origin, Setup { log: false, ..usual }).await?;
    let silent = measure_plain(&proxy, origin, plan).await?;
    figures.log_cost = Some(figures.plain_rate / silent.rate);
    drop(proxy);
    for (names, rate) in plan.lists.into_iter().zip(&mut figures.list_rates) {
        let proxy = kind.start(egret, origin, Setup { names, ..usual }).await?;
        let began = Instant::now();
        let taken = load::plain(&proxy, origin, LIST_CLIENTS, plan.time).await?;
        *rate = Some(taken.len() as f64 / began.elapsed().as_secs_f64());
    }
    let proxy = kind.start(egret, origin, Setup { names: plan.start_list, ..usual }).await?;
    figures.start_ms = Some(proxy.start.as_secs_f64() * 1000.0);
    Ok(figures)
}

/// Octets of memory for a tunnel, fresh and used.
async fn measure_idle(proxy: &Running, origin: &Origin, plan: &Plan) -> Result<Option<(f64, f64)>, Failure> {
    let Some(process) = &proxy.process else { return Ok(None) };
    let before = process.memory()?;
    let mut streams = load::idle(proxy, origin, plan.idle_tunnels).await?;
    let each = |memory: u64| memory.saturating_sub(before) as f64 / plan.idle_tunnels as f64;
    tokio::time::sleep(SETTLE).await;
    let fresh = each(process.memory()?);
    load::use_once(&mut streams, USED).await?;
    tokio::time::sleep(SETTLE).await;
    let used = each(process.memory()?);
    drop(streams);
    tokio::time::sleep(SETTLE).await;
    Ok(Some((fresh, used)))
}

struct Plain {
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
    cpu: Option<f64>,
    log_octets: Option<f64>,
}

async fn measure_plain(proxy: &Running, origin: &Origin, plan: &Plan) -> Result<Plain, Failure> {
    // Connections are opened, and buffers grown, before it counts.
    load::plain(proxy, origin, CLIENTS, plan.time / 10).await?;
    tokio::time::sleep(SETTLE).await;
    let (spent, log) = (Spent::begin(proxy)?, proxy.log_size());
    let mut taken = load::plain(proxy, origin, CLIENTS, plan.time).await?;
    let count = taken.len() as f64;
    let rate = count / spent.began.elapsed().as_secs_f64();
    let cpu = spent.cpu(proxy)?.map(|cpu| cpu * 10_000.0 / count);
    tokio::time::sleep(SETTLE).await;
    let log_octets = proxy.process.is_some().then(|| (proxy.log_size() - log) as f64 / count);
    taken.sort_unstable();
    let quantile = |part: f64| {
        let at = ((count - 1.0) * part).round() as usize;
        taken.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
    };
    Ok(Plain { rate, p50_ms: quantile(0.5), p99_ms: quantile(0.99), cpu, log_octets })
}

/// What a proxy uses during a measure.
struct Spent {
    began: Instant,
    cpu: Option<Duration>,
}

impl Spent {
    fn begin(proxy: &Running) -> Result<Self, Failure> {
        let cpu = proxy.process.as_ref().map(|process| process.cpu()).transpose()?;
        Ok(Self { began: Instant::now(), cpu })
    }

    /// Seconds on a processor since then.
    fn cpu(&self, proxy: &Running) -> Result<Option<f64>, Failure> {
        let now = proxy.process.as_ref().map(|process| process.cpu()).transpose()?;
        Ok(now.zip(self.cpu).map(|(now, before)| (now - before).as_secs_f64()))
    }
}
