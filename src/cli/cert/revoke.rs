//! `egret cert revoke`: the authority's list of certificates that no longer hold (RFC 5280
//! section 5), signed anew with one more on it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber};
use serde::Serialize;

use super::{Authority, failed, first_certificate, unusable};
use crate::cli::files::{Failure, finish, read_file, replace, with_ending};
use crate::client_tls::revocations;
use crate::identity::{now, parse};

#[derive(Debug, Args)]
pub(super) struct RevokeArgs {
    /// Certificate to revoke [default: none, only writes the list]
    #[arg(value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Files of the authority, without their endings; the list is the one with .crl
    #[arg(long, value_name = "PATH", default_value = "certs/ca")]
    ca: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Listed {
    list: PathBuf,
    /// How many certificates are on it.
    revoked: usize,
}

impl RevokeArgs {
    pub(super) fn run(self) -> u8 {
        let json = self.json;
        finish(self.revoke(), json, |listed| {
            format!(
                "{}: {} revoked; name it in `tls_client_crl` of [listen]",
                listed.list.display(),
                listed.revoked
            )
        })
    }

    fn revoke(self) -> Result<Listed, Failure> {
        let authority = Authority::read(&self.ca)?;
        let list = with_ending(&self.ca, ".crl");
        let mut revoked = if list.exists() { read_list(&list)? } else { Vec::new() };
        if let Some(file) = &self.certificate {
            let serial = self.serial_of(file)?;
            if revoked.iter().all(|(known, _)| *known != serial) {
                revoked.push((serial, now()));
            }
        }
        let count = revoked.len();
        let at = |seconds| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        let entry = |(serial, when): (Vec<u8>, u64)| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: at(when),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: at(now()),
            // Goes stale with the authority and no sooner: nobody renews it on a schedule.
            next_update: at(authority.expires),
            crl_number: SerialNumber::from(now()),
            issuing_distribution_point: None,
            revoked_certs: revoked.into_iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let signed = params.signed_by(&authority.issuer).and_then(|list| list.pem());
        replace(&list, &signed.map_err(failed)?)?;
        Ok(Listed { list, revoked: count })
    }

    /// The serial number of a certificate, which must be one that the authority has signed.
    fn serial_of(&self, file: &Path) -> Result<Vec<u8>, Failure> {
        let ca_file = with_ending(&self.ca, ".crt");
        let (der, ca) = (
            first_certificate(file, &read_file(file)?)?,
            first_certificate(&ca_file, &read_file(&ca_file)?)?,
        );
        let certificate = parse(&der).map_err(|error| unusable(file, error))?;
        let ca = parse(&ca).map_err(|error| unusable(&ca_file, error))?;
        if certificate.issuer().as_raw() != ca.subject().as_raw() {
            return Err(unusable(file, format!("{} did not sign it", ca_file.display())));
        }
        Ok(without_sign(certificate.raw_serial()))
    }
}

/// What is on the list already: serial numbers, and when each was revoked.
fn read_list(path: &Path) -> Result<Vec<(Vec<u8>, u64)>, Failure> {
    let lists = revocations(&read_file(path)?).map_err(|error| unusable(path, error))?;
    let mut revoked = Vec::new();
    for der in &lists {
        let (_, list) = x509_parser::parse_x509_crl(der).map_err(|error| unusable(path, error))?;
        for known in list.iter_revoked_certificates() {
            let when = u64::try_from(known.revocation_date.timestamp()).unwrap_or(0);
            revoked.push((without_sign(known.raw_serial()), when));
        }
    }
    Ok(revoked)
}

/// Without the zero that only says that the number is positive.
fn without_sign(serial: &[u8]) -> Vec<u8> {
    serial.strip_prefix(&[0]).unwrap_or(serial).to_vec()
}
