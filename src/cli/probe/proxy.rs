//! Requests to the proxy, octet by octet as a client would send them, and its answers.
//!
//! Follows nothing and resolves nothing but the proxy's own name.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use egret_policy::Reason;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use url::Url;

use super::check::{Kind, Outcome};
use super::socket::{self, Reach, nothing};
use super::tls::{Stream, Tls};

/// A name that no rule allows, because nobody can have it (RFC 6761 section 6.4).
pub(super) const UNKNOWN_NAME: &str = "egret-probe.invalid";
/// Requests at a time, so that a sandbox's limits are not what answers.
const AT_A_TIME: usize = 6;
/// How often a request is sent again that came too soon, and how long that is waited for at most.
const AGAIN: usize = 3;
const MOST_WAIT: Duration = Duration::from_secs(2);
/// The proxy dials on its side, and has to give up earlier than we do.
const PATIENCE_FACTOR: u32 = 3;
/// Why an https:// proxy can't be asked.
pub(super) const NO_AUTHORITY: &str =
    "this machine has no authorities that the proxy's certificate could come from; name them with --ca";
const LONGEST_HEAD: usize = 1 << 16;
const MOST_FIELDS: usize = 256;

/// The URL of a proxy, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProxyUrl {
    pub(super) host: String,
    pub(super) port: u16,
    /// The name that its certificate must be for, if it is spoken to in TLS.
    tls: Option<ServerName<'static>>,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
}

/// A proxy that can be spoken to.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    tls: Option<Tls>,
    authorization: Option<String>,
    patience: Duration,
    turns: Semaphore,
}

/// The head of an answer, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) reason: Option<String>,
    pub(super) location: Option<String>,
    retry_after: Option<u64>,
}

impl ProxyUrl {
    /// Reads what `http_proxy` may hold; without a scheme it is `http://`, as for curl.
    ///
    /// # Errors
    /// In words; they never hold the password.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&whole).map_err(|error| format!("the proxy's URL can't be read: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            let scheme = url.scheme();
            return Err(format!(
                "the probe speaks to http:// and https:// proxies, not to {scheme}://; name one with --proxy"
            ));
        }
        let host = url.host_str().ok_or("the proxy's URL has no host")?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = (url.scheme() == "https").then(|| ServerName::try_from(host.clone())).transpose();
        let tls = tls.map_err(|_| "no certificate can be for the host of the proxy's URL")?;
        let user = unescape(url.username());
        let password = unescape(url.password().unwrap_or_default());
        let authorization = (!user.is_empty() || !password.is_empty()).then(|| {
            let pair = [user, b":".to_vec(), password].concat();
            format!("Basic {}", STANDARD.encode(pair))
        });
        Ok(Self { host, port: url.port_or_known_default().unwrap_or(80), tls, authorization })
    }

    /// Is the proxy spoken to in TLS?
    pub(super) const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Host and port, for comparison and for people.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Undoes percent-encoding (RFC 3986 section 2.1); what is none stays.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let octet = digits.filter(|_| first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(octet.unwrap_or(first));
        rest = if octet.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    out
}

