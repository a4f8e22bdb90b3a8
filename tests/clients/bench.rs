//! What every client is tried against: egret, a site behind it over HTTP and HTTPS, and the audit
//! that must agree with the site to the octet.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::site::{self, Reply, Served, Site};
use crate::support::egret::{BINARY, Builder, Egret, SocksAt};
use crate::support::origin::Request;
use crate::tls;
use crate::tool;

/// Allowed, on the ports of both sites.
pub const OK: &str = "ok.test";
/// As good, on the same sites.
pub const OK2: &str = "ok2.test";
/// Resolves as well, but no rule allows it.
pub const NO: &str = "no.test";

/// The reason for refusing `NO`, which a client should show.
pub const REFUSED: &str = "domain_not_allowed";

/// The path of a file that the standard site serves, and its length.
pub const FILE: &str = "/file?version=1&lang=en";
const FILE_LENGTH: usize = 300_000;

/// How long the audit may take to agree with the sites.
const PATIENCE: Duration = Duration::from_secs(20);

/// By what egret knows the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Its address.
    Source,
    /// A token, which it sends when it is asked for one, or unasked.
    Token,
}

/// What went each way, and the status of the answer where egret can read it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Moved {
    up: u64,
    down: u64,
    status: Option<u64>,
}

pub struct Bench {
    pub egret: Egret,
    pub plain: Site,
    pub tls: Site,
    /// A port on which `OK` is allowed but nothing listens.
    pub closed_port: u16,
    by: By,
    /// `user:password@`, where the client has a token.
    credentials: String,
    folder: TempDir,
}

impl Bench {
    /// A site with `FILE`, that says who was asked for at `/who`, and echoes what is sent to it.
    pub fn start(by: By) -> Self {
        Self::serving(by, |_| standard)
    }

    /// A site with the files that the test puts into `web()`.
    pub fn with_files(by: By) -> Self {
        Self::serving(by, site::files)
    }

    /// The standard site behind an egret that is reached over TLS as well, with these lines about it
    /// and these further tables.
    pub fn over_tls(lines: &str, tables: &str) -> Self {
        Self::behind(By::Source, |_| standard, |config| Egret::with(config + tables).tls(lines))
    }

    /// A site of the test's own; `handler` is made from the folder `web()`.
    pub fn serving<H>(by: By, handler: impl FnOnce(&Path) -> H) -> Self
    where
        H: Fn(&Request) -> Reply + Send + Sync + 'static,
    {
        Self::behind(by, handler, |config| Egret::with(config).socks(SocksAt::OwnPort))
    }

    fn behind<H>(by: By, handler: impl FnOnce(&Path) -> H, egret: impl FnOnce(String) -> Builder) -> Self
    where
        H: Fn(&Request) -> Reply + Send + Sync + 'static,
    {
        let folder = tempfile::tempdir().unwrap();
        for name in ["home", "web"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let (ca, config) = tls::authority(&[OK, OK2, NO]);
        std::fs::write(folder.path().join("ca.pem"), ca).unwrap();
        let handler = Arc::new(handler(&folder.path().join("web")));
        let plain = Site::start(handler.clone(), None);
        let tls = Site::start(handler, Some(config));
        let closed_port = closed_port();
        let (auth, identity, credentials) = match by {
            By::Source => ("source", String::new(), String::new()),
            By::Token => token(folder.path()),
        };
        let config = identity + &configuration(plain.port(), tls.port(), closed_port, auth);
        let egret = egret(config).start();
        Self { egret, plain, tls, closed_port, by, credentials, folder }
    }

    /// An empty folder, the client's home and working directory.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub fn web(&self) -> PathBuf {
        self.folder.path().join("web")
    }

