//! Where the control interface of a configuration is, for commands that ask a running proxy.
//!
//! Looks at two keys and at nothing else: a candidate with faults elsewhere must not keep a health
//! check from the proxy that still runs on the old one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use egret_policy::reader::read_document;
use egret_policy::{Problems, SourceFile};

use super::files::Files;
use super::listen;

/// Where it can be asked, and with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlace {
    /// Its address, as this machine reaches it.
    pub address: SocketAddr,
    /// Its token, if it has one.
    pub token: Option<String>,
}

impl Default for ControlPlace {
    /// Where it is without a configuration file.
    fn default() -> Self {
        Self { address: SocketAddr::new(listen::LOOPBACK, 3129), token: None }
    }
}

impl ControlPlace {
    /// What `[listen]` of a configuration file says of it.
    ///
    /// # Errors
    /// The file can't be read, or `control` or `control_token_file` can't be used.
    pub fn of(path: &Path) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let text = match Files::default().read(path) {
            Ok(text) => text,
            Err(cause) => {
                problems.unplaced(format!("{} can't be read: {cause}", path.display()));
                return Err(problems);
            }
        };
        let file = SourceFile::new(&path.display().to_string(), text);
        let (mut address, mut token, mut own) = (None, None, Problems::default());
        read_document(&file, &mut problems, |mut root, elsewhere| {
            let Some(mut table) = root.table("listen", elsewhere) else { return };
            let control = table.string("control", &mut own);
            address = control.and_then(|control| listen::read_address(&control, &mut own)).map(reached);
            let file = table.string("control_token_file", &mut own);
            token = file.and_then(|file| listen::read_token(&file, &mut own));
        });
        match address {
            _ if own.any_error() => Err(own),
            // What is no TOML may hide the very key.
            None if problems.any_error() => Err(problems),
            address => Ok(Self { address: address.unwrap_or(Self::default().address), token }),
        }
    }
}

/// A listener on every address is reached over loopback.
fn reached(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Result<ControlPlace, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "0123456789abcdef\n").unwrap();
        let path = dir.path().join("egret.toml");
        std::fs::write(&path, text.replace("HERE", dir.path().to_str().unwrap())).unwrap();
        ControlPlace::of(&path).map_err(|problems| crate::diagnostics::render(&problems, false))
    }

    #[test]
    fn faults_elsewhere_do_not_matter() {
        let text = "[listen]\ncontrol = \"0.0.0.0:4000\"\nproxy = [\"nowhere\"]\nodd = 1\n\
                    control_token_file = \"HERE/token\"\n[policy.p]\nmode = \"bogus\"\nrules = [\"none\"]\n";
        let place = place(text).unwrap();
        assert_eq!(place.address, "127.0.0.1:4000".parse().unwrap());
        assert_eq!(place.token.as_deref(), Some("0123456789abcdef"));
    }

    #[test]
    fn what_is_no_toml_matters_where_it_may_hide_the_key() {
        let place = place("[listen]\ncontrol = \"127.0.0.1:4000\"\n[policy.p]\nmode = = 1\n").unwrap();
        assert_eq!(place.address, "127.0.0.1:4000".parse().unwrap());
    }

    #[test]
    fn without_the_keys_it_is_where_it_is_without_a_file() {
        assert_eq!(place("[policy.p]\n"), Ok(ControlPlace::default()));
        assert_eq!(place("[listen]\n"), Ok(ControlPlace::default()));
        assert_eq!(place("[listen]\ncontrol = \"[::]:1\"\n").unwrap().address, "[::1]:1".parse().unwrap());
    }

    #[test]
    fn faults_of_the_keys_themselves_are_told() {
        for (text, said) in [
            ("[listen]\ncontrol = \"localhost\"\n", "`localhost` is not an address and port"),
            ("[listen]\ncontrol_token_file = \"HERE/absent\"\n", "absent can't be read"),
            ("listen = 1\n", "`listen`"),
            ("[listen\ncontrol = \"127.0.0.1:4000\"\n[policy\n", "egret.toml:"),
        ] {
            let told = place(text).unwrap_err();
            assert!(told.contains(said), "{text}: {told}");
        }
    }
}
