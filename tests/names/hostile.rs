//! Octets that are no questions, clients that hold on to what they have, and servers that go away.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::asker::{Connection, Question, ask, ask_again, is_silent};
use crate::support::client::{Client, connect_from};
use crate::support::dns_message::A;
use crate::support::dns_server::Answer;
use crate::support::egret::Egret;
use crate::{TREE, config, egret, last, records, server, upstream};

#[test]
fn what_is_no_question_does_no_harm() {
    let dns = server(&[]);
    let egret = egret(&dns, TREE);
    let good = Question::new("www.allowed.test", A);
    // No header, and an answer: nothing comes back, so that two servers never talk to each other.
    assert!(is_silent(egret.names, b""));
    assert!(is_silent(egret.names, &good.octets[..11]));
    assert!(is_silent(egret.names, &Question::new("www.allowed.test", A).patched(2, &[0x81]).octets));
    let counts = [(4, 0), (4, 2), (4, 255), (6, 1), (8, 1), (10, 9)];
    for (at, count) in counts {
        let question = Question::new("www.allowed.test", A).patched(at, &[0, count]);
        assert_eq!(ask(egret.names, &question).rcode, 1, "{count} at {at}");
    }
    for cut in 12..good.octets.len() {
        let question = Question { octets: good.octets[..cut].to_vec() };
        assert_eq!(ask(egret.names, &question).rcode, 1, "cut at {cut}");
    }
    let longer = Question { octets: [&good.octets[..], b"more"].concat() };
    assert_eq!(ask(egret.names, &longer).rcode, 1);
    // A pointer to itself, and a label that is too long.
    assert_eq!(ask(egret.names, &Question::new("www.allowed.test", A).patched(12, &[0xc0, 12])).rcode, 1);
    assert_eq!(ask(egret.names, &Question::new("www.allowed.test", A).patched(12, &[0x40])).rcode, 1);
    assert!(records(&egret).iter().all(|record| record["reason"] == "bad_request"));
    assert_eq!(upstream(&dns), []);
    assert_eq!(ask(egret.names, &good).rcode, 0);
}

#[test]
fn odd_connections_end() {
    let dns = server(&[]);
    let egret = egret(&dns, TREE);
    // A length that nobody needs.
    let mut stream = TcpStream::connect(egret.names).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(&[0xff, 0xff]).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or_default(), 0);
    // No message at all.
    let mut connection = Connection::open(egret.names);
    connection.send(b"");
    assert!(connection.receive().is_none());
    // Silence, for longer than it is borne.
    let mut connection = Connection::open(egret.names);
    assert!(connection.receive().is_none());
    let mut connection = Connection::open(egret.names);
    connection.send(&Question::new("www.allowed.test", 16).octets);
    connection.send(&Question::new("www.allowed.test", A).octets);
    assert_eq!(connection.receive().unwrap().rcode, 5);
    assert_eq!(connection.receive().unwrap().rcode, 0);
}

#[test]
fn a_server_that_goes_away_is_told_and_comes_back() {
    let dns = server(&[("www.allowed.test", Answer::rcode("TIMEOUT"))]);
    let egret = egret(&dns, TREE);
    let question = Question::new("www.allowed.test", A);
    let answer = ask(egret.names, &question);
    assert_eq!((answer.refusal(), answer.error.clone().unwrap().0), ((2, "dns_timeout"), 22));
    dns.reset([].into(), None);
    crate::support::wait_for("an answer", Duration::from_secs(20), || ask(egret.names, &question).rcode == 0);
    assert_eq!(last(&egret)["reason"], "allowed");
}

#[test]
fn a_stop_waits_for_nobody_who_is_idle() {
    let dns = server(&[]);
    let mut egret = egret(&dns, TREE);
    let mut connection = Connection::open(egret.names);
    assert_eq!(connection.ask(&Question::new("www.allowed.test", A)).rcode, 0);
    assert!(egret.stop().success());
    assert!(connection.receive().is_none());
}

