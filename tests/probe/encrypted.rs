//! Proxies that are spoken to in TLS: egret's own listener, and what goes wrong with one.

use std::process::Command;

use crate::lab::{self, Lab, Run};
use crate::leaks::ABSENT;
use crate::support::egret::BINARY;

/// Where it is: the sandbox may go there.
const TLS: &str = "10.77.0.1:3140";
const URL: &str = "https://10.77.0.1:3140";
/// The listener in clear, which is there too.
const LISTENER: [&str; 2] = ["--listener", lab::PROXY];

/// Starts an egret that listens for TLS too, with a certificate for this name.
fn start(lab: &mut Lab, name: &str, policy: &str) {
    cert(lab, &["ca", "--out", "ca"]);
    cert(lab, &["server", "--ca", "ca", "--name", name, "--out", "server"]);
    let lines = format!(
        "tls = {TLS:?}\ntls_certificate = {:?}\ntls_key = {:?}\ntls_client_ca = {:?}\n",
        lab.path("server.crt"),
        lab.path("server.key"),
        lab.path("ca.crt")
    );
    lab.start(lab.egret_with(policy).listen_lines(&lines));
}

fn cert(lab: &Lab, arguments: &[&str]) {
    let output = Command::new(BINARY).arg("cert").args(arguments).current_dir(lab.path("")).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn probe(lab: &Lab, environment: &[(&str, &str)], arguments: &[&str]) -> Run {
    let standing = [("http_proxy", URL), ("https_proxy", URL)];
    lab.probe(&[&standing, environment].concat(), &[&LISTENER, arguments].concat())
}

/// The probe that must find nothing wrong but the proxy, and this about it; nothing that would have
/// been asked of the proxy passes.
fn must_fail_to_speak(run: &Run, subject: &str, said: &str) {
    let check = run.check("proxy", subject);
    assert_eq!((&check["verdict"], &check["kind"]), (&"fail".into(), &"handshake".into()), "{check}");
    assert!(check["detail"].as_str().unwrap().contains(said), "{check}");
    must_not_ask(run);
    run.must_fail(&[&format!("proxy {subject}")]);
}

fn must_not_ask(run: &Run) {
    for (group, subject) in [
        ("metadata-proxy", "169.254.169.254"),
        ("gateway", "10.77.0.1:80"),
        ("neighbour", "10.88.0.5:5432"),
        ("control", "-"),
        ("allowed", "allowed.test:443"),
        ("refused", "denied.test:80"),
        ("redirect", "http://allowed.test/redirect"),
        ("sni", "allowed.test:443 as egret-probe.invalid"),
    ] {
        assert_eq!(run.check(group, subject)["verdict"], "unsupported", "{group} {subject}: {}", run.text);
    }
}

#[test]
fn a_listener_for_tls_is_as_good() {
    lab::with("encrypted::a_listener_for_tls_is_as_good", |mut lab| {
        start(&mut lab, "10.77.0.1", lab::POLICY);
        let ca = lab.path("ca.crt");
        let run = probe(&lab, &[], &["--ca", &ca]);
        run.must_pass(&ABSENT);
        assert_eq!(run.check("redirect", "http://allowed.test/redirect")["detail"], "403 redirect_denied");
        assert_eq!(run.check("sni", "allowed.test:443 as egret-probe.invalid")["baseline"], true);
        // The system's own authorities do as well, if it is one of them.
        probe(&lab, &[("SSL_CERT_FILE", &ca)], &[]).must_pass(&ABSENT);
    });
}

#[test]
fn what_is_wrong_behind_tls_is_found() {
    lab::with("encrypted::what_is_wrong_behind_tls_is_found", |mut lab| {
        let policy = lab::POLICY.replace("[\"denied.test\"]", "[\"elsewhere.test\"]");
        let policy = policy.replace("[\"allowed.test\"]", "[\"allowed.test\", \"denied.test\"]");
        let hosts = "\"denied.test\" = [\"93.184.216.34\"]\n";
        start(&mut lab, "10.77.0.1", &format!("{policy}{hosts}"));
        let run = probe(&lab, &[], &["--ca", &lab.path("ca.crt")]);
        run.must_fail(&["refused denied.test:80", "redirect http://allowed.test/redirect"]);
    });
}

#[test]
fn one_that_can_not_be_believed() {
    lab::with("encrypted::one_that_can_not_be_believed", |mut lab| {
        start(&mut lab, "proxy.test", lab::POLICY);
        cert(&lab, &["ca", "--out", "other"]);
        let run = probe(&lab, &[], &["--ca", &lab.path("other.crt")]);
        must_fail_to_speak(&run, TLS, "name the authority that it comes from with --ca");
        let run = probe(&lab, &[], &["--ca", &lab.path("ca.crt")]);
        must_fail_to_speak(&run, TLS, "not valid for");
    });
}

#[test]
fn one_that_speaks_no_tls() {
    lab::with("encrypted::one_that_speaks_no_tls", |mut lab| {
        start(&mut lab, "10.77.0.1", lab::POLICY);
        let url = format!("https://{}", lab::PROXY);
        let set = [("http_proxy", url.as_str()), ("https_proxy", &url)];
        let run = probe(&lab, &set, &["--ca", &lab.path("ca.crt")]);
        must_fail_to_speak(&run, lab::PROXY, "write http:// for it");
    });
}

#[test]
fn one_that_nobody_here_can_judge() {
    lab::with("encrypted::one_that_nobody_here_can_judge", |mut lab| {
        start(&mut lab, "10.77.0.1", lab::POLICY);
        let none = lab.path("none");
        let run = probe(&lab, &[("SSL_CERT_FILE", &none)], &[]);
        let check = run.check("proxy", TLS);
        assert_eq!(check["verdict"], "unsupported", "{check}");
        assert!(check["detail"].as_str().unwrap().contains("name them with --ca"), "{check}");
        must_not_ask(&run);
    });
}

#[test]
fn one_that_wants_a_certificate() {
    lab::with("encrypted::one_that_wants_a_certificate", |mut lab| {
        let policy = lab::POLICY.replace("policy = \"box\"\n", "policy = \"box\"\nauth = \"cert\"\n");
        start(&mut lab, "10.77.0.1", &policy);
        let ca = lab.path("ca.crt");
        let run = probe(&lab, &[], &["--ca", &ca]);
        assert!(run.check("proxy", TLS)["detail"].as_str().unwrap().contains("identity_"), "{}", run.text);
        assert_eq!(run.check("proxy", TLS)["verdict"], "fail");
        cert(&lab, &["client", "--ca", "ca", "--sandbox", "box", "--out", "box"]);
        let (own, key) = (lab.path("box.crt"), lab.path("box.key"));
        probe(&lab, &[], &["--ca", &ca, "--cert", &own, "--key", &key]).must_pass(&ABSENT);

        // Of an authority that egret does not believe: the handshake is what fails, after our part of it.
        cert(&lab, &["ca", "--out", "other"]);
        cert(&lab, &["client", "--ca", "other", "--sandbox", "box", "--out", "wrong"]);
        let (wrong, key) = (lab.path("wrong.crt"), lab.path("wrong.key"));
        let run = probe(&lab, &[], &["--ca", &ca, "--cert", &wrong, "--key", &key]);
        run.must_fail(&["proxy 10.77.0.1:3140"]);
        must_not_ask(&run);
    });
}
