//! Which way an address is reached: straight, or through the parent proxy of `[upstream]`.
//!
//! Holds what the configuration says. Opens nothing, looks nothing up and permits nothing: what is
//! asked here has been decided before.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use egret_policy::{Destination, Host, NamePattern, Nat64Prefix, Reason, Refusal, reached};
use http::header::{PROXY_AUTHORIZATION, VIA};
use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;

/// Longest credentials, in bytes: they have to fit into the parent's limit on a header field.
const MOST_CREDENTIALS: usize = 4096;

/// `[upstream]`; the default is that there is none.
#[derive(Debug, Default)]
pub struct Chain {
    parent: Option<Arc<Parent>>,
    no_proxy: NoProxy,
}

/// A parent proxy.
#[derive(Debug, PartialEq, Eq)]
pub struct Parent {
    place: Destination,
    fields: HeaderMap,
}

/// What does not go through the parent.
#[derive(Debug, Default)]
pub struct NoProxy {
    /// Compared with the canonical host, and with the port where a pattern has one.
    pub names: Vec<NamePattern>,
    /// Compared with each checked address, and with what is reached at it.
    pub networks: Vec<IpNet>,
    /// Prefixes behind which a translator reaches IPv4, beside the well-known one.
    pub nat64: Vec<Nat64Prefix>,
}

/// How one address is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// By a connection of our own to it.
    Direct,
    /// By a tunnel through this parent.
    Through(Arc<Parent>),
}

/// User and password for a parent, as the field that carries them. Never shown.
#[derive(Debug)]
pub struct Credentials(HeaderValue);

/// Why a text is not credentials; never repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// Nothing, or no user.
    #[error("it holds no user name")]
    NoUser,
    /// A user alone.
    #[error("it holds no colon between user and password")]
    NoPassword,
    /// More than one line, or a byte that no credentials have (RFC 7617 section 2).
    #[error("it holds a control character or more than one line")]
    Control,
    /// More than 4096 bytes.
    #[error("it is longer than {MOST_CREDENTIALS} bytes")]
    TooLong,
}

impl Chain {
    /// A chain through this parent for everything but `no_proxy`.
    #[must_use]
    pub fn new(parent: Parent, no_proxy: NoProxy) -> Self {
        Self { parent: Some(Arc::new(parent)), no_proxy }
    }

    /// The parent, if there is one.
    #[must_use]
    pub const fn parent(&self) -> Option<&Arc<Parent>> {
        self.parent.as_ref()
    }

    /// The way to one checked address of a destination.
    #[must_use]
    pub fn way(&self, destination: &Destination, address: IpAddr) -> Way {
        match &self.parent {
            Some(parent) if !self.no_proxy.holds(destination, address) => Way::Through(Arc::clone(parent)),
            _ => Way::Direct,
        }
    }

    /// The refusal of a destination that is the parent, as far as that shows without a look-up.
    #[must_use]
    pub fn refuse_parent(&self, destination: &Destination, addresses: &[IpAddr]) -> Option<Refusal> {
        let parent = self.parent()?;
        let named = destination.host() == parent.host();
        let reached = addresses.iter().any(|&address| Host::Address(address) == *parent.host());
        (destination.port() == parent.port() && (named || reached)).then(|| parent.as_destination())
    }

    /// The ways to a destination's addresses, for people; `None` where there is no parent.
    #[must_use]
    pub fn describe(&self, destination: &Destination, addresses: &[IpAddr]) -> Option<String> {
        let parent = self.parent()?;
        let listed = |list: &[&IpAddr]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let (direct, through): (Vec<_>, Vec<_>) =
            addresses.iter().partition(|&&address| self.way(destination, address) == Way::Direct);
        Some(match (direct.is_empty(), through.is_empty()) {
            (true, _) => format!("through {parent}"),
            (false, true) => "direct (no_proxy)".to_owned(),
            (false, false) => {
                format!("direct to {} (no_proxy), through {parent} to {}", listed(&direct), listed(&through))
            }
        })
    }
}

impl NoProxy {
    fn holds(&self, destination: &Destination, address: IpAddr) -> bool {
        let named = |pattern: &NamePattern| {
            destination.host().name().is_some_and(|name| pattern.covers(name))
                && pattern.ports.as_ref().is_none_or(|ports| ports.contains(destination.port()))
        };
        let inside = reached(address, &self.nat64);
        let placed = |net: &IpNet| net.contains(&address) || net.contains(&inside);
        self.networks.iter().any(placed) || self.names.iter().any(named)
    }
}

impl Parent {
    /// A parent at this place. `pseudonym` is ours, for its `Via`.
    #[must_use]
    pub fn new(place: Destination, pseudonym: &str, credentials: Option<Credentials>) -> Self {
        let mut fields = HeaderMap::new();
        // A pseudonym that is none is a problem of its own, and refuses the configuration.
        if let Ok(via) = HeaderValue::from_str(&format!("1.1 {pseudonym}")) {
            fields.insert(VIA, via);
        }
        if let Some(Credentials(value)) = credentials {
            fields.insert(PROXY_AUTHORIZATION, value);
        }
        Self { place, fields }
    }

    /// Its name or address.
    #[must_use]
    pub const fn host(&self) -> &Host {
        self.place.host()
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.place.port()
    }