#[test]
fn a_flood_of_one_sandbox_leaves_others_their_answers() {
    let dns = server(&[]);
    let flooder = "[[sandbox]]\nid = \"loud\"\nsource = [\"127.0.0.9\"]\npolicy = \"p\"\n";
    let egret = Egret::with(config(&dns, TREE) + flooder).names("127.0.0.1:0".parse().unwrap()).start();
    let quiet: IpAddr = "127.0.0.1".parse().unwrap();
    let question = Question::new("www.allowed.test", A);
    assert_eq!(ask(egret.names, &question).rcode, 0);
    let over = AtomicBool::new(false);
    let (mut lost, mut status) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = UdpSocket::bind("127.0.0.9:0").unwrap();
            socket.connect(egret.names).unwrap();
            let loud = Question::new("data.stolen.test", A);
            while !over.load(Ordering::Relaxed) {
                // What the system has no room for is lost like the rest.
                let _ = socket.send(&loud.octets);
            }
        });
        std::thread::sleep(Duration::from_millis(500));
        for _ in 0..10 {
            let answer = ask_again(quiet, egret.names, &question);
            lost += u32::from(answer.is_none_or(|answer| answer.rcode != 0));
        }
        let mut client = Client::connect(egret.proxy);
        client.send("GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n");
        status = client.response("GET").status;
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!((lost, status), (0, 403));
    assert!(upstream(&dns).iter().all(|(name, _)| name == "www.allowed.test"));
    assert!(egret.memory() < 200 << 20, "{} octets", egret.memory());
    // Nor does it fill the audit file: the rate is 20 a second after a burst of 100.
    let loud = records(&egret).into_iter().filter(|record| record["sandbox"] == "loud").count();
    assert!((100..100 + 20 * 120).contains(&loud), "{loud} records");
}

/// Connections that say nothing, or a little now and then, are a part of what there is room for, and
/// end; whoever else asks is answered, by either transport.
#[test]
fn a_crowd_of_connections_leaves_others_their_answers() {
    let dns = server(&[]);
    let crowd = "[[sandbox]]\nid = \"crowd\"\nsource = [\"127.0.0.9\"]\npolicy = \"p\"\n";
    let egret = Egret::with(config(&dns, TREE) + crowd)
        .names("127.0.0.1:0".parse().unwrap())
        .shell("ulimit -n 1024")
        .start();
    let question = Question::new("www.allowed.test", A);
    let whole = [&u16::try_from(question.octets.len()).unwrap().to_be_bytes()[..], &question.octets].concat();
    let held: Vec<TcpStream> = (0..2000)
        .filter_map(|number| {
            let mut stream = connect_from("127.0.0.9".parse().unwrap(), egret.names).ok()?;
            // None of it, a half of its length, all but the last octet.
            let said = [0, 1, whole.len() - 1][number % 3];
            stream.write_all(&whole[..said]).ok().map(|()| stream)
        })
        .collect();
    let open = || egret.open_files();
    assert!(open() < 1024, "{} descriptors", open());
    let quiet: IpAddr = "127.0.0.1".parse().unwrap();
    for _ in 0..10 {
        assert_eq!(Connection::open(egret.names).ask(&question).rcode, 0);
        assert_eq!(ask_again(quiet, egret.names, &question).expect("an answer").rcode, 0);
    }
    assert!(records(&egret).iter().all(|record| record["sandbox"] == "box"));
    // A word now and then makes it no longer: those of which half a length came say 120 octets.
    let mut held: Vec<_> = held.into_iter().enumerate().collect();
    let ended = |(number, stream): &mut (usize, TcpStream)| {
        if *number % 3 == 1 {
            let _ = stream.write_all(b"x");
        }
        stream.set_nonblocking(true).unwrap();
        let read = stream.read(&mut [0; 600]);
        stream.set_nonblocking(false).unwrap();
        match read {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    };
    crate::support::wait_for("the end of all", Duration::from_secs(60), || {
        held.retain_mut(|one| !ended(one));
        std::thread::sleep(Duration::from_millis(500));
        held.is_empty()
    });
    crate::support::wait_for("room again", Duration::from_secs(60), || open() < 100);
    assert!(egret.memory() < 200 << 20, "{} octets", egret.memory());
}
