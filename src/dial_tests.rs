#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr
)]

use std::process::Command;

use proptest::prelude::*;
use tokio::net::TcpListener;

use super::*;

/// Nobody listens there: the listeners of these tests are on 127.0.0.1.
const CLOSED: [&str; 3] = ["127.0.0.9:9", "127.0.0.10:9", "127.0.0.11:9"];

fn dialer(connect_timeout: u64) -> Dialer {
    let connect_timeout = Duration::from_millis(connect_timeout);
    Dialer::new(DialSettings { connect_timeout, ..DialSettings::default() })
}

fn addrs(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// A listener with a full backlog: further connects get no answer. The parts keep it so.
struct Silent {
    addr: SocketAddr,
    _listener: Socket,
    _queued: Vec<Socket>,
}

fn silent() -> Silent {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let addr = listener.local_addr().unwrap();
    let queued = (0..4).map(|_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&addr);
        socket
    });
    let queued = queued.collect();
    Silent { addr: addr.as_socket().unwrap(), _listener: listener, _queued: queued }
}

#[tokio::test]
async fn connects_with_the_socket_options() {
    let (_listener, addr) = listener().await;
    let connected = dialer(5000).race(&[addr]).await.unwrap();
    assert_eq!(connected.peer, addr);
    assert!(connected.failed.is_empty());
    assert!(connected.stream.nodelay().unwrap());
    let socket = SockRef::from(&connected.stream);
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
}

#[tokio::test]
async fn refused_addresses_are_passed_over_and_listed() {
    let (_listener, addr) = listener().await;
    let candidates = [addrs(&CLOSED), vec![addr]].concat();
    let connected = dialer(5000).race(&candidates).await.unwrap();
    assert_eq!(connected.peer, addr);
    let failed: Vec<SocketAddr> = connected.failed.iter().map(|attempt| attempt.addr).collect();
    assert_eq!(failed, addrs(&CLOSED));
    assert!(connected.failed.iter().all(|attempt| attempt.cause == DialCause::Refused));
}

