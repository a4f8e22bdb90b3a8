//! What a client certificate says: for which sandbox it is, and when it is valid.
//!
//! Reads certificates that have been verified; verifies none.

use std::sync::Arc;

use egret_policy::{Certificate, is_sandbox_id};
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// What a URI among the names begins with that names a sandbox.
pub const SANDBOX_URI: &str = "egret:sandbox:";

/// A certificate that was verified and yet can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the certificate can't be read")]
pub struct UnreadableCertificate;

/// Reads the chain that a client sent, its own certificate first. `verified` is when that was
/// verified, in seconds since 1970, and `trust` the digest of what it was verified with.
///
/// # Errors
/// It is not DER of X.509.
pub fn read_certificate(
    chain: &[CertificateDer<'_>],
    verified: u64,
    trust: [u8; 32],
) -> Result<Certificate, UnreadableCertificate> {
    let mut all = chain.iter().map(|der| parse(der));
    let own = all.next().ok_or(UnreadableCertificate)??;
    let (mut begins, mut expires) = times(&own);
    for other in all {
        let (from, to) = times(&other?);
        (begins, expires) = (begins.max(from), expires.min(to));
    }
    let chain = chain.iter().map(|der| der.to_vec()).collect();
    Ok(Certificate { sandbox: sandbox_of(&own), chain, begins, expires, verified, trust })
}

/// Reads one certificate.
///
/// # Errors
/// It is not DER of X.509, or something follows it.
pub fn parse(der: &[u8]) -> Result<X509Certificate<'_>, UnreadableCertificate> {
    match x509_parser::parse_x509_certificate(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(UnreadableCertificate),
    }
}

/// The sandbox that a certificate is for: the one URI `egret:sandbox:ID` among its alternative
/// names (RFC 5280 section 4.2.1.6); without such a URI the one DNS name; without alternative names
/// the one common name of its subject. Where there are several, it is for none.
#[must_use]
pub fn sandbox_of(certificate: &X509Certificate<'_>) -> Option<Arc<str>> {
    let id = match certificate.subject_alternative_name().ok()? {
        None => only(certificate.subject().iter_common_name().map(|name| name.as_str().ok())),
        Some(names) => {
            let names = &names.value.general_names;
            let uri = |name: &GeneralName<'_>| match name {
                GeneralName::URI(uri) => uri.strip_prefix(SANDBOX_URI).map(str::to_owned),
                _ => None,
            };
            let dns = |name: &GeneralName<'_>| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            };
            let uris: Vec<_> = names.iter().filter_map(uri).collect();
            if uris.is_empty() {
                return only(names.iter().filter_map(dns).map(Some)).and_then(checked);
            }
            return only(uris.into_iter().map(Some)).and_then(checked);
        }
    };
    id.map(str::to_owned).and_then(checked)
}

/// The first and the last second since 1970 of a certificate's validity.
#[must_use]
pub fn times(certificate: &X509Certificate<'_>) -> (u64, u64) {
    let validity = certificate.validity();
    let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
    (seconds(validity.not_before.timestamp()), seconds(validity.not_after.timestamp()))
}

/// The only item; `None` if there are more or it is unreadable.
fn only<T>(mut items: impl Iterator<Item = Option<T>>) -> Option<T> {
    let first = items.next()?;
    if items.next().is_some() { None } else { first }
}

fn checked(id: String) -> Option<Arc<str>> {
    is_sandbox_id(&id).then(|| id.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType, string::Ia5String};

    use super::*;

    fn dns(name: &str) -> SanType {
        SanType::DnsName(Ia5String::try_from(name).unwrap())
    }

    fn uri(name: &str) -> SanType {
        SanType::URI(Ia5String::try_from(name).unwrap())
    }

    fn certificate(names: Vec<SanType>, common: &[&str]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        params.distinguished_name = DistinguishedName::new();
        for name in common {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn one_rule_says_which_sandbox_a_certificate_is_for() {
        let long = "x".repeat(65);
        for (names, common, sandbox) in [
            (vec![uri("egret:sandbox:build-7")], "other", Some("build-7")),
            (vec![dns("host"), uri("egret:sandbox:Build_7"), dns("more")], "other", Some("Build_7")),
            (vec![uri("spiffe://x/y"), dns("build-7.example")], "other", Some("build-7.example")),
            (vec![dns("build-7")], "other", Some("build-7")),
            (vec![], "build-7", Some("build-7")),
            (vec![dns("a"), dns("b")], "build-7", None),
            (vec![uri("egret:sandbox:a"), uri("egret:sandbox:b")], "build-7", None),
            (vec![uri("egret:sandbox:")], "build-7", None),
            (vec![uri("egret:sandbox:a/b"), dns("build-7")], "build-7", None),
            (vec![uri("spiffe://x/y")], "build-7", None),
            (vec![dns("*.example")], "build-7", None),
            (vec![], "a b", None),
            (vec![], "", None),
            (vec![], &long, None),
        ] {
            let der = certificate(names.clone(), &[common]);
            let read = read_certificate(&[der], 7, [1; 32]).unwrap();
            assert_eq!(read.sandbox.as_deref(), sandbox, "{names:?} {common}");
        }
        assert_eq!(read_certificate(&[certificate(vec![], &[])], 7, [1; 32]).unwrap().sandbox, None);
    }

    #[test]
    fn a_damaged_certificate_is_read_as_something_or_not_at_all() {
        let der = certificate(vec![uri("egret:sandbox:build-7"), dns("host")], &["other"]);
        for at in 0..der.len() {
            for change in [0x00, 0x01, 0x80, 0xff] {
                let mut damaged = der.to_vec();
                damaged[at] ^= change;
                if let Ok(read) = read_certificate(&[damaged.into()], 7, [1; 32]) {
                    assert!(read.sandbox.is_none_or(|id| is_sandbox_id(&id)), "octet {at}");
                }
            }
            assert!(read_certificate(&[der[..at].to_vec().into()], 7, [1; 32]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn the_shortest_time_of_a_chain_counts() {
        let der = certificate(vec![], &["a"]);
        let read = read_certificate(&[der.clone(), der.clone()], 7, [1; 32]).unwrap();
        assert_eq!((read.begins, read.expires), (1_767_225_600, 1_798_761_600));
        let junk = CertificateDer::from(vec![0x30, 0]);
        assert_eq!(read_certificate(&[der, junk], 7, [1; 32]), Err(UnreadableCertificate));
        assert_eq!(read_certificate(&[], 7, [1; 32]), Err(UnreadableCertificate));
    }
}