impl Proxy {
    /// The first address of the proxy's name that takes a connection. TLS with it is made for each
    /// request, by the connector if it needs any.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn find(
        url: &ProxyUrl,
        connector: Option<TlsConnector>,
        patience: Duration,
    ) -> Result<Self, Reach> {
        let tls = match (url.tls.clone(), connector) {
            (None, _) => None,
            (Some(name), Some(connector)) => Some(Tls { connector, name }),
            // In clear, a token would be given to whoever listens.
            (Some(_), None) => return Err(Reach::new(Kind::Other, NO_AUTHORITY)),
        };
        let mut last = Reach::new(Kind::Unreachable, "the proxy's name has no address");
        for address in socket::look_up(&url.host, url.port, patience).await? {
            match socket::connect(address, patience).await {
                Ok(_) => {
                    return Ok(Self {
                        address,
                        tls,
                        authorization: url.authorization.clone(),
                        patience: patience * PATIENCE_FACTOR,
                        turns: Semaphore::new(AT_A_TIME),
                    });
                }
                Err(reach) => last = reach,
            }
        }
        Err(last)
    }

    /// A CONNECT to an authority, which is sent as it stands; the connection, in case it is a tunnel.
    pub(super) async fn connect(&self, authority: &str) -> Result<(Answer, Stream), Reach> {
        self.ask("CONNECT", authority, authority).await
    }

    /// A GET of a URL, which is sent as it stands.
    pub(super) async fn get(&self, url: &str) -> Result<Answer, Reach> {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        self.ask("GET", url, authority).await.map(|(answer, _)| answer)
    }

    async fn ask(&self, method: &str, target: &str, host: &str) -> Result<(Answer, Stream), Reach> {
        // A field that is malformed would be what is refused, and not the target.
        let plain = host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b));
        let host = if plain { host } else { UNKNOWN_NAME };
        let authorization = self.authorization.as_ref();
        let authorization = authorization.map(|value| format!("Proxy-Authorization: {value}\r\n"));
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\n{}User-Agent: egret-probe\r\n\r\n",
            authorization.unwrap_or_default()
        );
        let _turn = self.turns.acquire().await;
        let mut again = 0;
        loop {
            let (answer, stream) = self.send(request.as_bytes()).await?;
            if answer.status != 429 || again == AGAIN {
                return Ok((answer, stream));
            }
            again += 1;
            sleep(Duration::from_secs(answer.retry_after.unwrap_or(1)).min(MOST_WAIT)).await;
        }
    }

    async fn send(&self, request: &[u8]) -> Result<(Answer, Stream), Reach> {
        let exchange = async {
            let stream = socket::connect(self.address, self.patience).await?;
            let mut stream = match &self.tls {
                Some(tls) => tls.wrap(stream).await?,
                None => Box::new(stream),
            };
            stream.write_all(request).await?;
            stream.flush().await?;
            let answer = read_answer(&mut stream).await?;
            Ok((answer, stream))
        };
        timeout(self.patience, exchange).await.unwrap_or_else(|_| Err(nothing(self.patience)))
    }

    /// Sends octets into a tunnel: the first ones that come back, none if it was closed.
    pub(super) async fn through(&self, mut tunnel: Stream, octets: &[u8]) -> Result<Vec<u8>, Reach> {
        let talk = async {
            // Where the other side has closed already, reading says so.
            let _ = tunnel.write_all(octets).await;
            let _ = tunnel.flush().await;
            let mut answer = vec![0; 1024];
            let length = tunnel.read(&mut answer).await.unwrap_or_default();
            answer.truncate(length);
            Ok(answer)
        };
        timeout(self.patience, talk).await.unwrap_or_else(|_| Err(nothing(self.patience)))
    }
}

/// Reads the head of an answer, octet by octet: what follows belongs to a tunnel.
pub(super) async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Answer> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= LONGEST_HEAD {
            return Err(io::Error::other("the answer's head has no end"));
        }
        match stream.read_u8().await {
            Ok(octet) => head.push(octet),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(io::Error::new(error.kind(), "closed without a whole answer"));
            }
            Err(error) => return Err(error),
        }
    }
    Answer::read(&head).ok_or_else(|| io::Error::other("the answer is not HTTP/1"))
}

impl Answer {
    fn read(head: &[u8]) -> Option<Self> {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        response.parse(head).ok().filter(httparse::Status::is_complete)?;
        let status = response.code?;
        let value = |name: &str| {
            let found = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
            Some(String::from_utf8_lossy(found.value).trim().to_owned())
        };
        let reason = value("x-egret-reason").filter(|code| Reason::ALL.iter().any(|r| r.code() == code));
        let retry_after = value("retry-after").and_then(|seconds| seconds.parse().ok());
        Some(Self { status, reason, location: value("location"), retry_after })
    }

    /// In a few words.
    pub(super) fn describe(&self) -> String {
        match &self.reason {
            Some(reason) => format!("{} {reason}", self.status),
            None => format!("{} without a reason of egret's", self.status),
        }
    }

    /// The answer to a CONNECT to nowhere: is it egret's, and about where to?
    pub(super) fn is_egrets(&self) -> Outcome {
        let said = self.describe();
        match self.reason {
            Some(_) if self.is_about_the_client() => {
                Outcome::fail(format!("{said}: egret does not serve this sandbox as it identifies itself"))
            }
            Some(_) => Outcome::pass(format!("egret answers: {said}")),
            None => Outcome::fail(format!("{said}: what answers there is not egret")),
        }
    }

