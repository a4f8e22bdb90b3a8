//! What a TLS listener shows its clients, and whose certificates it believes.
//!
//! Made from the texts of files, whole or not at all; opens none itself.

use std::sync::Arc;

use egret_policy::Certificate;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoClientAuth, NoServerSessionStorage};
use rustls::version::{TLS12, TLS13};
use rustls::{InconsistentKeys, ServerConfig, ServerConnection};

use crate::identity::{Trust, UnreadableCertificate, now, parse, read_certificate, times};

/// The protocol inside (RFC 7301): what the proxy port speaks as well.
const ALPN: &[u8] = b"http/1.1";

/// A file's text can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// It is not PEM, or damaged.
    #[error("it can't be read as PEM: {0}")]
    Damaged(pem::Error),
    /// It holds nothing of the kind.
    #[error("it holds no -----BEGIN {0}-----")]
    Missing(&'static str),
}

/// Why a certificate and its key can't be shown to clients.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// They do not belong together.
    #[error("the key is not that of the certificate")]
    OtherKey,
    /// The library refuses them.
    #[error("{0}")]
    Unusable(rustls::Error),
}

/// How clients are received on a TLS listener.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ServerConfig>,
    trust: Option<Trust>,
}

impl ClientTls {
    /// Shows this chain, and asks for a certificate where there is a trust.
    ///
    /// # Errors
    /// The chain and the key can't be used together.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        trust: Option<Trust>,
    ) -> Result<Self, ClientTlsError> {
        let verifier = trust.as_ref().map_or_else(|| Arc::new(NoClientAuth) as Arc<_>, Trust::verifier);
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(ClientTlsError::Unusable)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => ClientTlsError::OtherKey,
                error => ClientTlsError::Unusable(error),
            })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A resumed session would carry its certificate past a change of what is believed.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), trust })
    }

    /// What handshakes are made with.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// What the client's certificate says, after a handshake; `None` if it sent none.
    ///
    /// # Errors
    /// It was verified, but can't be read.
    pub fn certificate(
        &self,
        session: &ServerConnection,
    ) -> Result<Option<Certificate>, UnreadableCertificate> {
        match (session.peer_certificates(), &self.trust) {
            (Some(chain), Some(trust)) => read_certificate(chain, now(), trust.digest()).map(Some),
            _ => Ok(None),
        }
    }

    /// Whose certificates are believed; `None` if none is asked for.
    #[must_use]
    pub const fn trust(&self) -> Option<&Trust> {
        self.trust.as_ref()
    }
}

/// Do clients with a right clock believe that the first of these certificates is valid now?
#[must_use]
pub fn is_current(chain: &[CertificateDer<'_>]) -> bool {
    let read = chain.first().and_then(|der| parse(der).ok());
    read.is_some_and(|read| {
        let (begins, expires) = times(&read);
        (begins..=expires).contains(&now())
    })
}

/// The certificates of a PEM text, in order.
///
/// # Errors
/// It is damaged, or holds none.
pub fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, PemError> {
    all(text, "CERTIFICATE")
}

/// The lists of revoked certificates of a PEM text.
///
/// # Errors
/// It is damaged, or holds none.
pub fn revocations(text: &str) -> Result<Vec<CertificateRevocationListDer<'static>>, PemError> {
    all(text, "X509 CRL")
}

/// The private key of a PEM text.
///
/// # Errors
/// It is damaged, or holds none.
pub fn private_key(text: &str) -> Result<PrivateKeyDer<'static>, PemError> {
    match PrivateKeyDer::from_pem_slice(text.as_bytes()) {
        Err(pem::Error::NoItemsFound) => Err(PemError::Missing("PRIVATE KEY")),
        key => key.map_err(PemError::Damaged),
    }
}

fn all<T: PemObject>(text: &str, label: &'static str) -> Result<Vec<T>, PemError> {
    let found: Vec<T> =
        T::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>().map_err(PemError::Damaged)?;
    if found.is_empty() { Err(PemError::Missing(label)) } else { Ok(found) }
}
