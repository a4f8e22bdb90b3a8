#![allow(clippy::disallowed_methods, reason = "the peers of a tunnel under test")]
mod gate;

use std::future::pending;
use std::sync::LazyLock;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::pipe::Pipe;
use super::*;

const UNLIMITED: Limits = Limits { idle: None, lifetime: None, half_closed: Duration::from_secs(60) };

/// Bytes that repeat only after a prime number of them.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let step = |n: &u32| Some(n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    let numbers = std::iter::successors(Some(1), step);
    numbers.map(|n| n.to_be_bytes()[0]).take(1_000_003).collect()
});

/// The two connections of a tunnel seen from outside, and the relay between them.
struct Rig {
    client: TcpStream,
    origin: TcpStream,
    counters: Arc<Counters>,
    stop: oneshot::Sender<&'static str>,
    relay: JoinHandle<Tally<&'static str>>,
}

async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

async fn rig(limits: Limits) -> Rig {
    rig_with(limits, (), b"", b"").await
}

async fn rig_with<M>(limits: Limits, meter: M, up: &'static [u8], down: &'static [u8]) -> Rig
where
    M: Meter + Send + Sync + 'static,
{
    rig_of(limits, meter, None, up, down).await
}

async fn rig_of<M>(
    limits: Limits,
    meter: M,
    gate: Option<Box<dyn Gate<&'static str>>>,
    up: &'static [u8],
    down: &'static [u8],
) -> Rig
where
    M: Meter + Send + Sync + 'static,
{
    let (client, client_end) = connection().await;
    let (origin, upstream_end) = connection().await;
    // Else the kernel may buffer tens of megabytes, before and behind the relay.
    for socket in [&client_end, &origin] {
        rustix::net::sockopt::set_socket_recv_buffer_size(socket, 1 << 20).unwrap();
    }
    let tunnel = Tunnel {
        client: client_end.into(),
        upstream: upstream_end,
        early_up: Bytes::from_static(up),
        early_down: Bytes::from_static(down),
    };
    let counters = Arc::new(Counters::default());
    let (stop, stopped) = oneshot::channel();
    let stopped = async {
        match stopped.await {
            Ok(reason) => reason,
            Err(_) => pending().await,
        }
    };
    let relay = tokio::spawn(relay(tunnel, gate, limits, counters.clone(), meter, Box::pin(stopped)));
    Rig { client, origin, counters, stop, relay }
}

