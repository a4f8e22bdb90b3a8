//! What the environment tells programs about proxies: which one, and past it for which hosts.

use std::net::IpAddr;

use ipnet::IpNet;

use super::check::{Outcome, Plan};
use super::proxy::ProxyUrl;

const NO_PROXY: [&str; 4] = ["no_proxy", "NO_PROXY", "npm_config_noproxy", "npm_config_no_proxy"];
const ALL: [&str; 2] = ["all_proxy", "ALL_PROXY"];
/// For each scheme the variables that some program reads.
const SCHEMES: [(&str, [&str; 2]); 2] =
    [("http", ["http_proxy", "HTTP_PROXY"]), ("https", ["https_proxy", "HTTPS_PROXY"])];

/// The variables of this process, as far as they are about proxies.
#[derive(Debug, Default)]
pub(super) struct Environment(Vec<(String, String)>);

impl Environment {
    pub(super) fn look() -> Self {
        let lossy = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        };
        Self(std::env::vars_os().map(lossy).collect())
    }

    /// A variable that is set and not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The proxy for `https`, else for `http`, else for all.
    pub(super) fn proxy(&self) -> Option<&str> {
        ["https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
            .iter()
            .find_map(|name| self.get(name))
    }

    /// Adds the checks; `proxy` is the one that is tested, `named` that the command line named it.
    pub(super) fn plan(&self, proxy: Option<&ProxyUrl>, named: bool, plan: &mut Plan) {
        for (scheme, names) in SCHEMES {
            plan.known("environment", format!("{scheme}_proxy"), self.points(&names, proxy, named));
        }
        plan.known("environment", "no_proxy", self.goes_around(proxy));
    }

    /// Do the variables of a scheme lead to this proxy?
    fn points(&self, names: &[&str], proxy: Option<&ProxyUrl>, named: bool) -> Outcome {
        let set: Vec<_> =
            names.iter().chain(&ALL).filter_map(|name| Some((*name, self.get(name)?))).collect();
        let Some(proxy) = proxy else {
            let unusable = set.iter().find_map(|(name, value)| {
                ProxyUrl::read(value).err().map(|error| format!("{name}: {error}"))
            });
            return match unusable {
                Some(error) => Outcome::fail(error),
                None if named => {
                    Outcome::unsupported("not set; what is not redirected to egret has no way out")
                }
                None => Outcome::fail("no proxy is set, and none is named with --proxy"),
            };
        };
        if set.is_empty() {
            let detail = "not set; programs that go by it have no way out";
            return if named { Outcome::unsupported(detail) } else { Outcome::fail(detail) };
        }
        for (name, value) in set {
            match ProxyUrl::read(value) {
                // A listener of the other kind on the same host is egret's too, but not on the same port.
                Ok(url)
                    if url.host == proxy.host
                        && (url.port == proxy.port) == (url.is_tls() == proxy.is_tls()) => {}
                Ok(url) if url.place() == proxy.place() => {
                    let (wrong, right) = if url.is_tls() { ("https", "http") } else { ("http", "https") };
                    return Outcome::fail(format!(
                        "{name} speaks {wrong}:// to {}, where {right}:// is spoken",
                        proxy.place()
                    ));
                }
                Ok(url) => {
                    return Outcome::fail(format!(
                        "{name} leads to {}, not to {}",
                        url.place(),
                        proxy.place()
                    ));
                }
                // And so is one for SOCKS.
                Err(_) if host_of(value) == Some(&proxy.host) => {}
                Err(error) => return Outcome::fail(format!("{name}: {error}")),
            }
        }
        Outcome::pass(format!("leads to {}", proxy.place()))
    }

    /// Does a list of exceptions hold more than this machine and the proxy itself?
    fn goes_around(&self, proxy: Option<&ProxyUrl>) -> Outcome {
        for name in NO_PROXY {
            let list = self.get(name).unwrap_or_default();
            // curl takes spaces for commas too.
            let entries = list.split([',', ' ', '\t', ';']).filter(|entry| !entry.is_empty());
            for entry in entries {
                if !is_harmless(entry, proxy) {
                    let what = if entry == "*" { "every host" } else { "hosts beyond this machine" };
                    let entry = entry.escape_debug();
                    return Outcome::fail(format!(
                        "{name} has `{entry}`: programs go around the proxy for {what}"
                    ));
                }
            }
        }
        Outcome::pass("nothing goes around the proxy")
    }
}

fn host_of(url: &str) -> Option<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    Some(place.rsplit_once(':').map_or(place, |(host, _)| host)).filter(|host| !host.is_empty())
}

