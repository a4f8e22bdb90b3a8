//! `egret probe`: shows from inside a sandbox that egret is its only way out.
//!
//! Tests the sandbox and what surrounds it, not egret alone. Knows nothing that it was not told or
//! could not see from there, and never counts as passed what it could not check.

mod baseline;
mod check;
mod decisions;
mod direct;
mod engine;
mod environment;
mod expect;
mod hosts;
mod metadata;
mod names;
mod outside;
mod packet;
mod proxy;
mod report;
mod socket;
mod surroundings;
mod target;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use egret_policy::Problems;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_rustls::TlsConnector;

use super::{BAD_INPUT, FAILED, OK, complain, files, runtime, say, show};
use baseline::{Baseline, Known};
use check::{Outcome, Plan};
use decisions::Place;
use environment::Environment;
use expect::Expected;
use outside::Outside;
use proxy::{NO_AUTHORITY, Proxy, ProxyUrl, UNKNOWN_NAME};
use report::Report;
use surroundings::Surroundings;
use target::{Target, Way};
use tls::TlsArgs;

/// Direct attempts at a time; a host near by is one.
const AT_A_TIME: usize = 32;

#[derive(Debug, Args)]
#[command(after_help = "\
Inside a sandbox it tries every way past egret and checks that each is blocked, that egret refuses what
it must, and that what is allowed works. Outside, with --baseline, it writes down which of the same
targets answer there, so that \"blocked\" is not just \"down\".

Each check is one line: pass, FAIL, or UNSUPPORTED where it can't be made from here, with the reason.
The last line is `PASS: N restricted checks and M baseline counterchecks` (exit code 0) or begins with
FAIL (exit code 1). UNSUPPORTED never counts as passed.

  outside:  egret probe --baseline --write base.json --allowed https://example.com/
  inside:   egret probe --baseline base.json --allowed https://example.com/

Give both runs the same --target, --neighbour, --allowed, --refused, --redirect and --expect.")]
pub(super) struct ProbeArgs {
    /// Without FILE: run outside the sandbox, and note what can be reached. With FILE, inside: what
    /// was noted
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    baseline: Option<Option<PathBuf>>,
    /// Where to write what was noted outside
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// The proxy, with user and token if it needs them [default: https_proxy, else http_proxy]
    #[arg(long, value_name = "URL")]
    proxy: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// A URL or host:port that the policy allows; repeatable. With TLS it also serves to show that
    /// another server name is stopped
    #[arg(long, value_name = "PLACE")]
    allowed: Vec<Place>,
    /// A URL or host:port that the policy refuses; repeatable [default: a name that nobody can have]
    #[arg(long, value_name = "PLACE")]
    refused: Vec<Place>,
    /// An http:// URL of an allowed destination that redirects to a refused one; repeatable
    #[arg(long, value_name = "URL", value_parser = read_redirect)]
    redirect: Vec<String>,
    /// Something that must not be reached past the proxy: tcp:ADDR:PORT, udp:ADDR:PORT, dns:ADDR or
    /// icmp:ADDR; repeatable
    #[arg(long, value_name = "TARGET")]
    target: Vec<Target>,
    /// Leave out what nobody named of what is tried past the proxy: public services and metadata
    /// services, as in a lab without them
    #[arg(long)]
    no_defaults: bool,
    /// A private service near by that must not be reached, past the proxy or through it; repeatable
    #[arg(long, value_name = "ADDR:PORT")]
    neighbour: Vec<SocketAddr>,
    /// Where egret's control interface is [default: port 3129 of the proxy's host]
    #[arg(long, value_name = "ADDR:PORT")]
    control: Vec<SocketAddr>,
    /// Another listener of egret's own, which may answer; repeatable
    #[arg(long, value_name = "ADDR:PORT")]
    listener: Vec<SocketAddr>,
    /// A host near by that may refuse connections, as long as nothing is open there; repeatable
    #[arg(long, value_name = "ADDR")]
    may_refuse: Vec<IpAddr>,
    /// Connections past the proxy are redirected to egret's transparent listener: it takes them, and
    /// must refuse or close them
    #[arg(long)]
    transparent: bool,
    /// Name that this machine's own resolver must not find
    #[arg(long, value_name = "NAME", default_value = "example.com")]
    dns_name: String,
    /// Server name to ask for in place of an allowed one
    #[arg(long, value_name = "NAME", default_value = UNKNOWN_NAME)]
    other_sni: String,
    /// A site's own list of [[target]] tables
    #[arg(long, value_name = "FILE")]
    expect: Vec<PathBuf>,
    /// UNSUPPORTED fails too
    #[arg(long)]
    strict: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Seconds to wait for one answer
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
    /// Seconds for all checks together
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=3600))]
    total: u64,
}

