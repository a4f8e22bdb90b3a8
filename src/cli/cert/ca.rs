//! `egret cert ca`: a new authority, in two PEM files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose};

use super::{Made, failed, read_ttl, validity};
use crate::cli::files::{Failure, finish};

#[derive(Debug, Args)]
pub(super) struct CaArgs {
    /// Files to write, without their endings .crt and .key
    #[arg(long, value_name = "PATH", default_value = "certs/ca")]
    out: PathBuf,
    /// Common name of the authority, which clients see
    #[arg(long, value_name = "TEXT", default_value = "egret sandboxes")]
    name: String,
    /// How long it is valid, as 365d
    #[arg(long, value_name = "TIME", default_value = "1825d", value_parser = read_ttl)]
    ttl: Duration,
    /// Print the names of the files as JSON
    #[arg(long)]
    json: bool,
}

impl CaArgs {
    pub(super) fn run(self) -> u8 {
        finish(make(&self.out, &self.name, self.ttl), self.json, |made| {
            format!(
                "{}: keep it secret; certificates are signed with it\n{}: name it in `tls_client_ca` of [listen], and give it to clients",
                made.key.display(),
                made.certificate.display()
            )
        })
    }
}

fn make(out: &Path, name: &str, ttl: Duration) -> Result<Made, Failure> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // It signs certificates of clients and listeners, and no further authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    validity(&mut params, ttl);
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Made::at(out).write(&certificate.pem(), &key)
}
