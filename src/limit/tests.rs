use std::num::NonZeroU32;

use egret_policy::units::{Quota, Rate};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn limits(change: impl FnOnce(&mut Limits)) -> Arc<Limits> {
    let mut limits = Limits::default();
    change(&mut limits);
    Arc::new(limits)
}

fn account(sandbox: &str, token: Option<&str>) -> Account {
    Account { sandbox: sandbox.into(), policy: "p".into(), token: token.map(Arc::from) }
}

fn admit(limiter: &Limiter, sandbox: &str, limits: &Arc<Limits>) -> Result<Permit, Exceeded> {
    limiter.admit([(account(sandbox, None), Arc::clone(limits))])
}

fn host(name: &str) -> Host {
    Host::parse(name.as_bytes()).unwrap()
}

#[test]
fn slots_come_back_when_permits_drop() {
    let limiter = Limiter::default();
    let limits = limits(|l| l.connections = Some(2));
    let id = "a";
    let first = admit(&limiter, id, &limits).unwrap();
    let _second = admit(&limiter, id, &limits).unwrap();
    let refused = admit(&limiter, id, &limits).unwrap_err();
    assert_eq!((refused.reason, refused.limit), (Reason::TooManyConnections, "connections"));
    drop(first);
    assert!(admit(&limiter, id, &limits).is_ok());
    assert!(admit(&limiter, "b", &limits).is_ok(), "another sandbox has its own slots");
}

#[test]
fn a_burst_passes_and_the_next_waits() {
    let limiter = Limiter::default();
    let two = NonZeroU32::new(2).unwrap();
    let limits = limits(|l| l.requests = Some(Rate { amount: NonZeroU32::MIN, period: HOUR, burst: two }));
    let id = "a";
    assert!(admit(&limiter, id, &limits).is_ok());
    assert!(admit(&limiter, id, &limits).is_ok());
    let refused = admit(&limiter, id, &limits).unwrap_err();
    assert_eq!(refused.reason, Reason::RateLimited);
    assert!(refused.retry_after > HOUR / 2 && refused.retry_after <= HOUR, "{:?}", refused.retry_after);
}

#[test]
fn distinct_hosts_are_counted_once() {
    let limiter = Limiter::default();
    let limits = limits(|l| l.domains = Some(Quota { amount: 2, period: HOUR }));
    let permit = admit(&limiter, "a", &limits).unwrap();
    for name in ["a.example", "b.example", "a.example"] {
        assert_eq!(permit.count_host(&host(name)), Ok(()));
    }
    let refused = permit.count_host(&host("c.example")).unwrap_err();
    assert_eq!((refused.reason, refused.limit), (Reason::QuotaExceeded, "domains"));
    assert_eq!(permit.count_host(&host("b.example")), Ok(()));
}

#[test]
fn bytes_are_granted_exactly_and_shared_by_racing_requests() {
    let limiter = Limiter::default();
    let limits = limits(|l| {
        l.bytes = Some(Quota { amount: 10_000, period: HOUR });
        l.bytes_up = Some(Quota { amount: 1_000, period: HOUR });
    });
    let id = "a";
    let meter = admit(&limiter, id, &limits).unwrap().meter();
    let granted: usize = std::thread::scope(|scope| {
        let run = || {
            let up: usize = (0..100).map(|_| meter.take(Direction::Up, 7)).sum();
            up + (0..1000).map(|_| meter.take(Direction::Down, 13)).sum::<usize>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(granted, 10_000);
    let refused = admit(&limiter, id, &limits).unwrap_err();
    assert_eq!(refused.reason, Reason::QuotaExceeded);
}

#[test]
fn what_was_not_written_is_given_back() {
    let limiter = Limiter::default();
    let limits = limits(|l| l.bytes_down = Some(Quota { amount: 100, period: HOUR }));
    let meter = admit(&limiter, "a", &limits).unwrap().meter();
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
    let id = "a";
    let meter = admit(&limiter, id, &limits).unwrap().meter();
    assert_eq!(meter.take(Direction::Up, 10), 10);
    assert!(admit(&limiter, id, &limits).is_err());
    std::thread::sleep(Duration::from_millis(60));
    assert!(admit(&limiter, id, &limits).is_ok());
}

#[test]
fn idle_sandboxes_are_forgotten() {
    let limiter = Limiter::default();
    let limits = limits(|l| l.connections = Some(1));
    let permit = admit(&limiter, "open", &limits).unwrap();
    drop(admit(&limiter, "gone", &limits).unwrap());
    limiter.forget_idle();
    let left: Vec<_> = lock(&limiter.sandboxes).keys().map(|account| account.sandbox.to_string()).collect();
    assert_eq!(left, ["open"]);
    drop(permit);
    limiter.forget_idle();
    assert!(lock(&limiter.sandboxes).is_empty());
}

#[test]
fn without_limits_nothing_is_kept() {
    let limiter = Limiter::default();
    let permit = admit(&limiter, "a", &Arc::new(Limits::default())).unwrap();
    assert_eq!(permit.meter().take(Direction::Up, 5), 5);
    assert!(lock(&limiter.sandboxes).is_empty());
}

#[test]
fn a_token_has_its_own_account_beside_the_sandbox() {
    let limiter = Limiter::default();
    let of_policy = limits(|l| l.bytes = Some(Quota { amount: 100, period: HOUR }));
    let of_token = limits(|l| {
        l.bytes_up = Some(Quota { amount: 30, period: HOUR * 24 });
        l.connections = Some(1);
    });
    let both = |token| {
        limiter.admit([
            (account("a", None), Arc::clone(&of_policy)),
            (account("a", Some(token)), Arc::clone(&of_token)),
        ])
    };
    let first = both("t1").unwrap();
    assert_eq!(both("t1").unwrap_err().reason, Reason::TooManyConnections);
    let second = both("t2").unwrap();
    assert_eq!(first.meter().take(Direction::Up, 50), 30, "the token's quota is the narrower");
    assert_eq!(second.meter().take(Direction::Down, 90), 70, "what the token refused was not used up");
    assert_eq!(second.meter().take(Direction::Up, 10), 0, "nothing is left of the policy's");
    drop(first);
    assert!(both("t1").is_err());
}
