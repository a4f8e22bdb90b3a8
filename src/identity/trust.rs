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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, ExtendedKeyUsagePurpose, IsCa,
        Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
    };

    use super::*;
    use crate::identity::read_certificate;

    /// 2026-07-01, within the year in which everything here is valid.
    const THEN: u64 = 1_782_864_000;
    const YEAR: u64 = 365 * 86_400;

    fn authority(name: &str) -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let der = params.self_signed(&key).unwrap().der().clone();
        (der, Issuer::new(params, key))
    }

    fn client(issuer: &Issuer<'_, KeyPair>) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from(7));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2027, 1, 1));
        params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
    }

    fn list(issuer: &Issuer<'_, KeyPair>, serial: u64) -> CertificateRevocationListDer<'static> {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2026, 1, 2),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 2),
            next_update: date_time_ymd(2026, 12, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(issuer).unwrap().der().clone()
    }

    #[test]
    fn what_is_believed_follows_authorities_and_lists() {
        let ((one, issuer), (other, stranger)) = (authority("one"), authority("other"));
        let of = |authorities: &[&CertificateDer<'static>], lists| {
            let authorities: Vec<_> = authorities.iter().copied().cloned().collect();
            Trust::new(&authorities, lists, false).unwrap()
        };
        let first = of(&[&one], vec![]);
        let certificate = read_certificate(&[client(&issuer)], THEN, first.digest()).unwrap();
        assert!(first.holds(&certificate, THEN), "it was verified with this");
        for (trust, at, holds) in [
            (of(&[&other, &one], vec![]), THEN, true),
            (of(&[&other, &one], vec![]), THEN + YEAR, false),
            (of(&[&other], vec![]), THEN, false),
            (of(&[&one], vec![list(&issuer, 8)]), THEN, true),
            (of(&[&one], vec![list(&issuer, 7)]), THEN, false),
            // A list that is stale, that is missing, and that somebody else signed.
            (of(&[&one], vec![list(&issuer, 8)]), THEN + YEAR * 45 / 100, false),
            (of(&[&one, &other], vec![list(&stranger, 8)]), THEN, false),
        ] {
            assert_ne!(trust.digest(), first.digest());
            assert_eq!(trust.holds(&certificate, at), holds, "{at}");
        }
    }

    #[test]
    fn what_is_no_authority_is_refused() {
        assert!(Trust::new(&[], Vec::new(), false).is_err());
        let junk = CertificateDer::from(vec![0x30, 0]);
        assert!(matches!(Trust::new(&[junk], Vec::new(), false), Err(TrustError::Authority(1, _))));
        let list = CertificateRevocationListDer::from(vec![0x30, 0]);
        assert!(matches!(Trust::new(&[authority("one").0], vec![list], false), Err(TrustError::Unusable(_))));
    }
}
