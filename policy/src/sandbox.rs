//! Which sandbox a client is, by its source address or its certificate, and which addresses must
//! send a token or a certificate instead. The one place where that is decided, also for
//! sandboxes that are registered while the proxy runs.
//!
//! Nothing that a client sends is judged here: certificates come as verified.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::intent::{Certificate, Client, Identity};
use crate::load::RegisterText;
use crate::reader::{Located, Table, nearest};
use crate::reason::Reason;
use crate::registered::{NotRegistrable, Registered, Registrable, Registration};
use crate::rules::parse_network;
use crate::source::Problems;
use crate::verdict::Refusal;

/// Longest sandbox ID in characters.
const MAX_ID: usize = 64;
/// Longest text that `{ip}` can stand for: four groups of an IPv6 /64.
const MAX_IP_TEXT: usize = 21;
/// The sandbox ID of clients that nothing identifies.
const ANONYMOUS: &str = "anonymous";

/// A `[[sandbox]]` table.
#[derive(Debug)]
struct Sandbox {
    id: IdTemplate,
    sources: Vec<IpNet>,
    policy: Arc<str>,
    auth: Auth,
}

/// What it takes to be the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Auth {
    /// The source address.
    Source,
    /// A token; the source address alone is nobody.
    Token,
    /// A client certificate with a fitting ID; the source address alone is nobody.
    Cert,
}

/// What of `[identity]` decides who a client is.
#[derive(Debug)]
pub struct IdentifiedBy {
    /// `anonymous`.
    pub anonymous: Option<Located<String>>,
    /// Are there keys that tokens are verified with?
    pub tokens: bool,
    /// Are there authorities that client certificates are verified with?
    pub certificates: bool,
    /// What may be registered.
    pub register: RegisterText,
}

/// A sandbox ID, or the sandbox IDs of many.
#[derive(Debug)]
enum IdTemplate {
    Fixed(Arc<str>),
    /// `{ip}` stands for the client's address.
    PerAddress {
        before: String,
        after: String,
    },
    /// `{cert}` stands for whatever the certificate's ID has there.
    PerCertificate {
        before: String,
        after: String,
    },
}

/// All sandboxes in file order; the first whose source holds the client decides.
#[derive(Debug, Default)]
pub struct Sandboxes {
    list: Vec<Sandbox>,
    /// The policy of clients that no entry identifies; `None` refuses them.
    anonymous: Option<Arc<str>>,
    /// What may be registered.
    pub registrable: Registrable,
}

impl Sandboxes {
    /// Who the client at this address is. What is registered comes before the entries of the file.
    ///
    /// # Errors
    /// `identity_required` where what holds the address asks for a token, or nothing holds it and
    /// anonymous clients are refused; `identity_rejected` where the registration that holds
    /// it is no longer permitted.
    pub fn identify(&self, source: IpAddr, registered: &Registered) -> Result<Client, Refusal> {
        let source = source.to_canonical();
        if let Some(known) = registered.find(source) {
            let client = self.by_registration(known, source)?;
            if known.by_token {
                let refusal = Refusal::new(Reason::IdentityRequired);
                return Err(refusal.with_detail("the registration asks for a token"));
            }
            return Ok(client);
        }
        let found = self.list.iter().find(|s| s.sources.iter().any(|net| net.contains(&source)));
        let (sandbox, policy, identity) = match (found, &self.anonymous) {
            (Some(Sandbox { auth: Auth::Token, .. }), _) => {
                return Err(Refusal::new(Reason::IdentityRequired).with_detail("the entry asks for a token"));
            }
            (Some(Sandbox { auth: Auth::Cert, .. }), _) => {
                let refusal = Refusal::new(Reason::IdentityRequired);
                return Err(refusal.with_detail("the entry asks for a client certificate"));
            }
            (Some(sandbox), _) => (sandbox.id.of(source), &sandbox.policy, Identity::Source),
            (None, Some(policy)) => (ANONYMOUS.into(), policy, Identity::Listener),
            (None, None) => return Err(Refusal::new(Reason::IdentityRequired)),
        };
        Ok(Client { sandbox, policy: Arc::clone(policy), identity, source })
    }

