//! Where a response sends its client next, as the client would read it.
//!
//! Reads URLs like browsers do (WHATWG URL), because that is what follows them. Decides nothing,
//! and the proxy itself never follows a redirect.

use egret_policy::{Destination, Host, Scheme};
use http::header::{LOCATION, REFRESH};
use http::{HeaderMap, StatusCode};
use url::Url;

/// A place that a response names as the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// One that a request through the proxy can ask for.
    Place(Destination),
    /// Another scheme, or a host that no request can name.
    Foreign {
        /// The URL's scheme.
        scheme: String,
        /// The URL's host, if it has one.
        host: String,
        /// The URL's port, 0 if the scheme has none.
        port: u16,
    },
}

/// The targets of a response, each once: `Location` of 201 and 3xx, and `Refresh` of any status. What
/// can't be read as a URL is no target.
///
/// `target` is the request target that the origin got.
#[must_use]
pub fn targets(from: &Destination, target: &[u8], status: StatusCode, headers: &HeaderMap) -> Vec<Target> {
    let followed = status == StatusCode::CREATED || status.is_redirection();
    let locations = headers.get_all(LOCATION).iter().filter(|_| followed).map(|value| value.as_bytes());
    let refreshes = headers.get_all(REFRESH).iter().filter_map(|value| refresh_url(value.as_bytes()));
    let mut references = locations.chain(refreshes).peekable();
    if references.peek().is_none() {
        return Vec::new();
    }
    let Some([base, twin]) = bases(from, target) else {
        // Nobody can say where they lead.
        return vec![Target::Foreign { scheme: "http".to_owned(), host: from.to_string(), port: 0 }];
    };
    let mut targets = Vec::new();
    for octets in references {
        let Some(url) = resolve(&base, octets) else { continue };
        // A host that changes with the base is the base's.
        let own = resolve(&twin, octets).is_none_or(|other| other.host() != url.host());
        let target = read(from, &url, own);
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    targets
}

/// Resolves a reference as browsers do: its octets are read as UTF-8, tabs and line ends in it do
/// not count, and where a host follows, any number of slashes of either kind is two.
fn resolve(base: &Url, octets: &[u8]) -> Option<Url> {
    let text = String::from_utf8_lossy(octets);
    let text: String = text.chars().filter(|c| !matches!(c, '\t' | '\r' | '\n')).collect();
    let text = text.trim_matches(|c: char| c <= ' ');
    let after = text.trim_start_matches(['/', '\\']);
    if text.len() >= after.len() + 2 {
        return base.join(&format!("//{after}")).ok();
    }
    base.join(text).ok()
}

/// Either stands for the host that answered, which need not be one that URL parsers take. Two, so that
/// nobody passes for that host by spelling a stand-in.
const STAND_INS: [&str; 2] = ["own-host.invalid", "own-host-too.invalid"];

fn bases(from: &Destination, target: &[u8]) -> Option<[Url; 2]> {
    let path = String::from_utf8_lossy(target);
    let path = path.strip_prefix('*').unwrap_or(&path);
    let base = |host| Url::parse(&format!("http://{host}:{}{path}", from.port())).ok();
    let [one, other] = STAND_INS.map(base);
    Some([one?, other?])
}

/// `own`: the URL names no host itself, so it is the one that answered.
fn read(from: &Destination, url: &Url, own: bool) -> Target {
    let place = || {
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Tunnel,
            _ => return None,
        };
        let host = match url.host()? {
            url::Host::Domain(_) if own => from.host().clone(),
            url::Host::Domain(name) => Host::parse(name.as_bytes()).ok()?,
            url::Host::Ipv4(address) => Host::Address(address.into()),
            url::Host::Ipv6(address) => Host::Address(address.into()),
        };
        Some(Destination::new(scheme, host, url.port_or_known_default()?))
    };
    place().map_or_else(
        || Target::Foreign {
            scheme: url.scheme().to_owned(),
            host: url.host_str().unwrap_or_default().to_owned(),
            port: url.port_or_known_default().unwrap_or_default(),
        },
        Target::Place,
    )
}