    /// The authority that signed for the site, in PEM.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub fn proxy_url(&self) -> String {
        format!("http://{}{}", self.credentials, self.egret.proxy)
    }

    /// The same for clients that speak SOCKS.
    pub fn socks_url(&self) -> String {
        let url = format!("socks5h://{}", self.egret.socks);
        match self.by {
            By::Source => url,
            By::Token => mint(self.folder.path(), &["--url", &url]),
        }
    }

    pub fn http(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.plain.port())
    }

    pub fn https(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.tls.port())
    }

    /// Both kinds of URL.
    pub fn urls(&self, host: &str, path: &str) -> [String; 2] {
        [self.http(host, path), self.https(host, path)]
    }

    /// A client with the usual variables that send it through egret.
    pub fn client(&self, program: &Path) -> Command {
        let mut command = tool::command(program, &self.home());
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            command.env(name, self.proxy_url());
        }
        command
    }

    /// Holds the audit against what the sites have served: every request and every tunnel has its
    /// decision and its end, with exactly the octets that moved, and nothing else has.
    #[track_caller]
    pub fn settle(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let tunnels = [self.closed("connect"), self.closed("socks5")].concat();
            let audit = [self.closed("http"), sorted(tunnels)];
            let sites = [sorted(self.plain_served()), sorted(self.tunnels())];
            if audit == sites {
                return;
            }
            // The last octets of a tunnel may still be on their way into the site.
            assert!(Instant::now() < deadline, "the audit has {audit:?}\nthe sites have {sites:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What was allowed over this protocol and has ended well, sorted.
    fn closed(&self, protocol: &str) -> Vec<Moved> {
        let records = self.egret.audit_records();
        let decision = |id: &Value| {
            records.iter().find(|r| r["event"] == "decision" && r["id"] == *id).expect("a decision first")
        };
        let ends = records.iter().filter(|r| r["event"] == "close").filter(|close| {
            let decision = decision(&close["id"]);
            assert_eq!((&decision["verdict"], &decision["sandbox"]), (&"allow".into(), &"box".into()));
            assert_eq!(decision["identity"] == "token", self.by == By::Token, "{decision}");
            decision["protocol"] == protocol && decision["reason"] == "allowed"
        });
        sorted(
            ends.map(|close| {
                assert_eq!(close["reason"], "allowed", "{close}");
                let bytes = |name: &str| close[name].as_u64().unwrap();
                Moved { up: bytes("bytes_up"), down: bytes("bytes_down"), status: close["status"].as_u64() }
            })
            .collect(),
        )
    }

    /// Bodies of plain requests and answers; those through a tunnel count as its octets.
    fn plain_served(&self) -> Vec<Moved> {
        let via = |r: &Request| r.headers.iter().any(|(n, v)| n == "via" && v.ends_with(" egret"));
        let served = self.plain.served().into_iter().filter(|s| via(&s.request));
        let moved = |s: Served| {
            let (up, status) = (s.request.body.len() as u64, Some(u64::from(s.status)));
            Moved { up, down: s.sent, status }
        };
        served.map(moved).collect()
    }

    /// Octets of tunnels: all connections to the TLS site, and those to the plain one whose
    /// requests no proxy has touched.
    fn tunnels(&self) -> Vec<Moved> {
        let mut all = self.tls.traffic();
        if self.plain_served().len() < self.plain.served().len() {
            all.extend(self.plain.traffic());
        }
        all.into_iter().map(|(up, down)| Moved { up, down, status: None }).collect()
    }

    /// The decisions that refused something: protocol, host, reason.
    fn refusals(&self) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let decisions = self.egret.events("decision").into_iter().filter(|r| r["verdict"] == "deny");
        decisions.map(|r| (text(&r["protocol"]), text(&r["host"]), text(&r["reason"]))).collect()
    }

    /// `NO` was refused so many times over each protocol, and neither site has heard of it.
    #[track_caller]
    pub fn refused_no(&self, http: usize, connect: usize) {
        let mut expected = vec![refusal("connect"); connect];
        expected.extend(vec![refusal("http"); http]);
        assert_eq!(sorted(self.refusals()), expected);
        self.never_reached();
    }

    /// The same for a client that tries a number of times of its own.
    #[track_caller]
    pub fn refused_no_over(&self, protocols: &[&str]) {
        let mut refusals = sorted(self.refusals());
        refusals.dedup();
        assert_eq!(refusals, protocols.iter().map(|p| refusal(p)).collect::<Vec<_>>());
        self.never_reached();
    }

    #[track_caller]
    fn never_reached(&self) {
        for served in self.plain.served().iter().chain(&self.tls.served()) {
            assert!(!served.request.get("host").unwrap_or_default().starts_with(NO), "{served:?}");
        }
        self.settle();
    }
}

/// A refusal of `NO`, as `Bench::refusals` has it.
fn refusal(protocol: &str) -> (String, String, String) {
    (protocol.to_owned(), NO.to_owned(), REFUSED.to_owned())
}

/// What `FILE` holds: no two blocks are alike.
pub fn content(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length.div_ceil(8)).flat_map(|_| next()).take(length).collect()
}

/// The body of `FILE`.
pub fn file() -> Vec<u8> {
    content(FILE_LENGTH)
}

fn standard(request: &Request) -> Reply {
    match (request.method(), request.path()) {
        ("GET" | "HEAD", FILE) => Reply::ok(file()),
        ("GET", "/chunked") => Reply { chunked: true, ..Reply::ok(file()) },
        ("GET", "/who") => Reply::ok(format!("{}\n", request.get("host").unwrap_or_default())),
        ("PUT" | "POST", _) => Reply::ok(request.body.clone()),
        _ => Reply::not_found(),
    }
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

/// A port that was free a moment ago.
fn closed_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Makes a token for the sandbox: how it identifies itself, what egret is told of that, and the
/// client's credentials.
fn token(folder: &Path) -> (&'static str, String, String) {
    egret_token(folder, &["keygen", "--out", "token"]);
    let (token, keys) = (mint(folder, &[]), folder.join("token.pub"));
    ("token", format!("[identity]\ntoken_keys = [{keys:?}]\n\n"), format!("box:{token}@"))
}

/// A token for the sandbox, by the key in this folder.
fn mint(folder: &Path, more: &[&str]) -> String {
    let fixed = ["mint", "--key", "token.key", "--sandbox", "box", "--policy", "main", "--ttl", "15m"];
    egret_token(folder, &[&fixed[..], more].concat())
}

fn egret_token(folder: &Path, arguments: &[&str]) -> String {
    let made = Command::new(BINARY).current_dir(folder).arg("token").args(arguments).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

fn configuration(plain: u16, tls: u16, closed: u16, auth: &str) -> String {
    format!(
        "[dns]\nservers = [\"127.0.0.1:9\"]\ntimeout = \"2s\"\n\
         hosts = {{ \"{OK}\" = [\"127.0.0.1\"], \"{OK2}\" = [\"127.0.0.1\"], \"{NO}\" = [\"127.0.0.1\"] }}\n\n\
         [[sandbox]]\nid = \"box\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"main\"\n\
         auth = \"{auth}\"\n\n\
         [policy.main]\ndefault = \"deny\"\n\n\
         [[policy.main.allow]]\ndomains = [\"{OK}\", \"{OK2}\", \"unknown.test\"]\n\
         addresses = [\"127.0.0.1/32\"]\nports = [{plain}, {closed}]\n\n\
         [[policy.main.allow]]\ndomains = [\"{OK}\", \"{OK2}\"]\n\
         addresses = [\"127.0.0.1/32\"]\nports = [{tls}]\ntls = \"required\"\n"
    )
}