    /// The client of a registration, whatever that asks for.
    ///
    /// # Errors
    /// `identity_rejected` where it is no longer permitted.
    pub fn by_registration(&self, known: &Arc<Registration>, source: IpAddr) -> Result<Client, Refusal> {
        let rejected =
            |error: NotRegistrable| Refusal::new(Reason::IdentityRejected).with_detail(error.to_string());
        self.registrable.check(known).map_err(rejected)?;
        let (sandbox, policy) = (Arc::clone(&known.id), Arc::clone(&known.policy));
        Ok(Client { sandbox, policy, identity: Identity::Registered(Arc::clone(known)), source })
    }

    /// Who the client at this address is by its certificate, which has been verified: the sandbox
    /// that it names, under the first entry for certificates whose ID fits. Entries of other kinds
    /// do not count, and no address makes up for a certificate that fits none.
    ///
    /// # Errors
    /// `identity_rejected`.
    pub fn identify_certificate(
        &self,
        source: IpAddr,
        certificate: &Arc<Certificate>,
    ) -> Result<Client, Refusal> {
        let source = source.to_canonical();
        let rejected = |detail: &str| Refusal::new(Reason::IdentityRejected).with_detail(detail);
        let Some(id) = &certificate.sandbox else {
            return Err(rejected("the certificate names no sandbox, or more than one"));
        };
        let fits = |entry: &&Sandbox| {
            let from_here = entry.sources.is_empty() || entry.sources.iter().any(|net| net.contains(&source));
            entry.auth == Auth::Cert && entry.id.fits(id) && from_here
        };
        let Some(entry) = self.list.iter().find(fits) else {
            return Err(rejected(&format!("no entry is for certificates of {id} from this address")));
        };
        let (sandbox, policy) = (Arc::clone(id), Arc::clone(&entry.policy));
        Ok(Client { sandbox, policy, identity: Identity::Cert(Arc::clone(certificate)), source })
    }

    /// A client named by its sandbox ID, for `explain`: the entry whose ID or template fits.
    #[must_use]
    pub fn by_id(&self, id: &str) -> Option<Client> {
        let entry = self.list.iter().find(|s| s.could_be(id));
        let (policy, identity) = match entry {
            Some(entry) => (&entry.policy, Identity::Source),
            None if id == ANONYMOUS => (self.anonymous.as_ref()?, Identity::Listener),
            None => return None,
        };
        let source = entry.and_then(|e| e.sources.first()).map_or(IpAddr::from([0, 0, 0, 0]), IpNet::addr);
        Some(Client { sandbox: id.into(), policy: Arc::clone(policy), identity, source })
    }

    /// Does an entry of the file have this ID, or would it give it to an address?
    #[must_use]
    pub fn has_id(&self, id: &str) -> bool {
        let gives = |template: &IdTemplate| match template {
            IdTemplate::Fixed(own) => **own == *id,
            // Many certificates may name it; none of them makes an address the sandbox.
            IdTemplate::PerCertificate { .. } => false,
            template @ IdTemplate::PerAddress { .. } => template.address_in(id).is_some(),
        };
        id == ANONYMOUS || self.list.iter().any(|entry| gives(&entry.id))
    }

    /// One sandbox, whatever the client's address.
    #[must_use]
    pub fn one(id: &str, policy: &str) -> Self {
        let sources = vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
        let sandbox =
            Sandbox { id: IdTemplate::Fixed(id.into()), sources, policy: policy.into(), auth: Auth::Source };
        Self { list: vec![sandbox], ..Self::default() }
    }

    /// The IDs and templates as written.
    pub fn ids(&self) -> impl Iterator<Item = String> {
        self.list.iter().map(|s| s.id.to_string())
    }

