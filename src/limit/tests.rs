use std::num::NonZeroU32;

use egret_policy::units::{Quota, Rate};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn limits(change: impl FnOnce(&mut Limits)) -> Arc<Limits> {
    let mut limits = Limits::default();
    change(&mut limits);
    Arc::new(limits)
}

fn host(name: &str) -> Host {
    Host::parse(name.as_bytes()).unwrap()
}

#[test]
fn slots_come_back_when_permits_drop() {
    let limiter = Limiter::default();
    let limits = limits(|l| l.connections = Some(2));
    let id: Arc<str> = "a".into();
    let first = limiter.admit(&id, &limits).unwrap();
    let _second = limiter.admit(&id, &limits).unwrap();
    let refused = limiter.admit(&id, &limits).unwrap_err();
    assert_eq!((refused.reason, refused.limit), (Reason::TooManyConnections, "connections"));
    drop(first);
    assert!(limiter.admit(&id, &limits).is_ok());
    assert!(limiter.admit(&"b".into(), &limits).is_ok(), "another sandbox has its own slots");
}

#[test]
fn a_burst_passes_and_the_next_waits() {
    let limiter = Limiter::default();
    let two = NonZeroU32::new(2).unwrap();
    let limits = limits(|l| l.requests = Some(Rate { amount: NonZeroU32::MIN, period: HOUR, burst: two }));
    let id: Arc<str> = "a".into();
    assert!(limiter.admit(&id, &limits).is_ok());
    assert!(limiter.admit(&id, &limits).is_ok());
    let refused = limiter.admit(&id, &limits).unwrap_err();
    assert_eq!(refused.reason, Reason::RateLimited);
    assert!(refused.retry_after > HOUR / 2 && refused.retry_after <= HOUR, "{:?}", refused.retry_after);
}

#[test]
fn distinct_hosts_are_counted_once() {
    let limiter = Limiter::default();
    let limits = limits(|l| l.domains = Some(Quota { amount: 2, period: HOUR }));
    let permit = limiter.admit(&"a".into(), &limits).unwrap();
    for name in ["a.example", "b.example", "a.example"] {
        assert_eq!(permit.count_host(&host(name)), Ok(()));
    }
    let refused = permit.count_host(&host("c.example")).unwrap_err();
    assert_eq!((refused.reason, refused.limit), (Reason::QuotaExceeded, "domains"));
    assert_eq!(permit.count_host(&host("b.example")), Ok(()));
}

#[test]
fn bytes_are_granted_exactly_and_shared_by_racing_requests() {
    let limiter = Arc::new(Limiter::default());
    let limits = limits(|l| {
        l.bytes = Some(Quota { amount: 10_000, period: HOUR });
        l.bytes_up = Some(Quota { amount: 1_000, period: HOUR });
    });
    let id: Arc<str> = "a".into();
    let meter = limiter.admit(&id, &limits).unwrap().meter();
    let granted: usize = std::thread::scope(|scope| {
        let run = || {
            let up: usize = (0..100).map(|_| meter.take(Direction::Up, 7)).sum();
            up + (0..1000).map(|_| meter.take(Direction::Down, 13)).sum::<usize>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(granted, 10_000);
    let refused = limiter.admit(&id, &limits).unwrap_err();
    assert_eq!(refused.reason, Reason::QuotaExceeded);
}

#[test]
fn what_was_not_written_is_given_back() {
    let limiter = Limiter::default();
    let limits = limits(|l| l.bytes_down = Some(Quota { amount: 100, period: HOUR }));
    let meter = limiter.admit(&"a".into(), &limits).unwrap().meter();
    assert_eq!(meter.take(Direction::Down, 150), 100);
    assert_eq!(meter.take(Direction::Down, 1), 0);
    meter.give_back(Direction::Down, 40);
    assert_eq!(meter.take(Direction::Down, 150), 40);
    assert_eq!(meter.take(Direction::Up, 150), 150);
}

#[test]
fn windows_start_at_first_use_and_end() {
    let limiter = Limiter::default();
    let limits = limits(|l| l.bytes = Some(Quota { amount: 10, period: Duration::from_millis(50) }));
    let id: Arc<str> = "a".into();
    let meter = limiter.admit(&id, &limits).unwrap().meter();
    assert_eq!(meter.take(Direction::Up, 10), 10);
    assert!(limiter.admit(&id, &limits).is_err());
    std::thread::sleep(Duration::from_millis(60));
    assert!(limiter.admit(&id, &limits).is_ok());
}

#[test]
fn idle_sandboxes_are_forgotten() {
    let limiter = Limiter::default();
    let limits = limits(|l| l.connections = Some(1));
    let permit = limiter.admit(&"open".into(), &limits).unwrap();
    drop(limiter.admit(&"gone".into(), &limits).unwrap());
    limiter.forget_idle();
    let left: Vec<_> = lock(&limiter.sandboxes).keys().map(ToString::to_string).collect();
    assert_eq!(left, ["open"]);
    drop(permit);
    limiter.forget_idle();
    assert!(lock(&limiter.sandboxes).is_empty());
}

#[test]
fn without_limits_nothing_is_kept() {
    let limiter = Limiter::default();
    let permit = limiter.admit(&"a".into(), &Arc::new(Limits::default())).unwrap();
    assert_eq!(permit.meter().take(Direction::Up, 5), 5);
    assert!(lock(&limiter.sandboxes).is_empty());
}