/// Is an exception about this machine or the proxy alone, for curl, Go and Python alike?
///
/// All of them match whole names and what is below them, with or without a leading dot; Go and
/// newer curl match networks. A part of an address such as `1` is a suffix for Python.
fn is_harmless(entry: &str, proxy: Option<&ProxyUrl>) -> bool {
    let entry = entry.to_ascii_lowercase();
    if let Ok(net) = entry.parse::<IpNet>() {
        let loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
        return loopback(net.network()) && loopback(net.broadcast());
    }
    let bare = match entry.rsplit_once(':') {
        // With a port; an IPv6 address without brackets has none.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            if port.bytes().all(|b| b.is_ascii_digit()) { host } else { &entry }
        }
        _ => &entry,
    };
    let bare = bare.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        let own = proxy.is_some_and(|proxy| proxy.host.parse() == Ok(ip));
        return ip.to_canonical().is_loopback() || own;
    }
    let name = bare.trim_start_matches("*.").trim_start_matches('.').trim_end_matches('.');
    let local = name == "localhost" || name.ends_with(".localhost") || name == "localhost.localdomain";
    local || proxy.is_some_and(|proxy| !name.is_empty() && proxy.host.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    fn environment(set: &[(&str, &str)]) -> Environment {
        Environment(set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn exceptions_for_this_machine_are_harmless_and_others_are_not() {
        let proxy = ProxyUrl::read("http://egret:3128").unwrap();
        let check = |list: &str| environment(&[("no_proxy", list)]).goes_around(Some(&proxy)).verdict;
        for fine in [
            "",
            ",",
            "localhost",
            "localhost,127.0.0.1,::1",
            "127.0.0.0/8 [::1]",
            "127.0.0.1:8080",
            ".localhost",
            "*.localhost",
            "egret",
            "EGRET:3128",
            "::ffff:127.0.0.1",
            "::1/128",
        ] {
            assert_eq!(check(fine), Verdict::Pass, "{fine}");
        }
        for around in [
            "*",
            "localhost,*",
            ".",
            "com",
            ".example.com",
            "*.example.com",
            "example.com:443",
            "10.0.0.0/8",
            "0.0.0.0/0",
            "::/0",
            "126.0.0.0/7",
            "127.0.0.0/7",
            "1",
            "169.254.169.254",
            "0.0.0.0",
            "[fd00::1]:80",
            "notegret",
            "host,localhost",
        ] {
            assert_eq!(check(around), Verdict::Fail, "{around}");
        }
        let upper = environment(&[("no_proxy", ""), ("NO_PROXY", "*")]);
        assert_eq!(upper.goes_around(None).verdict, Verdict::Fail);
    }

    #[test]
    fn every_variable_must_lead_to_the_proxy() {
        let proxy = ProxyUrl::read("http://egret:3128").unwrap();
        let check = |set: &[(&str, &str)], named| {
            environment(set).points(&["http_proxy", "HTTP_PROXY"], Some(&proxy), named).verdict
        };
        assert_eq!(check(&[("http_proxy", "http://a:b@egret:3128/")], false), Verdict::Pass);
        assert_eq!(check(&[("all_proxy", "egret:3128")], false), Verdict::Pass);
        assert_eq!(
            check(&[("http_proxy", "egret:3128"), ("all_proxy", "socks5h://egret:1080")], false),
            Verdict::Pass
        );
        assert_eq!(
            check(&[("http_proxy", "egret:3128"), ("HTTP_PROXY", "http://other:3128")], false),
            Verdict::Fail
        );
        assert_eq!(check(&[("http_proxy", "socks5://other:1080")], false), Verdict::Fail);
        assert_eq!(check(&[("http_proxy", "http://egret:3129")], true), Verdict::Fail);
        assert_eq!(check(&[("http_proxy", "")], false), Verdict::Fail);
        assert_eq!(check(&[], true), Verdict::Unsupported);
        assert_eq!(environment(&[]).points(&["http_proxy"], None, false).verdict, Verdict::Fail);
        assert_eq!(environment(&[]).points(&["http_proxy"], None, true).verdict, Verdict::Unsupported);
        // TLS is on a port of its own.
        assert_eq!(check(&[("http_proxy", "https://egret:3128")], false), Verdict::Fail);
        assert_eq!(
            check(&[("http_proxy", "egret:3128"), ("HTTP_PROXY", "https://egret:3130")], false),
            Verdict::Pass
        );
        assert_eq!(check(&[("http_proxy", "https://other:3130")], false), Verdict::Fail);
        let socks = environment(&[("http_proxy", "socks5://egret:3128")]);
        assert!(socks.points(&["http_proxy"], None, false).detail.contains("http_proxy: the probe speaks"));
    }

    #[test]
    fn errors_hold_no_password() {
        let proxy = ProxyUrl::read("http://egret:3128").unwrap();
        let set = environment(&[("http_proxy", "https://box:secret@other:1")]);
        assert!(!set.points(&["http_proxy"], Some(&proxy), false).detail.contains("secret"));
    }
}