    /// Reads the `[[sandbox]]` tables; `policies` are the names that exist.
    pub fn read(
        tables: Vec<Table<'_, '_>>,
        by: IdentifiedBy,
        policies: &[Arc<str>],
        problems: &mut Problems,
    ) -> Self {
        let list = tables.into_iter().filter_map(|table| Sandbox::read(table, &by, policies, problems));
        let list: Vec<Sandbox> = list.collect();
        let anonymous = by
            .anonymous
            .filter(|policy| policy.value != "deny")
            .and_then(|policy| find_policy(&policy, policies, problems));
        let RegisterText { networks, policies: named } = by.register;
        if let (Some(name), true) = (named.first(), networks.is_empty()) {
            let message = "`register_policies` needs the networks that may be registered";
            problems.error(&name.spot, message, "add `register`, or remove it");
        }
        let networks = networks.iter().filter_map(|source| read_source(source, problems)).collect();
        let named = named.iter().filter_map(|name| find_policy(name, policies, problems)).collect();
        let registrable = Registrable { networks, policies: named };
        Self { list, anonymous, registrable }
    }
}

impl Sandbox {
    /// May its clients have this ID? An address that stands in it has to be one of theirs.
    fn could_be(&self, id: &str) -> bool {
        let holds = |address: IpAddr| {
            // Of IPv6 the whole /64 has one ID.
            let group = IpNet::new_assert(address, if address.is_ipv6() { 64 } else { 32 });
            self.sources.iter().any(|source| source.contains(&address) || group.contains(source))
        };
        self.id.fits(id) && self.id.address_in(id).is_none_or(holds)
    }

    fn read(
        mut table: Table<'_, '_>,
        by: &IdentifiedBy,
        policies: &[Arc<str>],
        problems: &mut Problems,
    ) -> Option<Self> {
        let spot = table.spot();
        let id = table.string("id", problems);
        let written = table.strings("source", problems);
        let policy = table.string("policy", problems);
        let auth = read_auth(&mut table, by, problems);
        let needed = ["id", "source", "policy"].into_iter().filter(|key| !table.has(key));
        for key in needed.filter(|key| *key != "source" || auth != Auth::Cert) {
            problems.error(&spot, format!("a [[sandbox]] needs `{key}`"), "add it");
        }
        table.finish(problems);
        let id = id.and_then(|id| IdTemplate::read(&id, auth, problems));
        let policy = policy.and_then(|p| find_policy(&p, policies, problems));
        let Some(sources) = written else {
            // A certificate may come from anywhere.
            return (auth == Auth::Cert).then_some(Self {
                id: id?,
                sources: Vec::new(),
                policy: policy?,
                auth,
            });
        };
        if sources.is_empty() {
            problems.error(&spot, "`source` is empty, so no client is ever this sandbox", "name a network");
        }
        let sources = sources.iter().filter_map(|s| read_source(s, problems)).collect();
        Some(Self { id: id?, sources, policy: policy?, auth })
    }
}

fn read_auth(table: &mut Table<'_, '_>, by: &IdentifiedBy, problems: &mut Problems) -> Auth {
    let Some(text) = table.string("auth", problems) else {
        return Auth::Source;
    };
    match text.value.as_str() {
        "source" => Auth::Source,
        "token" => {
            if !by.tokens {
                let message = "`auth = \"token\"` needs keys that tokens are verified with";
                problems.error(&text.spot, message, "add `token_keys` to [identity]");
            }
            Auth::Token
        }
        "cert" => {
            if !by.certificates {
                let message = "`auth = \"cert\"` needs authorities that certificates are verified with";
                problems.error(&text.spot, message, "add `tls_client_ca` to [listen]");
            }
            Auth::Cert
        }
        other => {
            let message = format!("`auth` has an unknown value: `{}`", other.escape_debug());
            problems.error(&text.spot, message, "write \"source\", \"token\" or \"cert\"");
            Auth::Source
        }
    }
}

fn read_source(text: &Located<String>, problems: &mut Problems) -> Option<IpNet> {
    let net = parse_network(text, problems)?;
    if net.prefix_len() >= 96 && net.addr().is_ipv6() && net.addr().to_canonical().is_ipv4() {
        let message = format!("`{net}` holds no client: IPv4-mapped addresses count as IPv4");
        problems.error(&text.spot, message, "write the IPv4 network");
        return None;
    }
    Some(net)
}

