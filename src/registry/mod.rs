//! From what package managers on a machine are set to, to rules for their registries.
//!
//! Reads settings, asks registries where their files are, writes a rule set. Of a URL it keeps
//! scheme, host, port and path, and shows no path: what could be a credential is never kept, and no
//! text of a file gets into a message. Opens no socket; [`Errand`](crate::egress::Errand) does.

mod apt;
mod ask;
mod cargo;
mod client;
mod docker;
mod fetch;
mod finding;
mod go;
mod index;
mod ini;
mod machine;
mod maven;
mod npm;
mod pip;
mod place;
mod podman;
mod report;
mod tables;
mod text;
mod uv;

#[cfg(test)]
mod tests;

pub use ask::ask;
pub use client::Client;
pub use fetch::Fetcher;
pub use finding::{Ask, Fault, Findings, Found, Note, Origin};
pub use machine::Machine;
pub use place::{Flaw, Place};
pub use report::{Answers, Named, NotProposed, Reach, Report, Rule, Unknown};

/// Reads what these clients are set to.
///
/// # Errors
/// Every file that can't be read or understood.
pub fn read(machine: &Machine, clients: &[Client]) -> Result<Findings, Vec<Fault>> {
    let (mut findings, mut faults) = (Findings::default(), Vec::new());
    for client in clients {
        let mut reader = finding::Reader::new(*client, machine, &mut findings);
        let read = match client {
            Client::Npm => npm::read(&mut reader),
            Client::Pip => pip::read(&mut reader),
            Client::Uv => uv::read(&mut reader),
            Client::Cargo => cargo::read(&mut reader),
            Client::Apt => apt::read(&mut reader),
            Client::Go => go::read(&mut reader),
            Client::Maven => maven::read(&mut reader),
            Client::Docker => docker::read(&mut reader),
            Client::Podman => podman::read(&mut reader),
        };
        faults.extend(read.err());
    }
    if faults.is_empty() { Ok(findings) } else { Err(faults) }
}

impl Findings {
    /// Takes what a client's own command has printed about its registries.
    pub fn take_answer(&mut self, client: Client, text: &str) {
        // None is asked for anything of it.
        let nowhere = Machine { root: "/".into(), home: "/".into(), project: None, env: [].into() };
        let mut reader = finding::Reader::new(client, &nowhere, self);
        let command = client.command().unwrap_or_default().join(" ");
        let origin = reader.origin(&format!("`{command}`"), None, "its own answer");
        match client {
            Client::Npm => {
                if Place::parse(text).is_ok() {
                    reader.complete();
                }
                reader.url(text, Ask::Npm(None), origin);
            }
            Client::Pip => match pip::default_of(text) {
                Some(url) => {
                    reader.complete();
                    reader.url(url, Ask::Simple, origin);
                }
                None => reader.note(origin, "it does not name its index"),
            },
            Client::Go => go::answer(&mut reader, text, &origin),
            Client::Uv | Client::Cargo | Client::Apt | Client::Maven | Client::Docker | Client::Podman => {}
        }
    }
}