    /// Does the answer say that nobody of this sandbox may ask for anything?
    fn is_about_the_client(&self) -> bool {
        let reason = self.reason.as_deref().unwrap_or_default();
        self.status == 429 || self.status == 407 || reason.starts_with("identity_")
    }
}

/// A request that egret must refuse, with one of these reasons if there are any.
pub(super) fn refusal(answer: Result<Answer, Reach>, reasons: &[&str]) -> Outcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(Reach { kind, detail }) => {
            let detail =
                format!("no refusal but {}: {detail}; what failed may have been let through", kind.as_str());
            return Outcome::fail(detail);
        }
    };
    let said = answer.describe();
    match (&answer.reason, answer.status) {
        _ if answer.is_about_the_client() => Outcome::unsupported(format!(
            "{said}: the answer is about the client, not about what it asked for"
        )),
        (Some(reason), 400 | 403) if reasons.is_empty() || reasons.contains(&reason.as_str()) => {
            Outcome::pass(said)
        }
        (Some(_), 400 | 403) => Outcome::fail(format!("{said}, where {} was expected", reasons.join(" or "))),
        (None, 400 | 403) => Outcome::fail(format!("{said}: it may have come from the destination")),
        _ => Outcome::fail(said),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    #[test]
    fn urls_of_proxies_are_read() {
        let url = ProxyUrl::read("http://box:ey.J%2b@egret:3128").unwrap();
        assert_eq!(url.place(), "egret:3128");
        assert_eq!(url.authorization.unwrap(), format!("Basic {}", STANDARD.encode("box:ey.J+")));
        let url = ProxyUrl::read("[fd00::1]:3128").unwrap();
        assert_eq!((url.place().as_str(), &url.authorization), ("fd00::1:3128", &None));
        assert_eq!(ProxyUrl::read("http://egret").unwrap().port, 80);
        let tls = ProxyUrl::read("https://box:t@[fd00::1]").unwrap();
        assert_eq!((tls.place().as_str(), tls.is_tls(), url.is_tls()), ("fd00::1:443", true, false));
        for wrong in ["", "https://-:3128", "socks5://egret", "http://a:b:c", "http://"] {
            assert!(ProxyUrl::read(wrong).is_err(), "{wrong}");
        }
        let error = ProxyUrl::read("socks5://box:secret@egret").unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn escapes_are_undone_and_what_is_none_stays() {
        assert_eq!(unescape("a%41%4"), b"aA%4");
        assert_eq!(unescape("%zz%"), b"%zz%");
        assert_eq!(unescape("%é"), "%é".as_bytes());
    }

    fn answer(status: u16, reason: Option<&str>) -> Result<Answer, Reach> {
        Ok(Answer { status, reason: reason.map(str::to_owned), ..Answer::default() })
    }

    #[test]
    fn only_a_refusal_of_egrets_counts() {
        let verdict = |answer| refusal(answer, &[]).verdict;
        assert_eq!(verdict(answer(403, Some("domain_denied"))), Verdict::Pass);
        assert_eq!(verdict(answer(400, Some("bad_request"))), Verdict::Pass);
        for (status, reason) in [(403, None), (200, None), (502, Some("dns_not_found")), (302, None)] {
            assert_eq!(verdict(answer(status, reason)), Verdict::Fail, "{status}");
        }
        for (status, reason) in
            [(407, "identity_required"), (403, "identity_rejected"), (429, "rate_limited")]
        {
            assert_eq!(verdict(answer(status, Some(reason))), Verdict::Unsupported, "{status}");
        }
        assert_eq!(verdict(Err(nothing(Duration::ZERO))), Verdict::Fail);
        let expected = refusal(answer(403, Some("domain_denied")), &["redirect_denied"]);
        assert_eq!(expected.verdict, Verdict::Fail);
    }

    #[test]
    fn answers_are_read() {
        let head = b"HTTP/1.1 403 x\r\nx-EGRET-reason: domain_denied\r\nRetry-After: 3\r\n\r\n";
        let read = Answer::read(head).unwrap();
        assert_eq!((read.describe().as_str(), read.retry_after), ("403 domain_denied", Some(3)));
        let made_up = Answer::read(b"HTTP/1.1 403 x\r\nX-Egret-Reason: because\r\n\r\n").unwrap();
        assert_eq!(made_up.reason, None);
        assert_eq!(Answer::read(b"SSH-2.0\r\n\r\n"), None);
    }
}