/// What checks share.
#[derive(Debug)]
struct Context {
    /// For one answer.
    patience: Duration,
    baseline: Option<Baseline>,
    /// Or why there is none.
    proxy: Result<Proxy, String>,
    /// egret's own, which may answer.
    listeners: Vec<SocketAddr>,
    may_refuse: Vec<IpAddr>,
    transparent: bool,
    turns: Semaphore,
}

impl Context {
    /// Leave for one direct attempt.
    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    fn knows(&self, target: &str) -> Known {
        Baseline::knows(self.baseline.as_ref(), target)
    }

    fn is_proxy(&self, ip: IpAddr) -> bool {
        self.proxy.as_ref().is_ok_and(|proxy| proxy.address.ip() == ip)
    }
}

fn read_redirect(text: &str) -> Result<String, String> {
    let place: Place = text.parse()?;
    if text.to_ascii_lowercase().starts_with("http://") && !place.is_tls() {
        return Ok(text.to_owned());
    }
    Err("egret sees redirects of http:// URLs only".to_owned())
}

impl ProbeArgs {
    pub(super) fn run(self) -> u8 {
        let mut problems = Problems::default();
        let expected: Vec<_> =
            self.expect.iter().flat_map(|path| expect::read(path, &mut problems)).collect();
        show(&problems);
        if problems.any_error() {
            return BAD_INPUT;
        }
        let runtime = match runtime::start(2, |_| {}) {
            Ok(runtime) => runtime,
            Err(message) => {
                complain(&message);
                return FAILED;
            }
        };
        let code = match self.baseline.clone() {
            Some(None) => runtime.block_on(self.outside(expected)),
            _ if self.write.is_some() => {
                complain("--write goes with --baseline without a file: the run from outside writes it");
                BAD_INPUT
            }
            given => match given.flatten().map(|path| Baseline::read(&path)).transpose() {
                Ok(baseline) => runtime.block_on(self.inside(baseline, expected)),
                Err(message) => {
                    complain(&message);
                    BAD_INPUT
                }
            },
        };
        // A look-up of the system's that hangs must not hold up the end.
        runtime.shutdown_background();
        code
    }

    /// The services that must not be reached past the proxy.
    fn targets(&self) -> Vec<Target> {
        let defaults = if self.no_defaults { Vec::new() } else { target::public() };
        defaults.into_iter().chain(self.target.iter().copied()).collect()
    }

