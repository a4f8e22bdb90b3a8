//! Reads the keys of `[listen]` that are about TLS, and the files that they name.

use std::net::SocketAddr;
use std::path::Path;

use egret_policy::reader::{Located, Table};
use egret_policy::{Problems, word};

use super::listen::read_addresses;
use super::{Files, unreadable_help};
use crate::client_tls::{self, ClientTls, PemError};
use crate::identity::Trust;

/// Keys that mean nothing without `tls`.
const DEPENDENT: [&str; 5] = ["tls_certificate", "tls_key", "tls_client_ca", "tls_client_crl", "tls_client"];

/// The TLS listeners, and how clients are received there.
#[derive(Debug, Default)]
pub(super) struct TlsPart {
    pub(super) addresses: Vec<SocketAddr>,
    /// Are authorities named, whether they can be read or not?
    pub(super) certificates: bool,
    pub(super) client_tls: Option<ClientTls>,
}

pub(super) fn read(table: &mut Table<'_, '_>, files: &mut Files, problems: &mut Problems) -> TlsPart {
    let addresses = table.strings("tls", problems);
    let mut named = DEPENDENT.into_iter().filter(|key| table.has(key));
    if let (None, Some(key)) = (&addresses, named.next().filter(|_| !table.has("tls"))) {
        let message = format!("`{key}` needs an address that is reached over TLS");
        problems.error(&table.spot(), message, "add `tls = \"0.0.0.0:3130\"`");
    }
    let addresses = read_addresses("tls", addresses.unwrap_or_default(), problems);
    let certificate = table.string("tls_certificate", problems);
    let key = table.string("tls_key", problems);
    let authorities = table.string("tls_client_ca", problems);
    let revocations = table.string("tls_client_crl", problems);
    let words = [("optional", false), ("required", true)];
    let required = word(table, "tls_client", &words, problems).unwrap_or(false);
    for dependent in ["tls_client_crl", "tls_client"] {
        if table.has(dependent) && !table.has("tls_client_ca") {
            let message = format!("`{dependent}` needs authorities of client certificates");
            problems.error(&table.spot(), message, "add `tls_client_ca`");
        }
    }
    let certificates = table.has("tls_client_ca");
    let trust = authorities.and_then(|file| read_trust(&file, revocations, required, files, problems));
    // A listener that asks for no certificate would be another one than was meant.
    let lacks_trust = certificates && trust.is_none();
    let (Some(certificate), Some(key)) = (&certificate, &key) else {
        let missing = ["tls_certificate", "tls_key"].into_iter().filter(|key| !table.has(key));
        for missing in missing.filter(|_| !addresses.is_empty()) {
            let help = "name it; `egret cert server` makes one";
            problems.error(&table.spot(), format!("`tls` needs `{missing}`"), help);
        }
        return TlsPart { addresses, certificates, client_tls: None };
    };
    let made_by = "make it with `egret cert server`";
    let chain = read_pem(certificate, made_by, files, problems, client_tls::certificates);
    if chain.as_ref().is_some_and(|chain| !client_tls::is_current(chain)) {
        let message = format!("{} is not valid now, so clients will refuse it", certificate.value);
        problems.warning(&certificate.spot, message, "name another; `egret cert server` makes one");
    }
    let private = read_pem(key, made_by, files, problems, client_tls::private_key);
    let client_tls = chain.zip(private).and_then(|(chain, private)| {
        let made = ClientTls::new(chain, private, trust);
        made.map_err(|cause| {
            let message = format!("{} and {} can't be used: {cause}", certificate.value, key.value);
            problems.error(&certificate.spot, message, "name a certificate and its own key");
        })
        .ok()
    });
    TlsPart { addresses, certificates, client_tls: client_tls.filter(|_| !lacks_trust) }
}

fn read_trust(
    file: &Located<String>,
    revocations: Option<Located<String>>,
    required: bool,
    files: &mut Files,
    problems: &mut Problems,
) -> Option<Trust> {
    let made_by = "make it with `egret cert ca`";
    let authorities = read_pem(file, made_by, files, problems, client_tls::certificates);
    let lists = match revocations {
        Some(file) => {
            let made_by = "make it with `egret cert revoke`";
            read_pem(&file, made_by, files, problems, client_tls::revocations)?
        }
        None => Vec::new(),
    };
    let trust = Trust::new(&authorities?, lists, required);
    trust
        .map_err(|cause| {
            let message = format!("the authorities in {} can't be used: {cause}", file.value);
            problems.error(&file.spot, message, "name certificates that `egret cert ca` made, or the like");
        })
        .ok()
}

