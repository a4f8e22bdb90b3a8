//! Proxies that let through what egret would not.

use std::process::Command;

use crate::fake::{self, Does, FAKE};
use crate::lab::{self, Lab, Run};
use crate::leaks::ABSENT;
use crate::support::egret::BINARY;

/// egret's listener, which is there too.
const LISTENER: [&str; 2] = ["--listener", lab::PROXY];

/// The probe with the fake as its proxy.
fn probe(lab: &Lab) -> Run {
    lab.probe(&[("http_proxy", FAKE), ("https_proxy", FAKE)], &LISTENER)
}

#[test]
fn one_that_hands_everything_on_is_as_good() {
    lab::with("proxies::one_that_hands_everything_on_is_as_good", |lab| {
        fake::start(|_line| Does::HandsOn);
        probe(&lab).must_pass(&ABSENT);
    });
}

#[test]
fn one_spelling_of_the_metadata_service() {
    lab::with("proxies::one_spelling_of_the_metadata_service", |lab| {
        fake::start(|line| match line.contains("://0xa9fea9fe/") {
            true => Does::Fetches("169.254.169.254:80"),
            false => Does::HandsOn,
        });
        probe(&lab).must_fail(&["metadata-proxy 0xa9fea9fe"]);
    });
}

#[test]
fn a_failure_in_place_of_a_refusal() {
    lab::with("proxies::a_failure_in_place_of_a_refusal", |lab| {
        fake::start(|line| match line {
            line if line.contains("[fd00:ec2::254]:443") => Does::Answers(""),
            line if line.contains("metadata.goog:80") => Does::Answers("HTTP/1.1 502 Bad Gateway\r\n\r\n"),
            line if line.contains("//metadata.packet.net/") => {
                Does::Answers("HTTP/1.1 403 Forbidden\r\n\r\n")
            }
            _ => Does::HandsOn,
        });
        probe(&lab).must_fail(&[
            "metadata-proxy [fd00:ec2::254]",
            "metadata-proxy metadata.goog",
            "metadata-proxy metadata.packet.net",
        ]);
    });
}

#[test]
fn any_server_name() {
    lab::with("proxies::any_server_name", |lab| {
        fake::start(|line| match line.starts_with("CONNECT allowed.test:443 ") {
            true => Does::Tunnels("93.184.216.34:443"),
            false => Does::HandsOn,
        });
        probe(&lab).must_fail(&["sni allowed.test:443 as egret-probe.invalid"]);
    });
}

#[test]
fn redirects() {
    lab::with("proxies::redirects", |lab| {
        fake::start(|line| match line.contains("/redirect ") {
            true => Does::Fetches("93.184.216.34:80"),
            false => Does::HandsOn,
        });
        probe(&lab).must_fail(&["redirect http://allowed.test/redirect"]);
    });
}

#[test]
fn what_is_refused() {
    lab::with("proxies::what_is_refused", |lab| {
        fake::start(|line| match line {
            line if line.starts_with("CONNECT denied.test:80 ") => Does::Tunnels("93.184.216.34:80"),
            line if line.contains(" 10.88.0.5:5432 ") => Does::Tunnels("10.88.0.5:5432"),
            line if line.contains(" localhost:3129 ") => Does::Tunnels("127.0.0.1:3129"),
            _ => Does::HandsOn,
        });
        probe(&lab).must_fail(&[
            "refused denied.test:80",
            "neighbour 10.88.0.5:5432",
            "control localhost:3129",
        ]);
    });
}

#[test]
fn what_is_allowed() {
    lab::with("proxies::what_is_allowed", |lab| {
        fake::start(|line| match line.contains("http://allowed.test/ ") {
            true => Does::Answers("HTTP/1.1 502 Bad Gateway\r\n\r\n"),
            false => Does::HandsOn,
        });
        probe(&lab).must_fail(&["allowed http://allowed.test/"]);
    });
}

#[test]
fn everything() {
    lab::with("proxies::everything", |lab| {
        fake::start(|_line| Does::Answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
        let run = probe(&lab);
        assert_eq!(run.code, 1);
        assert!(run.check("proxy", "10.77.0.1:3140")["detail"].as_str().unwrap().contains("not egret"));
        for check in run.checks.iter().filter(|check| check["check"] == "metadata-proxy") {
            assert_eq!(check["verdict"], "fail", "{check}");
        }
        assert_eq!(run.check("refused", "denied.test:80")["verdict"], "fail");
        assert_eq!(run.check("redirect", "http://allowed.test/redirect")["verdict"], "fail");
    });
}

#[test]
fn one_that_wants_a_token() {
    lab::with("proxies::one_that_wants_a_token", |mut lab| {
        let egret = |arguments: &[&str]| {
            let output = Command::new(BINARY).args(arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        egret(&["token", "keygen", "--out", &lab.path("token")]);
        let policy = lab::POLICY.replace("policy = \"box\"", "policy = \"box\"\nauth = \"token\"");
        let keys = format!("[identity]\ntoken_keys = [{:?}]\n\n{policy}", lab.path("token.pub"));
        lab.start(lab.egret_with(&keys));
        let run = lab.probe(&[], &[]);
        assert!(run.check("proxy", lab::PROXY)["detail"].as_str().unwrap().contains("407"), "{}", run.text);
        assert_eq!(run.check("metadata-proxy", "169.254.169.254")["verdict"], "unsupported");
        let (key, sandbox) = (lab.path("token.key"), "box");
        let url = egret(&[
            "token",
            "mint",
            "--key",
            &key,
            "--sandbox",
            sandbox,
            "--policy",
            "box",
            "--url",
            lab::PROXY,
        ]);
        lab.probe(&[("http_proxy", &url), ("https_proxy", &url)], &[]).must_pass(&ABSENT);
    });
}

#[test]
fn none() {
    lab::with("proxies::none", |lab| {
        let run = lab.bare(&[], &[&LISTENER[..], &["--no-defaults"]].concat());
        run.must_fail(&["environment http_proxy", "environment https_proxy"]);
        assert_eq!(run.check("metadata-proxy", "169.254.169.254")["verdict"], "unsupported");
        // One that is down shows nothing else.
        let run = lab.bare(&[], &[&LISTENER[..], &["--no-defaults", "--proxy", FAKE]].concat());
        run.must_fail(&["proxy 10.77.0.1:3140"]);
    });
}