fn find_policy(name: &Located<String>, policies: &[Arc<str>], problems: &mut Problems) -> Option<Arc<str>> {
    let found = policies.iter().find(|p| ***p == *name.value);
    if found.is_none() {
        let message = format!("there is no policy `{}`", name.value.escape_debug());
        let help = match nearest(&name.value, policies.iter().map(|p| &**p)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("add [policy.{}]", name.value.escape_debug()),
        };
        problems.error(&name.spot, message, help);
    }
    found.cloned()
}

impl IdTemplate {
    fn read(text: &Located<String>, auth: Auth, problems: &mut Problems) -> Option<Self> {
        let halves = |(before, after): (&str, &str)| (before.to_owned(), after.to_owned());
        let (name, longest) = if auth == Auth::Cert { ("{cert}", 1) } else { ("{ip}", MAX_IP_TEXT) };
        let (template, fixed, length) = match text.value.split_once(name).map(halves) {
            None => (Self::Fixed(text.value.as_str().into()), text.value.clone(), text.value.len()),
            Some((before, after)) => {
                let fixed = format!("{before}{after}");
                let length = fixed.len() + longest;
                let template = match auth {
                    Auth::Cert => Self::PerCertificate { before, after },
                    Auth::Source | Auth::Token => Self::PerAddress { before, after },
                };
                (template, fixed, length)
            }
        };
        if is_id_text(&fixed) && (1..=MAX_ID).contains(&length) {
            return Some(template);
        }
        let message = format!("`{}` is not a sandbox ID", text.value.escape_debug());
        let help = format!("write 1 to {MAX_ID} of A-Z a-z 0-9 . _ -, with at most one {name}");
        problems.error(&text.spot, message, help);
        None
    }

    fn of(&self, source: IpAddr) -> Arc<str> {
        match self {
            Self::Fixed(id) => Arc::clone(id),
            Self::PerAddress { before, after } | Self::PerCertificate { before, after } => {
                format!("{before}{}{after}", ip_text(source)).into()
            }
        }
    }

    /// The address in an ID that has one.
    fn address_in(&self, id: &str) -> Option<IpAddr> {
        let Self::PerAddress { before, after } = self else { return None };
        let text = id.strip_prefix(before.as_str())?.strip_suffix(after.as_str())?;
        text.replace('-', ":").parse().ok()
    }

    fn fits(&self, id: &str) -> bool {
        match self {
            Self::Fixed(own) => **own == *id,
            Self::PerAddress { before, after } | Self::PerCertificate { before, after } => {
                let rest = id.strip_prefix(before.as_str()).and_then(|r| r.strip_suffix(after.as_str()));
                rest.is_some_and(|rest| !rest.is_empty()) && is_id_text(id)
            }
        }
    }
}

impl std::fmt::Display for IdTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed(id) => f.write_str(id),
            Self::PerAddress { before, after } => write!(f, "{before}{{ip}}{after}"),
            Self::PerCertificate { before, after } => write!(f, "{before}{{cert}}{after}"),
        }
    }
}

/// May this be the ID of a sandbox: 1 to 64 of `A-Z a-z 0-9 . _ -`?
#[must_use]
pub fn is_sandbox_id(text: &str) -> bool {
    (1..=MAX_ID).contains(&text.len()) && is_id_text(text)
}

fn is_id_text(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// An address as part of an ID: IPv6 by /64, with `-` for `:`.
fn ip_text(source: IpAddr) -> String {
    match source {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => {
            let network = Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX));
            network.to_string().replace(':', "-")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ip_texts() {
        assert_eq!(ip_text("10.0.0.7".parse().unwrap()), "10.0.0.7");
        assert_eq!(ip_text("2001:db8:1:2:3:4:5:6".parse().unwrap()), "2001-db8-1-2--");
        let longest = ip_text("2001:1db8:1111:2222:3::".parse().unwrap());
        assert!(longest.len() <= MAX_IP_TEXT, "{longest}");
    }
}