fn read_pem<T>(
    file: &Located<String>,
    absent: &str,
    files: &mut Files,
    problems: &mut Problems,
    parse: impl FnOnce(&str) -> Result<T, PemError>,
) -> Option<T> {
    let text = match files.read(Path::new(&file.value)) {
        Ok(text) => text,
        Err(cause) => {
            let help = unreadable_help(&cause, absent);
            problems.error(&file.spot, format!("{} can't be read: {cause}", file.value), help);
            return None;
        }
    };
    let parsed = parse(&text);
    parsed
        .map_err(|cause| {
            problems.error(&file.spot, format!("{} can't be used: {cause}", file.value), "");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use egret_policy::SourceFile;
    use egret_policy::reader::read_document;
    use rcgen::{CertificateParams, IsCa, KeyPair};

    use super::*;

    /// What is said to these lines of `[listen]`; a name in `{}` stands for the path of a file.
    fn problems(lines: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let own = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let mut text = lines.to_owned();
        for (name, content) in [
            ("ca", ca.self_signed(&ca_key).unwrap().pem()),
            ("own", own.pem()),
            ("key", key.serialize_pem()),
            ("other", ca_key.serialize_pem()),
            ("broken", "-----BEGIN CERTIFICATE-----\nAA=A\n-----END CERTIFICATE-----\n".to_owned()),
        ] {
            let path = dir.path().join(name);
            fs::write(&path, content).unwrap();
            text = text.replace(&format!("{{{name}}}"), &format!("{:?}", path.display().to_string()));
        }
        let file = SourceFile::new("f.toml", text);
        let mut problems = Problems::default();
        let part = read_document(&file, &mut problems, |mut table, problems| {
            let part = read(&mut table, &mut Files::default(), problems);
            table.finish(problems);
            part
        });
        let silent = part.client_tls.is_none() && !part.addresses.is_empty() && !problems.any_error();
        assert!(!silent, "a listener without its certificate, and nothing is said");
        let dir = dir.path().display().to_string();
        problems.iter().map(|problem| problem.to_string().replace(&(dir.clone() + "/"), "")).collect()
    }

    const OWN: &str = "tls = \"127.0.0.1:1\"\ntls_certificate = {own}\ntls_key = {key}\n";

    #[test]
    fn what_can_be_served_is_read() {
        for lines in ["", OWN, &format!("{OWN}tls_client_ca = {{ca}}\ntls_client = \"required\"\n")] {
            assert!(problems(lines).is_empty(), "{lines}{:?}", problems(lines));
        }
    }

    #[test]
    fn what_can_not_be_served_is_said() {
        for (lines, said) in [
            ("tls = \"127.0.0.1:1\"", "`tls` needs `tls_certificate`"),
            (
                "tls = \"localhost:1\"\ntls_certificate = {own}\ntls_key = {key}",
                "`localhost:1` is not an address",
            ),
            ("tls_key = {key}", "`tls_key` needs an address that is reached over TLS"),
            ("tls_client = \"required\"", "`tls_client` needs an address"),
            (
                "tls_certificate = {own}\ntls_key = {other}\ntls = \"127.0.0.1:1\"",
                "not that of the certificate",
            ),
            (
                "tls_certificate = {key}\ntls_key = {key}\ntls = \"127.0.0.1:1\"",
                "no -----BEGIN CERTIFICATE-----",
            ),
            ("tls_certificate = {broken}\ntls_key = {key}\ntls = \"127.0.0.1:1\"", "can't be read as PEM"),
            (
                "tls_certificate = {own}\ntls_key = {own}\ntls = \"127.0.0.1:1\"",
                "no -----BEGIN PRIVATE KEY-----",
            ),
            ("tls_certificate = \"no\"\ntls_key = {key}\ntls = \"127.0.0.1:1\"", "no can't be read"),
        ] {
            let all = problems(lines);
            assert!(all.iter().any(|problem| problem.contains(said)), "{lines}: {all:?}");
        }
        for (more, said) in [
            ("tls_client = \"required\"", "`tls_client` needs authorities of client certificates"),
            ("tls_client_crl = {ca}", "`tls_client_crl` needs authorities of client certificates"),
            ("tls_client_ca = {key}", "no -----BEGIN CERTIFICATE-----"),
            ("tls_client_ca = {ca}\ntls_client_crl = {ca}", "no -----BEGIN X509 CRL-----"),
            ("tls_client_ca = {ca}\ntls_client = \"always\"", "`tls_client` has an unknown value"),
        ] {
            let all = problems(&format!("{OWN}{more}\n"));
            assert!(all.iter().any(|problem| problem.contains(said)), "{more}: {all:?}");
        }
    }
}
