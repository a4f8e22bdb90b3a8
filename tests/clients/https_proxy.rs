//! curl through the TLS listener, with a client certificate and without.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::bench::{Bench, FILE, NO, OK, REFUSED, content, file};
use crate::support::egret::BINARY;
use crate::support::wait_for;
use crate::tool::{self, Outcome};

struct Setup {
    bench: Bench,
    curl: std::path::PathBuf,
    certs: TempDir,
}

/// A bench whose egret has a TLS listener, or nothing where curl can't use one.
fn setup() -> Option<Setup> {
    let curl = tool::find("curl")?;
    let version = Command::new(&curl).arg("--version").output().unwrap();
    if !String::from_utf8_lossy(&version.stdout).contains("HTTPS-proxy") {
        tool::missing("a curl with HTTPS-proxy");
        return None;
    }
    let certs = TempDir::with_prefix("egret-certs-").unwrap();
    cert(certs.path(), &["ca", "--out", "ca"]);
    cert(certs.path(), &["server", "--ca", "ca", "--name", "127.0.0.1", "--out", "server"]);
    cert(certs.path(), &["client", "--ca", "ca", "--sandbox", "box", "--out", "box"]);
    let path = |name: &str| certs.path().join(name);
    let lines = format!(
        "tls_certificate = {:?}\ntls_key = {:?}\ntls_client_ca = {:?}\n",
        path("server.crt"),
        path("server.key"),
        path("ca.crt")
    );
    let entry = "\n[[sandbox]]\nid = \"box\"\npolicy = \"main\"\nauth = \"cert\"\n";
    Some(Setup { bench: Bench::over_tls(&lines, entry), curl, certs })
}

fn cert(folder: &Path, arguments: &[&str]) {
    let made = Command::new(BINARY).current_dir(folder).arg("cert").args(arguments).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

impl Setup {
    /// Runs curl with this certificate, if any, which is in the folder of certificates.
    fn run(&self, pair: Option<&str>, arguments: &[&str]) -> Outcome {
        let mut command = tool::command(&self.curl, &self.bench.home());
        let proxy = format!("https://{}", self.bench.egret.tls);
        command.args(["--silent", "--show-error", "--proxy", &proxy, "--cacert"]).arg(self.bench.ca());
        command.arg("--proxy-cacert").arg(self.certs.path().join("ca.crt"));
        if let Some(name) = pair {
            let file = |ending: &str| self.certs.path().join(format!("{name}.{ending}"));
            command.arg("--proxy-cert").arg(file("crt")).arg("--proxy-key").arg(file("key"));
        }
        command.args(arguments);
        tool::run(command)
    }

    fn identities(&self) -> Vec<String> {
        let decisions = self.bench.egret.events("decision");
        decisions.iter().map(|record| record["identity"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

#[test]
fn curl_downloads_and_uploads_over_tls() {
    let Some(setup) = setup() else { return };
    let data = content(3 << 20);
    std::fs::write(setup.bench.home().join("data"), &data).unwrap();
    for (pair, identity) in [(None, "source"), (Some("box"), "cert")] {
        let before = setup.identities().len();
        for url in setup.bench.urls(OK, FILE) {
            assert!(setup.run(pair, &[&url]).success() == file(), "{url}");
        }
        for url in setup.bench.urls(OK, "/upload") {
            assert!(setup.run(pair, &["--upload-file", "data", &url]).success() == data, "{url}");
        }
        assert_eq!(setup.identities()[before..], [identity; 4].map(str::to_owned));
    }
    // Two requests over one connection.
    let url = setup.bench.http(OK, "/who");
    let count = ["--write-out", "%{num_connects}\n", "--output", "a"];
    let both = [&count[..], &[&url, "--next", "--silent"], &count[..], &[&url]].concat();
    assert_eq!(setup.run(Some("box"), &both).text(), "1\n0\n");
    setup.bench.settle();
}

#[test]
fn curl_shows_why_it_was_refused_over_tls() {
    let Some(setup) = setup() else { return };
    let body = setup.run(Some("box"), &[&setup.bench.http(NO, FILE)]).success();
    assert!(String::from_utf8_lossy(&body).contains(REFUSED));
    let tunnel = setup.run(Some("box"), &["--verbose", &setup.bench.https(NO, FILE)]);
    tunnel.fails_saying(&format!("HTTP/1.1 403 egret {REFUSED}"));
    setup.bench.refused_no(1, 1);
}

#[test]
fn curl_with_a_bad_certificate_gets_nothing() {
    let Some(setup) = setup() else { return };
    cert(setup.certs.path(), &["ca", "--out", "other", "--name", "other"]);
    cert(setup.certs.path(), &["client", "--ca", "other", "--sandbox", "box", "--out", "stranger"]);
    let refused = setup.run(Some("stranger"), &[&setup.bench.http(OK, FILE)]);
    refused.fails_saying("alert");
    // The handshake is refused first, and recorded when curl has gone already.
    let recorded = || !setup.bench.egret.events("decision").is_empty();
    wait_for("the record of the refusal", Duration::from_secs(10), recorded);
    let records = setup.bench.egret.events("decision");
    assert_eq!((records.len(), &records[0]["reason"]), (1, &"identity_rejected".into()), "{records:?}");
    assert!(setup.bench.plain.served().is_empty());
}
