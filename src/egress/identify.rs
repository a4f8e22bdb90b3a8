//! Who a client is, and how one is told that it is nobody.

use std::net::IpAddr;
use std::sync::Arc;

use egret_policy::{Certificate, Client, Reason, Refusal};

use super::{Egress, Malformed, Peer, Refused};
use crate::audit::{Event, Revoke, Text};
use crate::identity::{Credentials, Revocation, RevocationsError, Unidentified};

impl Egress {
    /// Who sends a request with these values of `Proxy-Authorization` over a connection with this
    /// certificate, by what is in force now.
    ///
    /// # Errors
    /// Nothing identifies the client, or its certificate or its credentials are bad.
    pub fn identify<'a>(
        &self,
        source: IpAddr,
        certificate: Option<&Arc<Certificate>>,
        credentials: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Client, Unidentified> {
        let credentials = Credentials::read(credentials);
        self.parts.identities.identify(&self.policy.load(), source, certificate, credentials)
    }

    /// Who sends this user and this password of SOCKS, by what is in force now. The address alone
    /// identifies nobody who sends them.
    ///
    /// # Errors
    /// They are bad.
    pub fn identify_login(
        &self,
        source: IpAddr,
        user: &[u8],
        password: &[u8],
    ) -> Result<Client, Unidentified> {
        let credentials = Credentials::read_login(user, password).map(Some);
        self.parts.identities.identify(&self.policy.load(), source, None, credentials)
    }

    /// May a client send credentials at all?
    #[must_use]
    pub fn takes_credentials(&self) -> bool {
        self.parts.identities.tokens_are_on()
    }

    /// Who the client at this address with this certificate is, as long as it has sent no
    /// credentials.
    ///
    /// # Errors
    /// `identity_required`, or `identity_rejected` for the certificate, or where what was
    /// registered is not permitted.
    pub fn identify_connection(
        &self,
        source: IpAddr,
        certificate: Option<&Arc<Certificate>>,
    ) -> Result<Client, Refusal> {
        self.parts.identities.identify_connection(&self.policy.load(), source, certificate)
    }

    /// Records a request whose client is not known.
    pub async fn refuse_unidentified(
        &self,
        what: Malformed<'_>,
        peer: impl Into<Peer>,
        unidentified: Unidentified,
    ) -> Refused {
        let Unidentified { refusal, retry_after } = unidentified;
        let peer = peer.into();
        let status = self.status(refusal.reason, peer.original.is_some());
        Refused { retry_after, ..self.refuse(what, peer, refusal, status).await }
    }

    /// Revokes tokens: requests with them are refused from now on, and open connections closed.
    /// Blocks until that is on the disk.
    ///
    /// # Errors
    /// It counts, but only until this process ends: it could not be written down.
    pub fn revoke(&self, what: Revocation) -> Result<(), RevocationsError> {
        let (token, sandbox) = match &what {
            Revocation::Jti(id) => (Some(Text::from(id.as_str())), None),
            Revocation::Sandbox(id) => (None, Some(Text::from(id.as_str()))),
        };
        let revoked = self.parts.identities.revoke(what);
        self.identities_changed();
        self.parts.audit.event(&Event::Revoke(Revoke { token, sandbox, kept: revoked.is_ok() }));
        revoked
    }

    /// The status that a client gets for this reason: where tokens are on, one that is not
    /// identified is challenged to send one (RFC 9110 section 15.5.8), unless its connection was
    /// diverted: then it knows of no proxy.
    pub(super) fn status(&self, reason: Reason, diverted: bool) -> u16 {
        match reason {
            Reason::IdentityRequired | Reason::IdentityRejected
                if self.parts.identities.tokens_are_on() && !diverted =>
            {
                407
            }
            _ => reason.status().unwrap_or(502),
        }
    }
}
