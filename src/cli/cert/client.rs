//! `egret cert client`: a certificate that makes its holder a sandbox.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use egret_policy::is_sandbox_id;
use rcgen::string::Ia5String;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyUsagePurpose, SanType,
};

use super::{Authority, Made, failed, read_ttl};
use crate::cli::BAD_INPUT;
use crate::cli::files::{Failure, finish};
use crate::identity::SANDBOX_URI;

#[derive(Debug, Args)]
pub(super) struct ClientArgs {
    /// Files of the authority, without their endings .crt and .key
    #[arg(long, value_name = "PATH", default_value = "certs/ca")]
    ca: PathBuf,
    /// Sandbox that the certificate makes of its holder
    #[arg(long, value_name = "ID")]
    sandbox: String,
    /// Files to write, without their endings .crt and .key [default: certs/ID]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// How long it is valid, as 30m, 24h or 30d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = read_ttl)]
    ttl: Duration,
    /// Print the names of the files as JSON
    #[arg(long)]
    json: bool,
}

impl ClientArgs {
    pub(super) fn run(self) -> u8 {
        let json = self.json;
        finish(self.make(), json, |made| {
            format!(
                "{}: keep it secret; whoever has it is the sandbox\n{}: goes with it to the client",
                made.key.display(),
                made.certificate.display()
            )
        })
    }

    fn make(self) -> Result<Made, Failure> {
        if !is_sandbox_id(&self.sandbox) {
            let message = format!(
                "`{}` is not a sandbox ID: 1 to 64 of A-Z a-z 0-9 . _ -",
                self.sandbox.escape_debug()
            );
            return Err((message, BAD_INPUT));
        }
        let authority = Authority::read(&self.ca)?;
        let out = self.out.unwrap_or_else(|| Path::new("certs").join(&self.sandbox));
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, self.sandbox.as_str());
        let uri = Ia5String::try_from(format!("{SANDBOX_URI}{}", self.sandbox)).map_err(failed)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        authority.sign(params, self.ttl, &out)
    }
}
