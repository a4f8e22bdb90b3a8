//! Where a registry is: what of its URL may be kept.

use std::fmt;

use egret_policy::Destination;
use url::Url;

/// Longest URL that is looked at, in octets.
const LONGEST: usize = 4096;

/// A registry's place: scheme, host, port and path. Userinfo, query and fragment are gone, and the
/// path is used to ask, never shown: it may hold a token too.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    destination: Destination,
    secure: bool,
    path: String,
}

/// Why a text is no place of a registry. No text of it is in here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A file of the machine.
    #[error("a file or folder")]
    File,
    /// A scheme that egret does not carry.
    #[error("neither http:// nor https://")]
    Scheme,
    /// A part that is filled in later.
    #[error("it holds a variable that is not set here")]
    Variable,
    /// Not a URL, or one with an odd host.
    #[error("not a URL")]
    Malformed,
    /// Where its host begins is a matter of opinion.
    #[error("an @ behind the host, as of a password with a slash; write %2F and %40 in it")]
    Ambiguous,
}

impl Place {
    /// Reads a URL (WHATWG URL, as clients do, but nothing that can be read in two ways).
    ///
    /// # Errors
    /// See [`Flaw`].
    pub fn parse(text: &str) -> Result<Self, Flaw> {
        let text = text.trim();
        if text.contains("${") || text.contains("$(") {
            return Err(Flaw::Variable);
        }
        let odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
        if text.is_empty() || text.len() > LONGEST || text.contains(odd) {
            return Err(Flaw::Malformed);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            let is_url = text.split_once(':').is_some_and(|(scheme, _)| !scheme.contains(['/', '.']));
            return Err(if is_url && !text.starts_with("file:") { Flaw::Scheme } else { Flaw::File });
        };
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            "file" => return Err(Flaw::File),
            _ => return Err(Flaw::Scheme),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.is_empty() {
            return Err(Flaw::Malformed);
        }
        // What a client takes for the host here may be the beginning of a password.
        if rest.get(authority.len()..).is_none_or(|behind| behind.contains('@')) {
            return Err(Flaw::Ambiguous);
        }
        Url::parse(text).map_err(|_| Flaw::Malformed).and_then(|url| Self::of(&url, secure))
    }

    /// What a reference in a document of this place points to.
    ///
    /// # Errors
    /// See [`Flaw`].
    pub fn join(&self, reference: &str) -> Result<Self, Flaw> {
        let url = self.url().ok_or(Flaw::Malformed)?.join(reference).map_err(|_| Flaw::Malformed)?;
        match url.scheme() {
            "https" => Self::of(&url, true),
            "http" => Self::of(&url, false),
            "file" => Err(Flaw::File),
            _ => Err(Flaw::Scheme),
        }
    }

    fn of(url: &Url, secure: bool) -> Result<Self, Flaw> {
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(Flaw::Malformed);
        };
        let destination = Destination::parse_authority(format!("{host}:{port}").as_bytes());
        let destination = destination.map_err(|_| Flaw::Malformed)?;
        Ok(Self { destination, secure, path: url.path().to_owned() })
    }

    /// Host and port.
    #[must_use]
    pub const fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Is it spoken to over TLS?
    #[must_use]
    pub const fn secure(&self) -> bool {
        self.secure
    }

    /// The path, for a request and for nothing else.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The place below this one, as of a folder.
    #[must_use]
    pub fn below(&self, path: &str) -> Self {
        let path = format!("{}/{path}", self.path.trim_end_matches('/'));
        Self { path, ..self.clone() }
    }

    /// The place at the root of the same host.
    #[must_use]
    pub fn at(&self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self.clone() }
    }

    /// Are both the same host, port and scheme?
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        self.destination == other.destination && self.secure == other.secure
    }

    fn url(&self) -> Option<Url> {
        let scheme = if self.secure { "https" } else { "http" };
        let (host, port) = (self.destination.host(), self.destination.port());
        Url::parse(&format!("{scheme}://{host}:{port}{}", self.path)).ok()
    }

    /// `https://HOST:PORT`, without what could be a secret.
    #[must_use]
    pub fn origin(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.destination)
    }
}

/// Without the path.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin())
    }
}
