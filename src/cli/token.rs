//! `egret token`: makes keys and tokens, looks at tokens, revokes them.
//!
//! Only these commands touch a private key; the running proxy knows public ones.

mod inspect;
mod keygen;
mod mint;
mod revoke;

use std::io::Read;

use clap::{Args, Subcommand};

use super::files::{Failure, finish, read_file, read_made};
use super::{BAD_INPUT, FAILED, OK, ask};

#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a pair of keys: one to sign tokens with, one for `token_keys`
    Keygen(keygen::KeygenArgs),
    /// Make a token for a sandbox
    Mint(mint::MintArgs),
    /// Show what a token claims, and whether it verifies
    Inspect(inspect::InspectArgs),
    /// Revoke a token, or every token of a sandbox, at a running proxy
    Revoke(revoke::RevokeArgs),
}

impl TokenArgs {
    pub(super) fn run(self) -> u8 {
        match self.command {
            TokenCommand::Keygen(args) => args.run(),
            TokenCommand::Mint(args) => args.run(),
            TokenCommand::Inspect(args) => args.run(),
            TokenCommand::Revoke(args) => args.run(),
        }
    }
}

/// A token as the command line names it: itself, `-` for standard input, or a proxy URL with it.
fn read_token(given: &str) -> Result<String, Failure> {
    let mut text = given.to_owned();
    if given == "-" {
        text.clear();
        let read = std::io::stdin().take(1 << 16).read_to_string(&mut text);
        read.map_err(|error| (format!("standard input can't be read: {error}"), FAILED))?;
    }
    let text = text.trim();
    let of_url = text.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    let token = of_url.and_then(|(userinfo, _)| userinfo.split_once(':')).map_or(text, |(_, token)| token);
    Ok(token.to_owned())
}
