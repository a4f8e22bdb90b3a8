//! `egret cert inspect`: what the certificates in a file say. Verifies nothing.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ExtendedKeyUsage, GeneralName};

use super::unusable;
use crate::audit::Timestamp;
use crate::cli::files::{Failure, finish, read_file};
use crate::client_tls::certificates;
use crate::identity::{now, parse, sandbox_of, times};

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// PEM file with certificates
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print what they say as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Inspected {
    subject: String,
    issuer: String,
    serial: String,
    not_before: Timestamp,
    not_after: Timestamp,
    /// Does the present lie between these?
    current: bool,
    authority: bool,
    names: Vec<String>,
    /// `server`, `client`.
    #[serde(rename = "for")]
    used_for: Vec<&'static str>,
    /// The sandbox that it makes of its holder, if it is a client's.
    sandbox: Option<String>,
}

impl InspectArgs {
    pub(super) fn run(self) -> u8 {
        finish(self.inspect(), self.json, |all| {
            all.iter().map(Inspected::to_text).collect::<Vec<_>>().join("\n\n")
        })
    }

    fn inspect(&self) -> Result<Vec<Inspected>, Failure> {
        let all = certificates(&read_file(&self.file)?).map_err(|error| unusable(&self.file, error))?;
        let read = |der: &_| parse(der).map(|certificate| Inspected::of(&certificate));
        all.iter().map(|der| read(der)).collect::<Result<_, _>>().map_err(|error| unusable(&self.file, error))
    }
}

impl Inspected {
    fn of(certificate: &X509Certificate<'_>) -> Self {
        let (begins, expires) = times(certificate);
        let at = |seconds| Timestamp::from(UNIX_EPOCH + Duration::from_secs(seconds));
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.map(|names| names.value.general_names.iter().map(name).collect());
        let uses = certificate.extended_key_usage().ok().flatten().map(|extension| extension.value);
        let allows = |used: fn(&ExtendedKeyUsage<'_>) -> bool| uses.is_none_or(|uses| uses.any || used(uses));
        let (server, client) = (allows(|uses| uses.server_auth), allows(|uses| uses.client_auth));
        let used_for = [("server", server), ("client", client)];
        Self {
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            serial: certificate.raw_serial_as_string(),
            not_before: at(begins),
            not_after: at(expires),
            current: (begins..=expires).contains(&now()),
            authority: certificate.is_ca(),
            names: names.unwrap_or_default(),
            used_for: used_for.into_iter().filter(|(_, used)| *used).map(|(name, _)| name).collect(),
            sandbox: sandbox_of(certificate)
                .filter(|_| client && !certificate.is_ca())
                .map(|id| id.to_string()),
        }
    }

    fn to_text(&self) -> String {
        let Self { subject, issuer, serial, not_before, not_after, .. } = self;
        let current = if self.current { "" } else { " (not now)" };
        let mut lines = vec![
            format!("subject    {subject}"),
            format!("issuer     {issuer}"),
            format!("serial     {serial}"),
            format!("valid      {not_before} to {not_after}{current}"),
        ];
        if self.authority {
            lines.push("authority  yes".to_owned());
        } else {
            lines.push(format!("for        {}", self.used_for.join(", ")));
        }
        if !self.names.is_empty() {
            lines.push(format!("names      {}", self.names.join(", ")));
        }
        if let Some(sandbox) = &self.sandbox {
            lines.push(format!("sandbox    {sandbox}"));
        }
        lines.join("\n")
    }
}

fn name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::URI(uri) => (*uri).to_owned(),
        GeneralName::IPAddress([a, b, c, d]) => std::net::Ipv4Addr::new(*a, *b, *c, *d).to_string(),
        GeneralName::IPAddress(octets) => <[u8; 16]>::try_from(*octets)
            .map_or_else(|_| "?".to_owned(), |v6| std::net::Ipv6Addr::from(v6).to_string()),
        other => other.to_string(),
    }
}
