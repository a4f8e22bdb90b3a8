//! Hosts by which anything can leave or come in under a stranger's name. A short list of ours of
//! services that say so themselves; never complete, and never a substitute for looking.
//!
//! Kinds after MITRE ATT&CK T1567.003 (text storage sites), T1567.004 (webhooks) and T1572
//! (tunnelling). Names are those under which a service's own site and documentation offer it, such
//! as <https://ngrok.com/docs/domains> for its domains.

use super::objection::Objection;

/// Text and files that anybody stores and fetches, mostly without an account.
const PASTE: &[&str] = &[
    "0bin.net",
    "0x0.st",
    "bashupload.com",
    "bpa.st",
    "catbox.moe",
    "controlc.com",
    "dpaste.com",
    "dpaste.org",
    "file.io",
    "filebin.net",
    "ghostbin.com",
    "gist.github.com",
    "gist.githubusercontent.com",
    "gofile.io",
    "hastebin.com",
    "ix.io",
    "justpaste.it",
    "paste.ee",
    "paste.rs",
    "paste2.org",
    "pastebin.com",
    "pastebin.pl",
    "privatebin.net",
    "rentry.co",
    "rentry.org",
    "sprunge.us",
    "temp.sh",
    "termbin.com",
    "transfer.sh",
];

/// Ways to a machine that nobody else sees, and places that show what was sent to them.
const TUNNEL: &[&str] = &[
    "beeceptor.com",
    "bore.pub",
    "burpcollaborator.net",
    "devtunnels.ms",
    "interact.sh",
    "lhr.life",
    "loca.lt",
    "localhost.run",
    "localtunnel.me",
    "ngrok-free.app",
    "ngrok-free.dev",
    "ngrok.app",
    "ngrok.dev",
    "ngrok.io",
    "oast.fun",
    "oast.live",
    "oast.me",
    "oast.online",
    "oast.pro",
    "oast.site",
    "oastify.com",
    "pagekite.me",
    "pinggy.io",
    "pinggy.link",
    "pipedream.net",
    "requestcatcher.com",
    "serveo.net",
    "trycloudflare.com",
    "tunnelmole.net",
    "webhook.site",
    "zrok.io",
];

/// Links whose ends change without the link.
const SHORTENER: &[&str] = &[
    "bit.ly",
    "buff.ly",
    "cutt.ly",
    "goo.gl",
    "is.gd",
    "ow.ly",
    "rb.gy",
    "rebrand.ly",
    "shorturl.at",
    "t.co",
    "t.ly",
    "tiny.cc",
    "tinyurl.com",
    "v.gd",
];

/// The kind of service that a name belongs to, and the entry that says so.
pub(super) fn service_of(name: &str) -> Option<(Objection, &'static str)> {
    let lists = [(Objection::Paste, PASTE), (Objection::Tunnel, TUNNEL), (Objection::Shortener, SHORTENER)];
    lists.into_iter().find_map(|(objection, hosts)| {
        let is_below =
            |host: &str| name.strip_suffix(host).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        hosts.iter().find(|host| is_below(host)).map(|host| (objection, *host))
    })
}

#[cfg(test)]
mod tests {
    use egret_policy::DnsName;

    use super::*;

    #[test]
    fn hosts_and_what_is_below_them() {
        assert_eq!(service_of("pastebin.com"), Some((Objection::Paste, "pastebin.com")));
        assert_eq!(service_of("abc.ngrok-free.app"), Some((Objection::Tunnel, "ngrok-free.app")));
        assert_eq!(service_of("t.co"), Some((Objection::Shortener, "t.co")));
        for other in ["at.co", "pastebin.com.example", "notpastebin.com", "github.com", "co"] {
            assert_eq!(service_of(other), None, "{other}");
        }
    }

    #[test]
    fn entries_are_canonical_sorted_and_single() {
        for list in [PASTE, TUNNEL, SHORTENER] {
            assert!(list.is_sorted(), "{list:?}");
            for host in list {
                assert_eq!(
                    DnsName::parse(host.as_bytes()).map(|name| name.as_str() == *host),
                    Ok(true),
                    "{host}"
                );
            }
        }
        let mut all: Vec<_> = [PASTE, TUNNEL, SHORTENER].concat();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
