//! `egret cert server`: a certificate that a TLS listener shows its clients.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyUsagePurpose};

use super::{Authority, Made, failed, read_ttl};
use crate::cli::files::{Failure, finish};

#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// Files of the authority, without their endings .crt and .key
    #[arg(long, value_name = "PATH", default_value = "certs/ca")]
    ca: PathBuf,
    /// Name or address by which clients reach the listener; repeatable
    #[arg(long = "name", value_name = "HOST", required = true)]
    names: Vec<String>,
    /// Files to write, without their endings .crt and .key
    #[arg(long, value_name = "PATH", default_value = "certs/server")]
    out: PathBuf,
    /// How long it is valid, as 90d
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = read_ttl)]
    ttl: Duration,
    /// Print the names of the files as JSON
    #[arg(long)]
    json: bool,
}

impl ServerArgs {
    pub(super) fn run(self) -> u8 {
        let json = self.json;
        finish(self.make(), json, |made| {
            format!(
                "{}: keep it secret; name it in `tls_key` of [listen]\n{}: name it in `tls_certificate`",
                made.key.display(),
                made.certificate.display()
            )
        })
    }

    fn make(self) -> Result<Made, Failure> {
        let authority = Authority::read(&self.ca)?;
        let first = self.names.first().cloned().unwrap_or_default();
        let mut params = CertificateParams::new(self.names).map_err(failed)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, first);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Not for clients: what the listener shows everybody must not open anything.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        authority.sign(params, self.ttl, &self.out)
    }
}