    /// The metadata services that are tried past the proxy: addresses, and names.
    fn metadata(&self) -> (Vec<Target>, &'static [&'static str]) {
        if self.no_defaults { (Vec::new(), &[]) } else { (target::metadata(), &names::METADATA) }
    }

    fn neighbours(&self) -> Vec<Target> {
        self.neighbour.iter().map(|address| Target { way: Way::Tcp, address: *address }).collect()
    }

    async fn outside(self, expected: Vec<Expected>) -> u8 {
        let (metadata, names) = self.metadata();
        let mut outside = Outside {
            targets: [self.targets(), metadata, self.neighbours()].concat(),
            names: names.iter().map(|name| (*name).to_owned()).chain([self.dns_name]).collect(),
            places: [self.allowed, self.refused].concat(),
            redirects: self.redirect,
            other_name: self.other_sni,
        };
        for expected in expected {
            match expected {
                Expected::Blocked(target) => outside.targets.push(target),
                Expected::Allowed(place) | Expected::Refused(place, _) => outside.places.push(place),
            }
        }
        let json = self.json;
        let baseline = outside::run(outside, Duration::from_secs(self.timeout), |target, reach| {
            if !json {
                say(&format!("{:<11} {target}: {}\n", reach.kind.as_str(), reach.detail));
            }
        })
        .await;
        if json {
            say(&baseline.to_json());
        }
        if let Some(path) = &self.write
            && let Err((message, code)) = files::replace(path, &baseline.to_json())
        {
            complain(&message);
            return code;
        }
        let (reached, tried) = (baseline.reached(), baseline.tried());
        if !json {
            say(&format!("BASELINE: {reached} of {tried} targets were reached\n"));
        }
        if reached == 0 {
            complain("nothing was reached: this is not outside, or nothing of it is up");
            return FAILED;
        }
        OK
    }

    async fn inside(self, baseline: Option<Baseline>, expected: Vec<Expected>) -> u8 {
        let age = baseline.as_ref().map(Baseline::age);
        let environment = Environment::look();
        let named = self.proxy.is_some() || self.transparent;
        let url = match (&self.proxy, environment.proxy()) {
            (Some(text), _) => match ProxyUrl::read(text) {
                Ok(url) => Some(url),
                Err(message) => {
                    complain(&message);
                    return BAD_INPUT;
                }
            },
            // What is wrong with it, the check of the environment says.
            (None, text) => text.and_then(|text| ProxyUrl::read(text).ok()),
        };
        let connector = match (&url, self.tls.is_empty()) {
            (Some(url), _) if url.is_tls() => self.tls.connector(),
            (_, true) => Ok(None),
            (..) => Err((
                "--ca, --cert and --key are for an https:// proxy, and there is none".to_owned(),
                BAD_INPUT,
            )),
        };
        let connector = match connector {
            Ok(connector) => connector,
            Err((message, code)) => {
                complain(&message);
                return code;
            }
        };
        let patience = Duration::from_secs(self.timeout);
        let mut plan = Plan::default();
        environment.plan(url.as_ref(), named, &mut plan);
        engine::plan(&environment, patience, &mut plan);
        let proxy = find_proxy(url.as_ref(), connector, patience, &mut plan).await;
        let own = proxy.as_ref().map(|proxy| proxy.address).ok();
        let context = Arc::new(Context {
            patience,
            baseline,
            proxy,
            listeners: own.into_iter().chain(self.listener.iter().copied()).collect(),
            may_refuse: self.may_refuse.clone(),
            transparent: self.transparent,
            turns: Semaphore::new(AT_A_TIME),
        });
        socket::stir(&Surroundings::look().possible()).await;
        self.plan(&context, &expected, &mut plan);
        let json = self.json;
        let checks = plan.run(Duration::from_secs(self.total), |check| {
            let line =
                if json { serde_json::to_string(check).unwrap_or_default() } else { check.to_string() };
            say(&(line + "\n"));
        });
        let report = Report::of(&checks.await, age, self.strict);
        let said = say(&if json { report.to_json() } else { report.to_text() });
        if report.passed { said } else { FAILED }
    }

    /// Everything but what is known of the environment and of the proxy itself.
    fn plan(&self, context: &Arc<Context>, expected: &[Expected], plan: &mut Plan) {
        direct::plan(context, "direct", &self.targets(), plan);
        names::plan_resolver(context, &self.dns_name, plan);
        let (metadata, names) = self.metadata();
        direct::plan(context, "metadata", &metadata, plan);
        names::plan_metadata(context, names, plan);
        metadata::plan(context, plan);
        hosts::plan_near(context, Surroundings::look(), &self.neighbour, plan);
        for neighbour in self.neighbours() {
            direct::plan(context, "neighbour", &[neighbour], plan);
            hosts::plan_proxied(context, "neighbour", neighbour.address, plan);
        }
        hosts::plan_control(context, &self.control, plan);
        decisions::plan_allowed(context, &self.allowed, plan);
        decisions::plan_refused(context, &self.refused, plan);
        decisions::plan_redirects(context, &self.redirect, plan);
        decisions::plan_sni(context, &self.allowed, &self.other_sni, plan);
        for expected in expected {
            match expected {
                Expected::Blocked(target) => direct::plan(context, "expected", &[*target], plan),
                Expected::Allowed(place) => decisions::plan_expected(context, place, plan),
                Expected::Refused(place, reason) => {
                    let reasons: Vec<_> = reason.iter().cloned().collect();
                    decisions::plan_refusal(context, "expected", place, &reasons, plan);
                }
            }
        }
    }
}

/// The proxy, if something answers there; adds the check that it is egret, and knows this sandbox.
async fn find_proxy(
    url: Option<&ProxyUrl>,
    connector: Option<TlsConnector>,
    patience: Duration,
    plan: &mut Plan,
) -> Result<Proxy, String> {
    let Some(url) = url else {
        let why = "there is no proxy to ask; name it with --proxy".to_owned();
        plan.known("proxy", "-", Outcome::unsupported(&why));
        return Err(why);
    };
    if url.is_tls() && connector.is_none() {
        plan.known("proxy", url.place(), Outcome::unsupported(NO_AUTHORITY));
        return Err(NO_AUTHORITY.to_owned());
    }
    let proxy = match Proxy::find(url, connector, patience).await {
        Ok(proxy) => proxy,
        Err(reach) => {
            plan.known("proxy", url.place(), Outcome::fail(reach.detail).of(reach.kind));
            return Err("the proxy can't be reached".to_owned());
        }
    };
    match proxy.connect(&format!("{UNKNOWN_NAME}:443")).await {
        Ok((answer, _)) => plan.known("proxy", url.place(), answer.is_egrets()),
        Err(reach) => {
            plan.known("proxy", url.place(), Outcome::fail(reach.detail).of(reach.kind));
            return Err("the proxy does not answer".to_owned());
        }
    }
    Ok(proxy)
}