    /// The refusal of the parent itself as a destination: whoever may talk to it can go anywhere
    /// through it, in our name.
    #[must_use]
    pub fn as_destination(&self) -> Refusal {
        Refusal::new(Reason::AddressForbidden).with_detail(format!("{self} is the parent proxy"))
    }

    /// What a CONNECT to it carries beside `Host`.
    #[must_use]
    pub const fn fields(&self) -> &HeaderMap {
        &self.fields
    }
}

/// `host:port`.
impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host(), self.port())
    }
}

impl Credentials {
    /// Reads `user:password`, with or without a line end behind it.
    ///
    /// # Errors
    /// See [`CredentialsError`].
    pub fn parse(text: &str) -> Result<Self, CredentialsError> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.len() > MOST_CREDENTIALS {
            return Err(CredentialsError::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(CredentialsError::Control);
        }
        match text.split_once(':') {
            _ if text.is_empty() => return Err(CredentialsError::NoUser),
            Some(("", _)) => return Err(CredentialsError::NoUser),
            None => return Err(CredentialsError::NoPassword),
            Some(_) => {}
        }
        let field = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(text)));
        let mut field = field.map_err(|_| CredentialsError::Control)?;
        field.set_sensitive(true);
        Ok(Self(field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(text: &str) -> Destination {
        Destination::parse_authority(text.as_bytes()).unwrap()
    }

    fn chain() -> Chain {
        let names = ["**.internal.example", "one.example:8443"].map(|text| NamePattern::parse(text).unwrap());
        let networks = ["10.0.0.0/8", "64:ff9b::c000:0/112"].map(|text| text.parse().unwrap()).into();
        let nat64 = vec![Nat64Prefix::new("2001:db8:64::/96".parse().unwrap()).unwrap()];
        let no_proxy = NoProxy { names: names.into(), networks, nat64 };
        Chain::new(Parent::new(destination("proxy.example:3128"), "egret", None), no_proxy)
    }

    #[test]
    fn names_ports_and_networks_go_straight() {
        let chain = chain();
        let public: IpAddr = "93.184.215.14".parse().unwrap();
        let private: IpAddr = "10.1.2.3".parse().unwrap();
        for (target, address, direct) in [
            ("a.example:443", public, false),
            ("a.example:443", private, true),
            ("internal.example:443", public, true),
            ("x.internal.example:1", public, true),
            ("xinternal.example:443", public, false),
            ("one.example:8443", public, true),
            ("one.example:443", public, false),
            ("93.184.215.14:443", public, false),
            ("10.1.2.3:443", private, true),
            ("a.example:443", "64:ff9b::10.1.2.3".parse().unwrap(), true),
            ("a.example:443", "64:ff9b::11.1.2.3".parse().unwrap(), false),
            ("a.example:443", "64:ff9b::192.0.2.1".parse().unwrap(), true),
            ("a.example:443", "2001:db8:64::10.1.2.3".parse().unwrap(), true),
            ("a.example:443", "2001:db8:65::10.1.2.3".parse().unwrap(), false),
        ] {
            let way = chain.way(&destination(target), address);
            assert_eq!(way == Way::Direct, direct, "{target} at {address}");
        }
        let told = |target, list: &[IpAddr]| chain.describe(&destination(target), list).unwrap();
        assert_eq!(told("a.example:1", &[public]), "through proxy.example:3128");
        assert_eq!(told("a.example:1", &[private]), "direct (no_proxy)");
        assert_eq!(
            told("a.example:1", &[private, public]),
            "direct to 10.1.2.3 (no_proxy), through proxy.example:3128 to 93.184.215.14"
        );
        assert!(chain.refuse_parent(&destination("proxy.example:3128"), &[public]).is_some());
        assert!(chain.refuse_parent(&destination("proxy.example:443"), &[public]).is_none());
        assert_eq!(Chain::default().describe(&destination("a.example:1"), &[public]), None);
    }

    #[test]
    fn another_password_is_another_way() {
        let parent = |text: &str| {
            Parent::new(destination("p.example:1"), "egret", Some(Credentials::parse(text).unwrap()))
        };
        assert_eq!(parent("a:b"), parent("a:b\r\n"));
        assert_ne!(parent("a:b"), parent("a:c"));
    }

    #[test]
    fn credentials_are_checked_and_never_shown() {
        let parent = Parent::new(
            destination("p.example:1"),
            "egret",
            Some(Credentials::parse("user:pass:word\n").unwrap()),
        );
        let field = parent.fields().get(PROXY_AUTHORIZATION).unwrap();
        assert_eq!(field, "Basic dXNlcjpwYXNzOndvcmQ=");
        assert!(!format!("{parent:?}").contains("dXNl"), "{parent:?}");
        for (text, error) in [
            ("", CredentialsError::NoUser),
            ("\n", CredentialsError::NoUser),
            (":x", CredentialsError::NoUser),
            ("user", CredentialsError::NoPassword),
            ("a:b\nc:d", CredentialsError::Control),
            ("a:b\n\n", CredentialsError::Control),
            ("a:\0", CredentialsError::Control),
        ] {
            assert_eq!(Credentials::parse(text).unwrap_err(), error, "{text:?}");
        }
        let long = format!("a:{}", "x".repeat(MOST_CREDENTIALS));
        assert_eq!(Credentials::parse(&long).unwrap_err(), CredentialsError::TooLong);
        assert!(Credentials::parse("ünïcode:").is_ok());
    }
}
