//! Keys, tokens and configurations that these tests share.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::egret::{BINARY, Egret};
use crate::support::http1::Response;
use crate::support::origin::Origin;

/// The name of the origin.
pub const NAME: &str = "origin.test";

/// Runs a command of the binary.
pub fn egret(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().expect("the binary runs")
}

/// What a successful command printed, without the line end.
pub fn printed(arguments: &[&str]) -> String {
    let output = egret(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// A pair of keys in a folder of its own.
pub struct Keys {
    dir: TempDir,
}

impl Keys {
    pub fn new() -> Self {
        let keys = Self { dir: TempDir::with_prefix("egret-keys-").unwrap() };
        printed(&["token", "keygen", "--out", &keys.path("token")]);
        keys
    }

    pub fn path(&self, name: &str) -> String {
        let path: PathBuf = self.dir.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    pub fn private(&self) -> String {
        self.path("token.key")
    }

    pub fn public(&self) -> String {
        self.path("token.pub")
    }

    /// A token of sandbox `box` under policy `main`, and its ID.
    pub fn mint(&self, more: &[&str]) -> (String, String) {
        self.mint_for("box", more)
    }

    pub fn mint_for(&self, sandbox: &str, more: &[&str]) -> (String, String) {
        let key = self.private();
        let mut arguments = vec!["token", "mint", "--json", "--key", &key, "--sandbox", sandbox];
        if !more.contains(&"--policy") {
            arguments.extend(["--policy", "main"]);
        }
        arguments.extend(more);
        let minted: Value = serde_json::from_str(&printed(&arguments)).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&minted["token"]), text(&minted["claims"]["jti"]))
    }
}

/// 127.0.0.1 is a sandbox that may reach nothing, the rest of the loopback must send a token, and
/// the policy `main` allows the origin.
pub fn config(origin: &Origin, keys: &[&Keys]) -> String {
    let files: Vec<String> = keys.iter().map(|keys| format!("{:?}", keys.public())).collect();
    format!(
        "[dns]\nservers = [\"127.0.0.1:9\"]\nhosts = {{ \"{NAME}\" = [\"127.0.0.1\"] }}\n\n\
         [identity]\ntoken_keys = [{}]\n\n\
         [[sandbox]]\nid = \"by-source\"\nsource = [\"127.0.0.1\"]\npolicy = \"none\"\n\n\
         [[sandbox]]\nid = \"by-token\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"none\"\nauth = \"token\"\n\n\
         [policy.none]\n\n\
         [[policy.main.allow]]\ndomains = [\"{NAME}\"]\naddresses = [\"127.0.0.1/32\"]\nports = [{}]\n",
        files.join(", "),
        origin.port(),
    )
}

/// Egret with these keys in front of this origin.
pub fn serving(origin: &Origin, keys: &[&Keys]) -> Egret {
    Egret::with(config(origin, keys)).start()
}

/// An origin that answers every request.
pub fn answering() -> Origin {
    Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
}

/// `Proxy-Authorization` with user and token.
pub fn basic(user: &str, token: &str) -> String {
    format!("Proxy-Authorization: Basic {}\r\n", base64(format!("{user}:{token}").as_bytes()))
}

pub fn bearer(token: &str) -> String {
    format!("Proxy-Authorization: Bearer {token}\r\n")
}

/// A request for the origin with these further field lines.
pub fn get(origin: &Origin, fields: &str) -> String {
    let authority = format!("{NAME}:{}", origin.port());
    format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n")
}

pub fn connect(origin: &Origin, fields: &str) -> String {
    let authority = format!("{NAME}:{}", origin.port());
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n")
}

/// One request on a connection of its own, from this address.
pub fn ask(egret: &Egret, source: &str, request: &str) -> Response {
    let mut client = Client::connect_from(source, egret.proxy);
    client.send(request);
    client.final_response(request.split(' ').next().unwrap())
}

/// An open tunnel.
pub fn tunnel(egret: &Egret, origin: &Origin, fields: &str) -> Client {
    let mut client = Client::connect(egret.proxy);
    client.send(connect(origin, fields));
    let answer = client.response("CONNECT");
    assert_eq!(answer.status, 200, "{answer:?}");
    client
}

pub fn reason(answer: &Response) -> (u16, &str) {
    (answer.status, answer.get("x-egret-reason").unwrap_or_default())
}

pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}