async fn ended(relay: JoinHandle<Tally<&'static str>>) -> Tally<&'static str> {
    let limit = timeout(Duration::from_secs(20), relay);
    limit.await.expect("the relay goes on").unwrap()
}

async fn send(socket: &mut (impl AsyncWriteExt + Unpin), count: usize) {
    let mut sent = 0;
    while sent < count {
        let chunk = &PATTERN[sent % PATTERN.len()..];
        let chunk = &chunk[..chunk.len().min(count - sent).min(100_000)];
        socket.write_all(chunk).await.unwrap();
        sent += chunk.len();
    }
}

/// Reads to the end; returns how many bytes came, all of them right.
async fn receive(socket: &mut (impl AsyncReadExt + Unpin)) -> usize {
    let mut buffer = vec![0; 100_000];
    let mut total = 0;
    loop {
        let most = (PATTERN.len() - total % PATTERN.len()).min(buffer.len());
        let count = socket.read(&mut buffer[..most]).await.unwrap();
        if count == 0 {
            return total;
        }
        let expected = &PATTERN[total % PATTERN.len()..][..count];
        assert!(buffer[..count] == *expected, "wrong bytes after {total}");
        total += count;
    }
}

fn reset(socket: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
}

async fn read_some(socket: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let read = timeout(Duration::from_secs(10), socket.read_exact(&mut bytes));
    read.await.expect("nothing arrives").unwrap();
    bytes
}

async fn exchange(rig: Rig, up: usize, down: usize) {
    let Rig { mut client, mut origin, relay, .. } = rig;
    let (mut client_in, mut client_out) = client.split();
    let (mut origin_in, mut origin_out) = origin.split();
    let client_sends = async {
        send(&mut client_out, up).await;
        client_out.shutdown().await.unwrap();
    };
    let origin_sends = async {
        send(&mut origin_out, down).await;
        origin_out.shutdown().await.unwrap();
    };
    let ((), (), came_down, came_up) =
        tokio::join!(client_sends, origin_sends, receive(&mut client_in), receive(&mut origin_in));
    assert_eq!((came_up, came_down), (up, down));
    let tally = ended(relay).await;
    assert!(matches!(tally.end, End::Finished), "{tally:?}");
    assert_eq!((tally.up, tally.down), (up as u64, down as u64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_bytes_both_ways_arrive_unchanged() {
    exchange(rig(UNLIMITED).await, 64 << 20, (64 << 20) + 1).await;
}

#[tokio::test]
async fn any_size_arrives_unchanged() {
    for size in [0, 1, 16_383, 16_384, 16_385, 65_536, 300_000] {
        exchange(rig(UNLIMITED).await, size, 300_000 - size).await;
    }
}

#[tokio::test]
async fn without_pipes_it_copies() {
    let taken: Vec<Pipe> = std::iter::from_fn(Pipe::take).collect();
    assert!(Pipe::take().is_none());
    exchange(rig(UNLIMITED).await, 8 << 20, 8 << 20).await;
    drop(taken);
    assert!(Pipe::take().is_some());
}

#[tokio::test]
async fn early_bytes_go_first_and_count() {
    let mut rig = rig_with(UNLIMITED, (), b"early up ", b"early down ").await;
    rig.client.write_all(b"later").await.unwrap();
    rig.origin.write_all(b"later").await.unwrap();
    assert_eq!(read_some(&mut rig.origin, 14).await, b"early up later");
    assert_eq!(read_some(&mut rig.client, 16).await, b"early down later");
    assert_eq!(rig.counters.up.load(Ordering::Relaxed), 14);
    assert_eq!(rig.counters.down.load(Ordering::Relaxed), 16);
}

#[tokio::test]
async fn the_other_direction_outlives_a_half_close() {
    let mut rig = rig(UNLIMITED).await;
    rig.client.shutdown().await.unwrap();
    assert_eq!(receive(&mut rig.origin).await, 0);
    send(&mut rig.origin, 500_000).await;
    drop(rig.origin);
    assert_eq!(receive(&mut rig.client).await, 500_000);
    let tally = ended(rig.relay).await;
    assert!(matches!(tally.end, End::Finished), "{tally:?}");
    assert_eq!((tally.up, tally.down), (0, 500_000));
}

#[tokio::test]
async fn the_other_direction_outlives_a_half_close_of_the_upstream() {
    let mut rig = rig(UNLIMITED).await;
    rig.origin.shutdown().await.unwrap();
    assert_eq!(receive(&mut rig.client).await, 0);
    send(&mut rig.client, 500_000).await;
    drop(rig.client);
    assert_eq!(receive(&mut rig.origin).await, 500_000);
    let tally = ended(rig.relay).await;
    assert!(matches!(tally.end, End::Finished), "{tally:?}");
    assert_eq!((tally.up, tally.down), (500_000, 0));
}

#[tokio::test]
async fn a_fin_right_after_the_body_cuts_nothing() {
    for round in 0..200 {
        let size = 40_000 + 7919 * round;
        let mut rig = rig(UNLIMITED).await;
        let origin = async {
            send(&mut rig.origin, size).await;
            drop(rig.origin);
        };
        let client = async {
            tokio::task::yield_now().await;
            if round % 20 == 0 {
                sleep(Duration::from_millis(20)).await;
            }
            let received = receive(&mut rig.client).await;
            drop(rig.client);
            received
        };
        let ((), received) = tokio::join!(origin, client);
        assert_eq!(received, size);
        let tally = ended(rig.relay).await;
        assert!(matches!(tally.end, End::Finished), "{tally:?}");
        assert_eq!(tally.down, size as u64);
    }
}

#[tokio::test]
async fn an_idle_tunnel_ends_with_a_fin() {
    let idle = Duration::from_millis(1500);
    let mut rig = rig(Limits { idle: Some(idle), ..UNLIMITED }).await;
    let started = Instant::now();
    for _ in 0..4 {
        sleep(idle / 2).await;
        rig.client.write_all(b"x").await.unwrap();
        assert_eq!(read_some(&mut rig.origin, 1).await, b"x");
    }
    let tally = ended(rig.relay).await;
    assert!(matches!(tally.end, End::Idle), "{tally:?}");
    assert_eq!(tally.up, 4);
    assert!(started.elapsed() >= idle * 3);
    assert_eq!(rig.client.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(rig.origin.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_busy_tunnel_ends_with_its_lifetime() {
    let mut rig = rig(Limits {
        idle: Some(Duration::from_secs(30)),
        lifetime: Some(Duration::from_millis(300)),
        ..UNLIMITED
    })
    .await;
    while !rig.relay.is_finished() {
        let _ = rig.client.write_all(b"x").await;
        sleep(Duration::from_millis(20)).await;
    }
    let tally = ended(rig.relay).await;
    assert!(matches!(tally.end, End::Lifetime), "{tally:?}");
    assert_eq!(receive_raw(&mut rig.origin).await as u64, tally.up);
}

async fn receive_raw(socket: &mut TcpStream) -> usize {
    let mut all = Vec::new();
    socket.read_to_end(&mut all).await.unwrap()
}

#[tokio::test]
async fn a_stop_ends_the_tunnel_even_when_it_is_stuck() {
    for fill in [false, true] {
        let mut rig = rig(UNLIMITED).await;
        if fill {
            fill_up(&mut rig.client).await;
        }
        rig.stop.send("policy").unwrap();
        let tally = ended(rig.relay).await;
        assert!(matches!(tally.end, End::Stopped("policy")), "{tally:?}");
        assert_eq!(receive(&mut rig.origin).await as u64, tally.up);
    }
}

/// Writes until nothing has been taken for a while; returns how much was taken.
async fn fill_up(socket: &mut TcpStream) -> usize {
    let mut total = 0;
    loop {
        let chunk = &PATTERN[total % PATTERN.len()..];
        match timeout(Duration::from_millis(500), socket.write(chunk)).await {
            Ok(count) => total += count.unwrap(),
            Err(_) => return total,
        }
    }
}

#[tokio::test]
async fn a_writer_waits_for_a_reader() {
    let mut rig = rig(UNLIMITED).await;
    let taken = fill_up(&mut rig.client).await;
    assert!(taken < 16 << 20, "{taken} bytes are buffered");
    rig.client.shutdown().await.unwrap();
    assert_eq!(receive(&mut rig.origin).await, taken);
}

#[tokio::test]
async fn a_reset_of_one_side_ends_both() {
    let mut rig1 = rig(UNLIMITED).await;
    reset(rig1.client);
    let tally = ended(rig1.relay).await;
    assert!(matches!(tally.end, End::ClientError(_)), "{tally:?}");
    assert_eq!(receive(&mut rig1.origin).await, 0);

    let mut rig2 = rig(UNLIMITED).await;
    reset(rig2.origin);
    let tally = ended(rig2.relay).await;
    assert!(matches!(tally.end, End::UpstreamError(_)), "{tally:?}");
    assert_eq!(receive(&mut rig2.client).await, 0);
}

#[tokio::test]
async fn a_reset_after_a_half_close_is_seen_at_once() {
    let mut rig1 = rig(UNLIMITED).await;
    rig1.client.shutdown().await.unwrap();
    assert_eq!(receive(&mut rig1.origin).await, 0);
    reset(rig1.client);
    let tally = ended(rig1.relay).await;
    assert!(matches!(tally.end, End::ClientError(_)), "{tally:?}");

    let mut rig2 = rig(UNLIMITED).await;
    rig2.origin.shutdown().await.unwrap();
    assert_eq!(receive(&mut rig2.client).await, 0);
    reset(rig2.origin);
    let tally = ended(rig2.relay).await;
    assert!(matches!(tally.end, End::UpstreamError(_)), "{tally:?}");
}

#[tokio::test]
async fn a_reply_that_was_sent_before_a_reset_arrives() {
    for _ in 0..50 {
        let mut rig = rig(UNLIMITED).await;
        // The origin answers without reading the request, and closes: its kernel
        // sends a reset, into which the relay may just be writing.
        send(&mut rig.client, 300_000).await;
        send(&mut rig.origin, 50_000).await;
        assert_eq!(read_some(&mut rig.client, 1).await, PATTERN[..1]);
        drop(rig.origin);
        let _ = rig.client.write(b"more").await;
        let rest = read_some(&mut rig.client, 49_999).await;
        assert!(rest == PATTERN[1..50_000]);
        let tally = ended(rig.relay).await;
        assert!(matches!(tally.end, End::UpstreamError(_)), "{tally:?}");
        assert_eq!(tally.down, 50_000);
    }
}

#[tokio::test]
async fn a_failed_side_that_nobody_drains_ends_after_the_linger() {
    let mut rig = rig(Limits { half_closed: Duration::from_millis(200), ..UNLIMITED }).await;
    fill_up(&mut rig.client).await;
    reset(rig.client);
    let tally = ended(rig.relay).await;
    assert!(matches!(tally.end, End::HalfClosed), "{tally:?}");
    assert_eq!(receive(&mut rig.origin).await as u64, tally.up);
}

#[tokio::test]
async fn half_closed_tunnels_end_after_the_linger() {
    let mut rigs = Vec::new();
    for _ in 0..100 {
        let mut rig = rig(Limits { half_closed: Duration::from_millis(200), ..UNLIMITED }).await;
        rig.client.shutdown().await.unwrap();
        rigs.push(rig);
    }
    for mut rig in rigs {
        let tally = ended(rig.relay).await;
        assert!(matches!(tally.end, End::HalfClosed), "{tally:?}");
        assert_eq!(receive(&mut rig.client).await, 0);
    }
}

#[tokio::test]
async fn a_slow_direction_outlives_the_linger() {
    // Far longer than a sleep is late on a busy machine.
    let half_closed = Duration::from_millis(1500);
    let mut rig = rig(Limits { half_closed, ..UNLIMITED }).await;
    rig.client.shutdown().await.unwrap();
    for byte in &PATTERN[..6] {
        sleep(half_closed / 5).await;
        rig.origin.write_all(&[*byte]).await.unwrap();
    }
    drop(rig.origin);
    assert_eq!(receive(&mut rig.client).await, 6);
    let tally = ended(rig.relay).await;
    assert!(matches!(tally.end, End::Finished), "{tally:?}");
}

/// So many bytes, whatever their direction.
#[derive(Clone)]
struct Allowance(Arc<AtomicU64>);

impl Meter for Allowance {
    fn take(&self, _: Direction, want: usize) -> usize {
        let left = self.0.load(Ordering::Relaxed);
        let granted = left.min(want as u64);
        self.0.store(left - granted, Ordering::Relaxed);
        granted as usize
    }

    fn give_back(&self, _: Direction, unused: usize) {
        self.0.fetch_add(unused as u64, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn not_a_byte_more_than_granted_passes() {
    for (granted, early) in [(3, &PATTERN[..10]), (1_000, b""), (100_000, b""), (3_000_000, b"")] {
        let meter = Allowance(Arc::new(AtomicU64::new(granted)));
        let mut rig = rig_with(UNLIMITED, meter, early, b"").await;
        let mut origin = rig.origin;
        let reader = tokio::spawn(async move { receive(&mut origin).await });
        let mut rest = PATTERN.iter().cycle().skip(early.len()).copied();
        let rest: Vec<u8> = rest.by_ref().take(4_000_000).collect();
        let _ = rig.client.write_all(&rest).await;
        let tally = ended(rig.relay).await;
        assert!(matches!(tally.end, End::Exhausted), "{tally:?}");
        assert_eq!((tally.up, tally.down), (granted, 0));
        assert_eq!(reader.await.unwrap() as u64, granted);
    }
}

#[tokio::test]
async fn what_was_granted_in_vain_is_given_back() {
    let left = Arc::new(AtomicU64::new(1 << 40));
    let mut rig = rig_with(UNLIMITED, Allowance(left.clone()), b"", b"").await;
    fill_up(&mut rig.client).await;
    rig.stop.send("enough").unwrap();
    let tally = ended(rig.relay).await;
    assert_eq!(left.load(Ordering::Relaxed) + tally.up, 1 << 40);
}

#[tokio::test]
async fn urgent_data_does_not_stall_or_cut_the_stream() {
    let mut rig = rig(UNLIMITED).await;
    // Enough that the relay expects many bytes and splices.
    rig.client.write_all(&PATTERN[..600_000]).await.unwrap();
    let mut received = read_some(&mut rig.origin, 600_000).await;
    for start in [600_000, 700_000] {
        let flags = rustix::net::SendFlags::OOB;
        rustix::net::send(&rig.client, b"!", flags).unwrap();
        rig.client.write_all(&PATTERN[start..start + 100_000]).await.unwrap();
    }
    rig.client.shutdown().await.unwrap();
    timeout(Duration::from_secs(10), rig.origin.read_to_end(&mut received))
        .await
        .expect("the stream stalls")
        .unwrap();
    // The urgent bytes themselves are out of band; a relay need not carry them.
    received.retain({
        let mut at = 0;
        move |byte| {
            let expected = PATTERN[at] == *byte;
            at += usize::from(expected);
            expected
        }
    });
    assert!(received == PATTERN[..800_000]);
}

#[tokio::test]
async fn dropping_the_future_closes_both_sides() {
    let mut rig = rig(UNLIMITED).await;
    rig.relay.abort();
    assert!(rig.relay.await.unwrap_err().is_cancelled());
    assert_eq!(receive(&mut rig.client).await, 0);
    assert_eq!(receive(&mut rig.origin).await, 0);
}

#[tokio::test]
async fn the_future_is_small() {
    let (client, upstream) = connection().await;
    let tunnel = Tunnel { client: client.into(), upstream, early_up: Bytes::new(), early_down: Bytes::new() };
    let (_stop, stopped) = oneshot::channel::<()>();
    let future = relay(tunnel, None, UNLIMITED, Arc::default(), (), stopped);
    let size = size_of_val(&future);
    assert!(size <= 704, "{size} bytes");
}
