//! Whom client certificates are believed from: authorities, and lists of what they have revoked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use egret_policy::Certificate;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

/// Why authorities or revocations can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A certificate that no chain can end at.
    #[error("certificate {0} of the file can't be an authority: {1}")]
    Authority(usize, rustls::Error),
    /// Something else, a list of revocations most of all.
    #[error("{0}")]
    Unusable(#[from] rustls::client::VerifierBuilderError),
}

/// Verifies the certificates of clients.
#[derive(Clone)]
pub struct Trust {
    verifier: Arc<dyn ClientCertVerifier>,
    digest: [u8; 32],
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

impl Trust {
    /// Trusts what these authorities sign for clients, unless it is in one of the lists. Where there
    /// are lists, there must be a current one of each issuer in a chain.
    ///
    /// # Errors
    /// One of them can't be read, or there is no authority.
    pub fn new(
        authorities: &[CertificateDer<'static>],
        revocations: Vec<CertificateRevocationListDer<'static>>,
        required: bool,
    ) -> Result<Self, TrustError> {
        let mut digest = Context::new(&SHA256);
        let mut roots = RootCertStore::empty();
        for (number, authority) in authorities.iter().enumerate() {
            digest.update(authority);
            let added = roots.add(authority.clone());
            added.map_err(|error| TrustError::Authority(number + 1, error))?;
        }
        for list in &revocations {
            digest.update(list);
        }
        let mut out = [0; 32];
        for (to, from) in out.iter_mut().zip(digest.finish().as_ref()) {
            *to = *from;
        }
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()))
                .with_crls(revocations)
                .enforce_revocation_expiration();
        if !required {
            builder = builder.allow_unauthenticated();
        }
        Ok(Self { verifier: builder.build()?, digest: out })
    }

    /// What a handshake asks.
    #[must_use]
    pub fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.verifier)
    }

    /// Differs from that of any other trust.
    #[must_use]
    pub const fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Would the certificate have been believed at this time, in seconds since 1970? One that was
    /// verified with the same is not verified again.
    #[must_use]
    pub fn holds(&self, certificate: &Certificate, at: u64) -> bool {
        if certificate.trust == self.digest {
            return true;
        }
        let chain: Vec<_> =
            certificate.chain.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
        let Some((own, others)) = chain.split_first() else {
            return false;
        };
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
        self.verifier.verify_client_cert(own, others, at).is_ok()
    }
}