#[tokio::test]
async fn silent_addresses_do_not_hold_up_the_next() {
    let (one, two) = (silent(), silent());
    let (_listener, addr) = listener().await;
    let start = Instant::now();
    let connected = dialer(20_000).race(&[one.addr, two.addr, addr]).await.unwrap();
    assert_eq!(connected.peer, addr);
    assert!(connected.failed.is_empty(), "{:?}", connected.failed);
    // Two staggers passed, and not the system's own limit of minutes.
    assert!(start.elapsed() >= Duration::from_millis(500) && start.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn no_address_at_all_is_an_error() {
    let error = dialer(5000).race(&[]).await.unwrap_err();
    assert_eq!(error.cause, DialCause::Other);
    assert!(error.attempts.is_empty());
    assert_eq!(error.to_string(), "connect failed: no address to connect to");
}

#[tokio::test]
async fn all_refused() {
    let error = dialer(5000).race(&addrs(&CLOSED)).await.unwrap_err();
    assert_eq!(error.cause, DialCause::Refused);
    assert_eq!(error.attempts.len(), 3);
    assert!(error.to_string().starts_with("connect failed: 127.0.0.9:9 Connection refused"), "{error}");
}

#[tokio::test]
async fn all_silent_ends_at_the_limit() {
    let quiet = silent();
    let error = dialer(400).race(&[quiet.addr]).await.unwrap_err();
    assert_eq!(error.cause, DialCause::Timeout);
    assert_eq!(error.to_string(), format!("connect failed: {} timed out", quiet.addr));
    let mixed = [quiet.addr, addrs(&CLOSED)[0]];
    let error = dialer(400).race(&mixed).await.unwrap_err();
    assert_eq!(error.cause, DialCause::Refused);
    assert_eq!(error.attempts.len(), 2);
}

#[tokio::test]
async fn at_most_so_many_addresses() {
    let many: Vec<SocketAddr> = (1..=200).map(|n| SocketAddr::from(([127, 1, 0, n], 9))).collect();
    let error = dialer(5000).race(&many).await.unwrap_err();
    let tried: Vec<SocketAddr> = error.attempts.iter().map(|attempt| attempt.addr).collect();
    assert_eq!(tried, many[..8]);
}

#[tokio::test]
async fn dropping_the_connect_ends_its_attempts() {
    // The attempt's socket lives in a task; when that is gone, the runtime has none left.
    let quiet = silent();
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let dialer = dialer(20_000);
    let candidates = [quiet.addr];
    let connect = dialer.race(&candidates);
    assert!(timeout(Duration::from_millis(300), connect).await.is_err());
    for _ in 0..100 {
        if tokio::runtime::Handle::current().metrics().num_alive_tasks() == before {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("an attempt is still running");
}

#[test]
fn families_alternate_ipv6_first() {
    let given = addrs(&[
        "192.0.2.1:1",
        "192.0.2.2:1",
        "192.0.2.1:1",
        "192.0.2.3:1",
        "[2001:db8::1]:1",
        "[2001:db8::2]:1",
    ]);
    let order = interleave(&given, 8);
    assert_eq!(
        order,
        addrs(&["[2001:db8::1]:1", "192.0.2.1:1", "[2001:db8::2]:1", "192.0.2.2:1", "192.0.2.3:1"])
    );
}

proptest! {
    #[test]
    fn interleaving_loses_and_invents_nothing(
        ips in prop::collection::vec(any::<IpAddr>(), 0..40),
        most in 1usize..50,
    ) {
        let given: Vec<SocketAddr> = ips.iter().map(|ip| SocketAddr::new(*ip, 443)).collect();
        let order: Vec<SocketAddr> = interleave(&given, most).into();
        let mut distinct = given.clone();
        distinct.sort();
        distinct.dedup();
        prop_assert_eq!(order.len(), distinct.len().min(most));
        prop_assert!(order.iter().all(|addr| given.contains(addr)));
        prop_assert!(order.first().is_none_or(|first| first.is_ipv6() == given.iter().any(SocketAddr::is_ipv6)));
    }
}

#[test]
fn system_errors_have_their_causes() {
    let (v4, v6) = (addrs(&["192.0.2.1:1"])[0], addrs(&["[2001:db8::1]:1"])[0]);
    for (number, cause) in [
        (111, DialCause::Refused),
        (104, DialCause::Refused),
        (101, DialCause::Unroutable),
        (113, DialCause::Unroutable),
        (13, DialCause::Unroutable),
        (1, DialCause::Unroutable),
        (97, DialCause::Unroutable),
        (110, DialCause::Timeout),
        (24, DialCause::Overloaded),
        (23, DialCause::Overloaded),
        (105, DialCause::Overloaded),
        (99, DialCause::Overloaded),
        (22, DialCause::Other),
    ] {
        assert_eq!(cause_of(&io::Error::from_raw_os_error(number), v4), cause, "{number}");
    }
    assert_eq!(cause_of(&io::Error::from_raw_os_error(99), v6), DialCause::Unroutable);
}

#[tokio::test]
async fn configured_peers() {
    let (listener, addr) = listener().await;
    let server = ConfiguredAddr::new(addr);
    let stream = configured_tcp(server, None, Duration::from_secs(5)).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), addr);
    drop(listener);
    let quiet = silent();
    let limit = Duration::from_millis(200);
    let error = configured_tcp(ConfiguredAddr::new(quiet.addr), None, limit).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let udp = configured_udp(ConfiguredAddr::new(addrs(&CLOSED)[0]), "127.0.0.1:0".parse().unwrap()).unwrap();
    udp.send(b"x").await.unwrap();
    let error = udp.recv(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

/// Real blackholes and missing routes need a network namespace: this test starts itself in one.
#[test]
fn in_a_network_namespace() {
    let inside = std::env::var_os("EGRET_TEST_NETNS").is_some();
    if inside {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        return builder.enable_all().build().unwrap().block_on(blackholes());
    }
    // On loopback nobody answers for 10.55.0.0/24 but its first address: silence without a peer.
    let script = "ip link set lo up && ip addr add 10.55.0.1/32 dev lo \
                  && ip route add 10.55.0.0/24 dev lo \
                  && ip route add unreachable 10.67.0.0/16 && ip route add prohibit 10.68.0.0/16 \
                  && exec \"$0\" --exact \"$1\" --nocapture";
    let exe = std::env::current_exe().unwrap();
    let can = Command::new("unshare").args(["--net", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a network namespace can't be made here");
        return;
    }
    let run = Command::new("unshare")
        .args(["--net", "sh", "-c", script])
        .arg(exe)
        .arg(concat!(module_path!(), "::in_a_network_namespace").split_once("::").unwrap().1)
        .env("EGRET_TEST_NETNS", "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
    assert!(run.status.success() && output.contains("1 passed"), "{output}");
}

async fn blackholes() {
    let listener = TcpListener::bind("10.55.0.1:0").await.unwrap();
    let good = listener.local_addr().unwrap();
    let silent = addrs(&["10.55.0.2:9", "10.55.0.3:9"]);
    let connected = dialer(10_000).race(&[silent[0], silent[1], good]).await.unwrap();
    assert_eq!(connected.peer, good);

    for (addr, cause) in [
        ("10.55.0.2:9", DialCause::Timeout),
        ("10.67.0.1:9", DialCause::Unroutable),
        ("10.68.0.1:9", DialCause::Unroutable),
        ("192.0.2.1:9", DialCause::Unroutable),
        ("[2001:db8::1]:9", DialCause::Unroutable),
    ] {
        let error = dialer(500).race(&addrs(&[addr])).await.unwrap_err();
        assert_eq!(error.cause, cause, "{error}");
    }
    // IPv6 without a route does not hold up IPv4.
    let mixed = [vec![good], addrs(&["[2001:db8::1]:9", "[2001:db8::2]:9"])].concat();
    let connected = dialer(10_000).race(&mixed).await.unwrap();
    assert_eq!(connected.peer, good);
    assert!(connected.failed.iter().all(|attempt| attempt.cause == DialCause::Unroutable));
}

#[test]
fn an_address_is_elsewhere_only_if_the_kernel_says_so() {
    assert!(is_local("127.0.0.1".parse().unwrap()));
    assert!(!is_local("192.0.2.1".parse().unwrap()));
    for (errno, elsewhere) in [
        (rustix::io::Errno::ADDRNOTAVAIL, true),
        (rustix::io::Errno::AFNOSUPPORT, true),
        (rustix::io::Errno::MFILE, false),
        (rustix::io::Errno::NFILE, false),
        (rustix::io::Errno::NOBUFS, false),
    ] {
        assert_eq!(says_elsewhere(&errno.into()), elsewhere, "{errno}");
    }
}