/// The URL in `5; url=…` (HTML, "shared declarative refresh steps"), if there is one.
fn refresh_url(value: &[u8]) -> Option<&[u8]> {
    let digits =
        value.iter().take_while(|b| b.is_ascii_digit() || **b == b'.' || b.is_ascii_whitespace()).count();
    let rest = value.get(digits..)?;
    let rest = rest.strip_prefix(b";").or_else(|| rest.strip_prefix(b",")).unwrap_or(rest).trim_ascii();
    let (name, after) = rest.split_at_checked(3).unwrap_or((rest, b""));
    let url = match after.trim_ascii_start().strip_prefix(b"=") {
        Some(url) if name.eq_ignore_ascii_case(b"url") => url.trim_ascii(),
        _ => rest,
    };
    let quoted = |quote: u8| url.strip_prefix(&[quote]).map(|u| u.split(|b| *b == quote).next().unwrap_or(u));
    let url = quoted(b'"').or_else(|| quoted(b'\'')).unwrap_or(url);
    (!url.is_empty()).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn of(status: u16, fields: &[(&'static str, &str)]) -> Vec<String> {
        let from = Destination::parse_absolute(b"http://a.example:8080/x/y?z").unwrap().destination;
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        let targets = targets(&from, b"/x/y?z", status, &headers).into_iter();
        targets
            .map(|target| match target {
                Target::Place(place) => format!("{} {place}", place.scheme().as_str()),
                Target::Foreign { scheme, host, .. } => format!("foreign {scheme} {host}"),
            })
            .collect()
    }

    fn location(value: &str) -> Vec<String> {
        of(302, &[("location", value)])
    }

    #[test]
    fn locations_are_read_like_browsers_do() {
        for (value, place) in [
            ("/other", "http a.example:8080"),
            ("//b.example/", "http b.example:80"),
            ("\\\\b.example/", "http b.example:80"),
            ("///b.example/", "http b.example:80"),
            ("/\t/\\//b.example", "http b.example:80"),
            ("///@b.example", "http b.example:80"),
            ("http:///b.example", "http b.example:80"),
            ("https://B.example", "tunnel b.example:443"),
            ("http://2852039166/", "http 169.254.169.254:80"),
            ("http://0x7f.1:22/", "http 127.0.0.1:22"),
            ("http://[::1]/", "http [::1]:80"),
            (" http:\t//b.example", "http b.example:80"),
            ("http://u:p@b.example/", "http b.example:80"),
            ("http:b.example", "http a.example:8080"),
            ("ftp://b.example/", "foreign ftp b.example"),
            ("javascript:x", "foreign javascript "),
        ] {
            assert_eq!(location(value), [place], "{value}");
        }
        assert_eq!(location("http://a b/"), [""; 0]);
    }

    #[test]
    fn a_host_that_url_parsers_refuse_switches_nothing_off() {
        for host in ["xn--a.d.test", "xn--0", "a.xn--a"] {
            let target = format!("http://{host}/");
            let from = Destination::parse_absolute(target.as_bytes()).unwrap().destination;
            let mut headers = HeaderMap::new();
            headers.append(LOCATION, HeaderValue::from_static("http://b.example/"));
            headers.append(LOCATION, HeaderValue::from_static("/here"));
            let found = targets(&from, b"/", StatusCode::FOUND, &headers);
            let b = Destination::parse_absolute(b"http://b.example/").unwrap().destination;
            assert_eq!(found, [Target::Place(b), Target::Place(from)]);
        }
    }

    #[test]
    fn nobody_passes_for_the_host_that_answered_by_the_name_of_a_stand_in() {
        for name in STAND_INS {
            for value in [format!("http://{name}/"), format!("//{}:8080", name.to_uppercase())] {
                let [place] = &location(&value)[..] else { panic!("{value}") };
                assert!(place.starts_with(&format!("http {name}:")), "{value}: {place}");
            }
        }
        assert_eq!(location("//own%2dhost.invalid"), ["http own-host.invalid:80"]);
    }

    #[test]
    fn the_same_place_counts_once() {
        let fields = [("location", "/a"), ("location", "/b"), ("refresh", "0; url=http://a.example:8080")];
        assert_eq!(of(302, &fields), ["http a.example:8080"]);
    }

    #[test]
    fn only_statuses_that_are_followed_count() {
        let to = [("location", "http://b.example/")];
        assert_eq!(of(201, &to).len(), 1);
        assert_eq!(of(305, &to).len(), 1);
        assert_eq!(of(200, &to).len(), 0);
        assert_eq!(of(302, &[("location", "/a"), ("location", "//b.example")]).len(), 2);
    }

    #[test]
    fn refresh_counts_on_any_status() {
        for value in
            ["0; url=http://b.example/", "5;URL='http://b.example/' x", "1.5 , url = \"http://b.example\""]
        {
            assert_eq!(of(200, &[("refresh", value)]), ["http b.example:80"], "{value}");
        }
        assert_eq!(of(200, &[("refresh", "30")]).len(), 0);
    }
}
