//! A gate at the beginning of a tunnel, and what is left of it.

use std::sync::Weak;

use super::*;

/// Opens or refuses at a word of the upstream.
struct Words {
    heard: Vec<u8>,
    _alive: Arc<()>,
}

impl Gate<&'static str> for Words {
    fn answered(&mut self, bytes: &[u8]) {
        self.heard.extend_from_slice(if bytes.is_empty() { b"end" } else { bytes });
    }

    fn poll_next(&mut self, _: &mut Context<'_>, _: &Stream) -> Poll<Result<Option<Bytes>, &'static str>> {
        match self.heard.as_slice() {
            b"open" | b"end" => Poll::Ready(Ok(None)),
            b"shut" => Poll::Ready(Err("shut")),
            _ => Poll::Pending,
        }
    }
}

/// Such a gate, and what can be upgraded as long as it lives.
fn words() -> (Box<dyn Gate<&'static str>>, Weak<()>) {
    let alive = Arc::new(());
    let gone = Arc::downgrade(&alive);
    (Box::new(Words { heard: Vec::new(), _alive: alive }), gone)
}

/// A tunnel behind one.
async fn gated() -> (Rig, Weak<()>) {
    let (gate, gone) = words();
    (rig_of(UNLIMITED, (), Some(gate), b"", b"").await, gone)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_passes_before_it_opens_and_everything_behind_it() {
    let (mut rig, gate) = gated().await;
    rig.client.write_all(&PATTERN[..100_000]).await.unwrap();
    // Piece by piece, each of which the client has before the next.
    for byte in b"ope" {
        rig.origin.write_all(&[*byte]).await.unwrap();
        assert_eq!(read_some(&mut rig.client, 1).await, [*byte]);
    }
    assert_eq!(rig.counters.up.load(Ordering::Relaxed), 0);
    rig.origin.write_all(b"n").await.unwrap();
    assert_eq!(read_some(&mut rig.client, 1).await, b"n");
    assert!(read_some(&mut rig.origin, 100_000).await == PATTERN[..100_000]);
    assert!(gate.upgrade().is_none(), "a tunnel that is open has none");
    for _ in 0..2 {
        send(&mut rig.client, 1_000_003).await;
        let got = read_some(&mut rig.origin, 1_000_003).await;
        assert!(got == *PATTERN);
    }
    drop((rig.client, rig.origin));
    ended(rig.relay).await;
}

#[tokio::test]
async fn it_sees_the_end_of_the_upstream() {
    let (mut rig, _gate) = gated().await;
    rig.client.write_all(b"held").await.unwrap();
    rig.origin.shutdown().await.unwrap();
    assert_eq!(read_some(&mut rig.origin, 4).await, b"held");
    drop(rig.client);
    let tally = ended(rig.relay).await;
    assert!(matches!(tally.end, End::Finished), "{tally:?}");
}

#[tokio::test]
async fn its_refusal_ends_the_tunnel() {
    let (mut rig, _gate) = gated().await;
    rig.client.write_all(b"held").await.unwrap();
    rig.origin.write_all(b"shut").await.unwrap();
    let tally = ended(rig.relay).await;
    assert!(matches!(tally.end, End::Refused("shut")), "{tally:?}");
    assert_eq!((tally.up, tally.down), (0, 4));
    assert_eq!(receive_raw(&mut rig.origin).await, 0);
}

#[tokio::test]
async fn the_limits_hold_behind_it() {
    let limits = Limits { idle: Some(Duration::from_millis(200)), ..UNLIMITED };
    let mut rig = rig_of(limits, (), Some(words().0), b"early", b"").await;
    assert_eq!(read_some(&mut rig.origin, 5).await, b"early");
    let tally = ended(rig.relay).await;
    assert!(matches!(tally.end, End::Idle), "{tally:?}");

    let (rig, _gate) = gated().await;
    rig.stop.send("policy").unwrap();
    let tally = ended(rig.relay).await;
    assert!(matches!(tally.end, End::Stopped("policy")), "{tally:?}");

    // What is held back, and not read, does not hide that its sender is gone.
    let (mut rig, _gate) = gated().await;
    rig.client.write_all(b"held").await.unwrap();
    reset(rig.client);
    let tally = ended(rig.relay).await;
    assert!(matches!(tally.end, End::ClientError(_)), "{tally:?}");
    assert_eq!(receive_raw(&mut rig.origin).await, 0);
}
