//! What surrounds the sandbox: egret's machine, the environment, sockets of engines.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::thread;

use crate::lab::{self, MIDDLE, run_file};

#[test]
fn a_control_interface_that_can_be_reached() {
    lab::with("surroundings::a_control_interface_that_can_be_reached", |mut lab| {
        let control = format!("{MIDDLE}:3129").parse().unwrap();
        lab.start(
            lab.egret()
                .listen(&[lab::PROXY.parse().unwrap()], control)
                .control_token("0123456789abcdef0123456789abcdef"),
        );
        lab.leak("input", "ip daddr 10.77.0.1 tcp dport 3129");
        // The machine is the gateway too, and so has something open that is not the proxy.
        lab.probe(&[], &[]).must_fail(&["control tcp:10.77.0.1:3129", "gateway 10.77.0.1"]);
        lab.probe(&[], &["--listener", "10.77.0.1:3129"]).must_fail(&["control tcp:10.77.0.1:3129"]);
    });
}

#[test]
fn a_gateway_with_something_open() {
    lab::with("surroundings::a_gateway_with_something_open", |lab| {
        let _open = TcpListener::bind((MIDDLE, 8080)).unwrap();
        // Refusals are what the machine of the proxy may answer with.
        lab.leak("input", "ip daddr 10.77.0.1 tcp dport 22");
        lab.probe(&[], &[]).must_pass(&crate::leaks::ABSENT);
        lab.leak("input", "ip daddr 10.77.0.1 tcp dport 8080");
        lab.probe(&[], &[]).must_fail(&["gateway 10.77.0.1"]);
    });
}

#[test]
fn a_neighbour_on_the_link() {
    lab::with("surroundings::a_neighbour_on_the_link", |lab| {
        lab.add_neighbour("10.78.0.9");
        lab.probe(&[], &[]).must_fail(&["neighbour 10.78.0.9"]);
        lab.probe(&[], &["--may-refuse", "10.78.0.9"]).must_pass(&crate::leaks::ABSENT);
    });
}

#[test]
fn an_ipv6_subnet_is_not_looked_through_unless_a_host_in_it_is_named() {
    lab::with("surroundings::an_ipv6_subnet_is_not_looked_through_unless_a_host_in_it_is_named", |lab| {
        let subnet = "neighbour fd77::/64";
        assert!(lab.probe(&[], &[]).with("unsupported").contains(subnet));
        let named = lab.probe(&[], &["--neighbour", "[fd77::9]:22"]);
        assert!(!named.with("unsupported").contains(subnet), "{}", named.text);
        named.check("neighbour", "tcp:[fd77::9]:22");
    });
}

#[test]
fn variables_that_lead_around_the_proxy() {
    lab::with("surroundings::variables_that_lead_around_the_proxy", |lab| {
        lab.probe(&[("NO_PROXY", "*")], &[]).must_fail(&["environment no_proxy"]);
        lab.probe(&[("no_proxy", "localhost,.test")], &[]).must_fail(&["environment no_proxy"]);
        let elsewhere = [("HTTP_PROXY", "http://10.77.0.9:3128")];
        lab.probe(&elsewhere, &[]).must_fail(&["environment http_proxy"]);
        lab.probe(&[("no_proxy", "localhost,127.0.0.1,10.77.0.1")], &[]).must_pass(&crate::leaks::ABSENT);
    });
}

#[test]
fn a_socket_of_an_engine() {
    lab::with("surroundings::a_socket_of_an_engine", |lab| {
        let usual = UnixListener::bind(run_file("docker.sock")).unwrap();
        lab.probe(&[], &[]).must_fail(&["engine-socket /run/docker.sock"]);
        drop(usual);
        std::fs::remove_file(run_file("docker.sock")).unwrap();

        // Under another name it is known by what it answers.
        let renamed = UnixListener::bind(run_file("plain")).unwrap();
        thread::spawn(move || {
            for mut stream in renamed.incoming().flatten() {
                let _ = stream.read(&mut [0; 512]);
                let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\n\r\nOK");
            }
        });
        std::fs::write(run_file("mounted"), "").unwrap();
        lab.shell("mount --bind /run/plain /run/mounted");
        lab.probe(&[], &[]).must_fail(&["engine-socket /run/mounted"]);
        lab.shell("umount /run/mounted");

        lab.probe(&[("DOCKER_HOST", "tcp://10.77.0.9:2375")], &[]).must_fail(&["engine-socket DOCKER_HOST"]);
    });
}
