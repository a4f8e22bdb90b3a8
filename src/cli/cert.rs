//! `egret cert`: a small authority for the certificates of a TLS listener and of its clients.
//!
//! Only these commands sign anything; the running proxy needs the authority's certificate, and the
//! key of its own one.

mod ca;
mod client;
mod inspect;
mod revoke;
mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use egret_policy::units::parse_duration;
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use serde::Serialize;

use super::files::{Failure, PUBLIC, SECRET, read_file, read_made, with_ending, write_new};
use super::{BAD_INPUT, FAILED};
use crate::client_tls::certificates;
use crate::identity::{now, parse, times};

/// How far the clock of whoever verifies may be behind.
const CLOCK_LEEWAY: u64 = 60;

#[derive(Debug, Args)]
pub(super) struct CertArgs {
    #[command(subcommand)]
    command: CertCommand,
}

#[derive(Debug, Subcommand)]
enum CertCommand {
    /// Make an authority: a certificate for `tls_client_ca`, and the key that signs others
    Ca(ca::CaArgs),
    /// Make a certificate for a TLS listener: for `tls_certificate` and `tls_key`
    Server(server::ServerArgs),
    /// Make a certificate for a sandbox
    Client(client::ClientArgs),
    /// Put a certificate on the authority's list of revoked ones, for `tls_client_crl`
    Revoke(revoke::RevokeArgs),
    /// Show what the certificates in a file say
    Inspect(inspect::InspectArgs),
}

impl CertArgs {
    pub(super) fn run(self) -> u8 {
        match self.command {
            CertCommand::Ca(args) => args.run(),
            CertCommand::Server(args) => args.run(),
            CertCommand::Client(args) => args.run(),
            CertCommand::Revoke(args) => args.run(),
            CertCommand::Inspect(args) => args.run(),
        }
    }
}

/// The files of a certificate that was made.
#[derive(Debug, Serialize)]
struct Made {
    certificate: PathBuf,
    key: PathBuf,
}

impl Made {
    fn at(out: &Path) -> Self {
        Self { certificate: with_ending(out, ".crt"), key: with_ending(out, ".key") }
    }

    fn write(self, certificate: &str, key: &KeyPair) -> Result<Self, Failure> {
        let key = key.serialize_pem();
        write_new(&[(&self.key, &key, SECRET), (&self.certificate, certificate, PUBLIC)])?;
        Ok(self)
    }
}

/// An authority as `egret cert ca` made it.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The last second since 1970 of its certificate.
    expires: u64,
}

impl Authority {
    /// Reads the certificate and the key with this name before their endings.
    fn read(name: &Path) -> Result<Self, Failure> {
        let Made { certificate, key: key_file } = Made::at(name);
        let pem =
            read_made(&certificate, "; make an authority with `egret cert ca`, or name yours with --ca")?;
        let der = first_certificate(&certificate, &pem)?;
        let read = parse(&der).map_err(|error| unusable(&certificate, error))?;
        let key = KeyPair::from_pem(&read_file(&key_file)?).map_err(|error| unusable(&key_file, error))?;
        if !read.is_ca() {
            return Err(unusable(&certificate, "it is not the certificate of an authority"));
        }
        if read.public_key().raw != rcgen::PublicKeyData::subject_public_key_info(&key) {
            return Err(unusable(&key_file, format!("it is not the key of {}", certificate.display())));
        }
        let expires = times(&read).1;
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|error| unusable(&certificate, error))?;
        Ok(Self { issuer, expires })
    }

    /// Signs a certificate with a key of its own, valid from now on.
    fn sign(&self, mut params: CertificateParams, ttl: Duration, out: &Path) -> Result<Made, Failure> {
        let end = validity(&mut params, ttl);
        if end > self.expires {
            return Err((
                "the authority's certificate ends before that; choose a shorter --ttl".to_owned(),
                BAD_INPUT,
            ));
        }
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Made::at(out).write(&certificate.pem(), &key)
    }
}

/// Sets when a certificate is valid, and gives the last second of that.
fn validity(params: &mut CertificateParams, ttl: Duration) -> u64 {
    let begin = now();
    let end = begin.saturating_add(ttl.as_secs());
    params.not_before =
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(begin.saturating_sub(CLOCK_LEEWAY));
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(end);
    end
}

fn first_certificate(path: &Path, pem: &str) -> Result<CertificateDer<'static>, Failure> {
    let all = certificates(pem).map_err(|error| unusable(path, error))?;
    all.into_iter().next().ok_or_else(|| unusable(path, "it is empty"))
}

fn unusable(path: &Path, error: impl std::fmt::Display) -> Failure {
    (format!("{} can't be used: {error}", path.display()), BAD_INPUT)
}

fn failed(error: rcgen::Error) -> Failure {
    (error.to_string(), FAILED)
}

/// A time of validity on the command line.
fn read_ttl(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .filter(|ttl| *ttl >= Duration::from_secs(1))
        .ok_or_else(|| "write a time from 1s to 3650d, as 24h or 90d".to_owned())
}
