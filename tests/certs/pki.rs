//! An authority made by the command, and what it or another one signs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::string::Ia5String;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

use crate::support::egret::BINARY;

/// Runs a command of the binary.
pub fn egret(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().expect("the binary runs")
}

/// What a successful command printed.
pub fn printed(arguments: &[&str]) -> String {
    let output = egret(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// An authority in a folder of its own, with a certificate for `localhost`.
pub struct Pki {
    dir: TempDir,
}

/// A certificate with its key, as a client holds them.
pub struct Pair {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Clone for Pair {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl Pki {
    pub fn new() -> Self {
        let pki = Self { dir: TempDir::with_prefix("egret-pki-").unwrap() };
        printed(&["cert", "ca", "--out", &pki.text("ca")]);
        pki.make_server();
        pki
    }

    /// Makes the proxy's own pair, which must not be there.
    pub fn make_server(&self) {
        let (ca, out) = (self.text("ca"), self.text("server"));
        printed(&["cert", "server", "--ca", &ca, "--name", "localhost", "--out", &out]);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The authority's certificate.
    pub fn root(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.path("ca.crt")).unwrap()
    }

    /// What the command makes for a sandbox.
    pub fn client(&self, sandbox: &str) -> Pair {
        let out = self.text(sandbox);
        printed(&["cert", "client", "--ca", &self.text("ca"), "--sandbox", sandbox, "--out", &out]);
        read(&self.path(&format!("{sandbox}.crt")), &self.path(&format!("{sandbox}.key")))
    }

    /// Puts a certificate that `client` has made on the list.
    pub fn revoke(&self, sandbox: &str) {
        printed(&["cert", "revoke", "--ca", &self.text("ca"), &self.text(&format!("{sandbox}.crt"))]);
    }

    /// A certificate for a sandbox that is valid from and to so many seconds from now.
    pub fn valid(&self, sandbox: &str, from: i64, to: i64) -> Pair {
        self.sign(|params| {
            let since = |offset: i64| Duration::from_secs(now().checked_add_signed(offset).unwrap());
            params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since(from);
            params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since(to);
            params.subject_alt_names = vec![uri(sandbox)];
        })
    }

    /// A certificate that the test has its say in.
    pub fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let ca_key = KeyPair::from_pem(&std::fs::read_to_string(self.path("ca.key")).unwrap()).unwrap();
        let issuer = Issuer::from_ca_cert_der(&self.root(), ca_key).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "common");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        Pair { chain: vec![certificate.der().clone()], key }
    }
}

/// The name that makes a certificate one of a sandbox.
pub fn uri(sandbox: &str) -> SanType {
    SanType::URI(Ia5String::try_from(format!("egret:sandbox:{sandbox}")).unwrap())
}

pub fn read(certificate: &Path, key: &Path) -> Pair {
    Pair {
        chain: vec![CertificateDer::from_pem_file(certificate).unwrap()],
        key: PrivateKeyDer::from_pem_file(key).unwrap(),
    }
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
