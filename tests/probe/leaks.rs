//! Ways past egret, each opened alone.

use crate::fake;
use crate::lab::{self, NEIGHBOUR};

/// What can't be told here: metadata services of other clouds, which are not outside either, and who is in
/// an IPv6 subnet.
pub const ABSENT: [&str; 7] = [
    "metadata tcp:169.254.170.2:80",
    "metadata tcp:169.254.170.23:80",
    "metadata tcp:100.100.100.200:80",
    "metadata tcp:168.63.129.16:80",
    "metadata tcp:[fd00:ec2::254]:80",
    "metadata tcp:[fd20:ce::254]:80",
    "neighbour fd77::/64",
];

#[test]
fn a_closed_sandbox_passes() {
    lab::with("leaks::a_closed_sandbox_passes", |lab| {
        let run = lab.probe(&[], &[]);
        run.must_pass(&ABSENT);
        let restricted = run.last["restricted"].as_u64().unwrap();
        let counted = run.checks.iter().filter(|check| check["verdict"] == "pass").count();
        assert_eq!(restricted, counted as u64);
        let baseline = run.last["baseline"].as_u64().unwrap();
        assert!(baseline >= 20 && baseline < restricted, "{}", run.text);
        assert_eq!(run.check("direct", "dns:8.8.8.8:53")["kind"], "timed_out");
        assert_eq!(run.check("redirect", "http://allowed.test/redirect")["detail"], "403 redirect_denied");
        assert_eq!(run.check("refused", "denied.test:80")["detail"], "403 domain_denied");
    });
}

#[test]
fn without_a_baseline_silence_of_datagrams_shows_nothing() {
    lab::with("leaks::without_a_baseline_silence_of_datagrams_shows_nothing", |lab| {
        let proxy = format!("http://{}", lab::PROXY);
        let run =
            lab.bare(&[("http_proxy", &proxy), ("https_proxy", &proxy)], &["--allowed", "allowed.test:443"]);
        assert_eq!((run.code, &run.last["baseline"]), (0, &0.into()), "{}", run.text);
        assert!(run.last["notes"].to_string().contains("there was no baseline"), "{}", run.text);
        for subject in ["dns:1.1.1.1:53", "udp:1.1.1.1:443", "icmp:8.8.8.8"] {
            assert_eq!(run.check("direct", subject)["verdict"], "unsupported", "{}", run.text);
        }
        assert_eq!(run.check("direct", "tcp:1.1.1.1:443")["verdict"], "pass");
        assert_eq!(run.check("redirect", "-")["verdict"], "unsupported");
    });
}

/// One test for each rule that leaks: the chain, the rule, the check that must fail.
macro_rules! leaks {
    ($($name:ident: $chain:literal, $rule:literal => $check:literal;)+) => {
        $(#[test]
        fn $name() {
            lab::with(concat!("leaks::", stringify!($name)), |lab| {
                lab.leak($chain, $rule);
                lab.probe(&[], &[]).must_fail(&[$check]);
            });
        })+
    };
}

leaks! {
    tcp: "forward", "ip daddr 1.1.1.1 tcp dport 443" => "direct tcp:1.1.1.1:443";
    dns_over_tls: "forward", "ip daddr 9.9.9.9 tcp dport 853" => "direct tcp:9.9.9.9:853";
    dns: "forward", "ip daddr 9.9.9.9 udp dport 53" => "direct dns:9.9.9.9:53";
    quic: "forward", "ip daddr 1.1.1.1 udp dport 443" => "direct udp:1.1.1.1:443";
    icmp: "forward", "ip daddr 8.8.8.8 ip protocol icmp" => "direct icmp:8.8.8.8";
    icmpv6: "forward", "meta l4proto icmpv6" => "direct icmp:2606:4700:4700::1111";
    tcp_v6: "forward", "ip6 daddr 2620:fe::fe tcp dport 853" => "direct tcp:[2620:fe::fe]:853";
    udp_v6: "forward", "ip6 daddr 2001:4860:4860::8888 udp dport 53" => "direct dns:[2001:4860:4860::8888]:53";
    metadata: "forward", "ip daddr 169.254.169.254" => "metadata tcp:169.254.169.254:80";
    neighbour: "forward", "ip daddr 10.88.0.5 tcp dport 5432" => "neighbour tcp:10.88.0.5:5432";
    resolver: "forward", "ip daddr 8.8.4.4 udp dport 53" => "resolver example.com";
    gateway_that_refuses: "input", "ip6 daddr fd77::1 tcp dport 22" => "gateway fd77::1";
}

#[test]
fn a_site_s_own_list() {
    lab::with("leaks::a_site_s_own_list", |lab| {
        let list = format!(
            "[[target]]\ntarget = \"tcp:{NEIGHBOUR}\"\nexpect = \"blocked\"\n\
             [[target]]\ntarget = \"udp:8.8.4.4:443\"\nexpect = \"blocked\"\n\
             [[target]]\ntarget = \"http://allowed.test/x\"\nexpect = \"allowed\"\n\
             [[target]]\ntarget = \"http://denied.test/\"\nexpect = \"allowed\"\n\
             [[target]]\ntarget = \"denied.test:443\"\nexpect = \"refused\"\nreason = \"domain_denied\"\n\
             [[target]]\ntarget = \"unknown.test:443\"\nexpect = \"refused\"\nreason = \"domain_denied\"\n"
        );
        let file = lab.file("site.toml", &list);
        lab.leak("forward", "ip daddr 8.8.4.4 udp dport 443");
        let baseline = lab.baseline(&["--no-defaults", "--expect", &file]);
        let proxy = format!("http://{}", lab::PROXY);
        let arguments = ["--no-defaults", "--expect", &file, "--baseline", &baseline, "--proxy", &proxy];
        let run = lab.bare(&[], &arguments);
        run.must_fail(&[
            "expected udp:8.8.4.4:443",
            "expected http://denied.test/",
            "expected unknown.test:443",
        ]);
        assert_eq!(run.check("expected", &format!("tcp:{NEIGHBOUR}"))["baseline"], true);
        assert_eq!(run.check("environment", "http_proxy")["verdict"], "unsupported", "--proxy names it");
    });
}

#[test]
fn what_a_transparent_listener_takes() {
    lab::with("leaks::what_a_transparent_listener_takes", |lab| {
        fake::take(3141, None);
        lab.redirect("ip daddr 1.1.1.1 tcp dport 443", 3141);
        let subject = "tcp:1.1.1.1:443";
        lab.probe(&[], &[]).must_fail(&["direct tcp:1.1.1.1:443"]);
        let run = lab.probe(&[], &["--transparent"]);
        run.must_pass(&ABSENT);
        assert_eq!(run.check("direct", subject)["detail"], "taken, and closed without an octet");
        assert_eq!(run.check("direct", subject)["baseline"], true);
    });
}

#[test]
fn a_transparent_listener_that_hands_everything_on() {
    lab::with("leaks::a_transparent_listener_that_hands_everything_on", |lab| {
        fake::take(3141, Some("1.1.1.1:443"));
        lab.redirect("ip daddr 1.1.1.1 tcp dport 443", 3141);
        lab.probe(&[], &["--transparent"]).must_fail(&["direct tcp:1.1.1.1:443"]);
    });
}
