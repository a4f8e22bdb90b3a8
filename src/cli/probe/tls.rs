//! TLS to the proxy: whom it is believed from, what this side shows, and what a handshake that failed
//! says.
//!
//! Opens no connection, and goes on with no proxy that it can't believe.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::cli::BAD_INPUT;
use crate::cli::files::{Failure, read_file};
use crate::client_tls::{certificates, private_key};

use super::check::Kind;
use super::socket::Reach;

/// A connection to the proxy, in clear or in TLS.
pub(super) type Stream = Box<dyn Wire>;

/// What a connection can do.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

#[derive(Debug, Args)]
pub(super) struct TlsArgs {
    /// Authorities that an https:// proxy's certificate may come from, in PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The certificate that is shown to an https:// proxy, in PEM, where the sandbox has one
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl TlsArgs {
    /// Is there nothing of TLS on the command line?
    pub(super) const fn is_empty(&self) -> bool {
        self.ca.is_none() && self.cert.is_none()
    }

    /// How a handshake is made; `None` where the system has no authorities and none are named.
    ///
    /// # Errors
    /// A file can't be used.
    pub(super) fn connector(&self) -> Result<Option<TlsConnector>, Failure> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(path) => {
                for authority in certificates(&read_file(path)?).map_err(|error| unusable(path, &error))? {
                    roots.add(authority).map_err(|error| unusable(path, &error))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Ok(None);
                }
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| (format!("no TLS: {error}"), BAD_INPUT))?
            .with_root_certificates(roots);
        let config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates(&read_file(cert)?).map_err(|error| unusable(cert, &error))?;
                let private = private_key(&read_file(key)?).map_err(|error| unusable(key, &error))?;
                builder.with_client_auth_cert(chain, private).map_err(|error| unusable(key, &error))?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Some(TlsConnector::from(Arc::new(config))))
    }
}

fn unusable(path: &std::path::Path, error: &dyn std::fmt::Display) -> Failure {
    (format!("{} can't be used: {error}", path.display()), BAD_INPUT)
}

/// What a proxy that is spoken to in TLS is asked with.
pub(super) struct Tls {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({:?})", self.name)
    }
}

impl Tls {
    /// Makes the handshake on a connection.
    pub(super) async fn wrap(&self, stream: TcpStream) -> Result<Stream, Reach> {
        match self.connector.connect(self.name.clone(), stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => {
                let cause = error.get_ref().and_then(|inner| inner.downcast_ref());
                Err(Reach::new(Kind::Handshake, format!("{error}{}", cause.map_or("", advice))))
            }
        }
    }
}

/// The next step, where there is one.
const fn advice(error: &Error) -> &'static str {
    match error {
        // Another authority of the same name, as those of `egret cert` have, shows by the signature.
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "; if it is egret's, name the authority that it comes from with --ca"
        }
        Error::InvalidMessage(_) => "; what answers there does not speak TLS, so write http:// for it",
        _ => "",
    }
}
