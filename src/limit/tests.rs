use std::num::NonZeroU32;

use egret_policy::units::{Quota, Rate};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A limiter and the state directory that it writes to.
struct Kept {
    limiter: Limiter,
    dir: tempfile::TempDir,
}

impl std::ops::Deref for Kept {
    type Target = Limiter;

    fn deref(&self) -> &Limiter {
        &self.limiter
    }
}

impl Kept {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { limiter: Limiter::open(dir.path()).unwrap(), dir }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("limits.ndjson")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }

    /// What another process would find if this one were killed now.
    fn killed(&self) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(self.file(), dir.path().join("limits.ndjson")).unwrap();
        Self { limiter: Limiter::open(dir.path()).unwrap(), dir }
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(std::time::Instant::now() < until, "{what} did not come");
        thread::sleep(Duration::from_millis(20));
    }
}

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
    let limiter = Kept::new();
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
    let limiter = Kept::new();
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
    let limiter = Kept::new();
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
    let limiter = Kept::new();
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
    let limiter = Kept::new();
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
    let limiter = Kept::new();
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
    let limiter = Kept::new();
    let limits = limits(|l| l.connections = Some(1));
    let permit = admit(&limiter, "open", &limits).unwrap();
    drop(admit(&limiter, "gone", &limits).unwrap());
    limiter.forget_idle();
    let left: Vec<_> =
        lock(&limiter.accounts.counted).keys().map(|account| account.sandbox.to_string()).collect();
    assert_eq!(left, ["open"]);
    drop(permit);
    limiter.forget_idle();
    assert!(lock(&limiter.accounts.counted).is_empty());
}

#[test]
fn without_limits_nothing_is_kept() {
    let limiter = Kept::new();
    let permit = admit(&limiter, "a", &Arc::new(Limits::default())).unwrap();
    assert_eq!(permit.meter().take(Direction::Up, 5), 5);
    assert!(lock(&limiter.accounts.counted).is_empty());
}

#[test]
fn a_token_has_its_own_account_beside_the_sandbox() {
    let limiter = Kept::new();
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

#[test]
fn a_kill_gives_nothing_back() {
    let limiter = Kept::new();
    let limits = limits(|l| {
        l.bytes = Some(Quota { amount: 6400, period: HOUR });
        l.domains = Some(Quota { amount: 3, period: HOUR });
        let count = |n| NonZeroU32::new(n).unwrap();
        l.requests = Some(Rate { amount: count(1), period: HOUR, burst: count(5) });
    });
    let permit = admit(&limiter, "a", &limits).unwrap();
    let meter = permit.meter();
    permit.count_host(&host("a.example")).unwrap();
    permit.count_host(&host("b.example")).unwrap();
    assert_eq!(meter.take(Direction::Up, 1000), 1000);
    assert_eq!(meter.take(Direction::Down, 50), 50);
    meter.give_back(Direction::Down, 10);

    let again = limiter.killed();
    let permit = admit(&again, "a", &limits).unwrap();
    permit.count_host(&host("b.example")).unwrap();
    permit.count_host(&host("c.example")).unwrap();
    assert_eq!(permit.count_host(&host("d.example")).unwrap_err().limit, "domains");
    let left = permit.meter().take(Direction::Up, 10_000);
    assert!((6400 - 1100..=6400 - 1040).contains(&left), "{left}");
    assert_eq!((0..5).filter(|_| admit(&again, "b", &limits).is_ok()).count(), 5, "another has its own");
    let refused = admit(&again, "a", &limits).unwrap_err();
    assert_eq!((refused.reason, refused.limit), (Reason::QuotaExceeded, "bytes"));
    assert!(refused.retry_after > HOUR - Duration::from_secs(60) && refused.retry_after <= HOUR);
    let without_bytes = Arc::new(Limits { bytes: None, ..Limits::clone(&limits) });
    assert_eq!((0..5).filter(|_| admit(&again, "a", &without_bytes).is_ok()).count(), 3);
}

#[test]
fn a_kill_gives_no_names_back() {
    let kept = Kept::new();
    let limits = limits(|l| l.dns_names = Some(Quota { amount: 30, period: HOUR }));
    let count = |limiter: &Limiter, sandbox: &str, name: &str| {
        let name = DnsName::parse(name.as_bytes()).unwrap();
        let accounts = [(account(sandbox, None), Arc::clone(&limits))];
        limiter.count_name(&accounts, &name, true).map_err(|exceeded| exceeded.limit)
    };
    for number in 0..20 {
        count(&kept, "a", &format!("n{number}.a.example")).unwrap();
    }
    count(&kept, "a", "q7w8e9r1t2y3u4i5o6p7.b.example").unwrap();
    let again = kept.killed();
    // Those that were asked for are known, and there is room for as many as there were left.
    for number in 0..30 {
        count(&again, "a", &format!("n{number}.a.example")).unwrap();
    }
    assert_eq!(count(&again, "a", "n30.a.example"), Err("dns_names"));
    assert_eq!(count(&again, "b", "n30.a.example"), Ok(()), "another has its own");
    // A file that was written anew says the same.
    again.keeper.fail(&"a test");
    wait_for("the file", || again.is_kept());
    let third = again.killed();
    assert_eq!(count(&third, "a", "n30.a.example"), Err("dns_names"));
    assert_eq!(count(&third, "a", "n29.a.example"), Ok(()));
    for number in 0..20 {
        count(&third, "a", &format!("n{number}.b.example")).unwrap();
    }
    assert_eq!(count(&third, "a", "n20.b.example"), Err("dns_names"), "what looked like data counts as much");
}

#[test]
fn what_was_used_is_exact_a_moment_after_the_last_request() {
    let limiter = Kept::new();
    let limits = limits(|l| l.bytes_down = Some(Quota { amount: 64_000, period: HOUR }));
    let permit = admit(&limiter, "a", &limits).unwrap();
    assert_eq!(permit.meter().take(Direction::Down, 7), 7);
    assert!(limiter.text().contains("\"used\":1007}"), "{}", limiter.text());
    drop(permit);
    wait_for("the exact line", || limiter.text().ends_with("\"used\":7}}\n"));
    let again = limiter.killed();
    let permit = admit(&again, "a", &limits).unwrap();
    assert_eq!(permit.meter().take(Direction::Down, 100_000), 64_000 - 7);
}

#[tokio::test]
async fn a_stop_writes_exactly_what_was_used() {
    let limiter = Kept::new();
    let limits = limits(|l| l.bytes_up = Some(Quota { amount: 64_000, period: HOUR }));
    let permit = admit(&limiter, "a", &limits).unwrap();
    assert_eq!(permit.meter().take(Direction::Up, 7), 7);
    limiter.shutdown().await;
    let text = limiter.text();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.ends_with("\"used\":7}}\n"), "{text}");
}

#[test]
fn a_token_finds_its_own_account_again() {
    let limiter = Kept::new();
    let limits = limits(|l| l.bytes = Some(Quota { amount: 10, period: HOUR }));
    let admit = |limiter: &Limiter, token| limiter.admit([(account("a", token), Arc::clone(&limits))]);
    assert_eq!(admit(&limiter, Some("t1")).unwrap().meter().take(Direction::Up, 10), 10);
    let again = limiter.killed();
    assert!(admit(&again, Some("t1")).is_err());
    assert!(admit(&again, Some("t2")).is_ok());
    assert!(admit(&again, None).is_ok());
}

#[test]
fn a_quota_that_was_changed_meanwhile_counts_what_was_used() {
    let limiter = Kept::new();
    let of = |amount, period| limits(|l| l.bytes = Some(Quota { amount, period }));
    assert_eq!(admit(&limiter, "a", &of(10, HOUR)).unwrap().meter().take(Direction::Up, 10), 10);
    let again = limiter.killed();
    assert!(admit(&again, "a", &of(10, HOUR * 24)).is_err());
    assert!(admit(&again, "a", &of(9, HOUR)).is_err());
    assert_eq!(admit(&again, "a", &of(15, HOUR)).unwrap().meter().take(Direction::Up, 10), 5);
}

#[test]
fn a_damaged_file_is_an_error_and_a_line_that_was_cut_is_not() {
    let limiter = Kept::new();
    let limits = limits(|l| l.bytes = Some(Quota { amount: 10, period: HOUR }));
    assert_eq!(admit(&limiter, "a", &limits).unwrap().meter().take(Direction::Up, 10), 10);
    let whole = limiter.text();
    let open = |text: &str| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("limits.ndjson"), text).unwrap();
        Limiter::open(dir.path())
    };
    assert!(admit(&open(&format!("{whole}{{\"sandbox\":\"b")).unwrap(), "a", &limits).is_err());
    for (text, line) in [
        (format!("{whole}nonsense\n"), whole.lines().count() + 1),
        (format!("{whole}{{\"sandbox\":\"a\",\"policy\":\"p\"}}\n"), whole.lines().count() + 1),
        (whole.replacen("limits/1", "limits/2", 1), 1),
        (String::new(), 1),
        ("{\"schema\":\"egret.limits/1\"".to_owned(), 1),
    ] {
        match open(&text) {
            Err(LimitsError::Line { line: found, .. }) => assert_eq!(found, line, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn what_can_not_be_written_counts_all_the_same_and_is_written_later() {
    let limiter = Kept::new();
    let limits = limits(|l| l.bytes = Some(Quota { amount: 100, period: HOUR }));
    assert!(limiter.is_kept());
    limiter.keeper.fail(&"no space");
    // A folder is in the way of the next file.
    let draft = limiter.dir.path().join("limits.ndjson.new");
    std::fs::create_dir(&draft).unwrap();
    let meter = admit(&limiter, "a", &limits).unwrap().meter();
    assert_eq!(meter.take(Direction::Up, 90), 90);
    thread::sleep(Duration::from_millis(1200));
    assert!(!limiter.is_kept());
    assert_eq!(meter.take(Direction::Up, 90), 10);
    std::fs::remove_dir(&draft).unwrap();
    wait_for("a new file", || limiter.is_kept());
    assert!(admit(&limiter.killed(), "a", &limits).is_err());
}

#[test]
fn the_file_is_replaced_when_most_of_it_is_outdated() {
    let limiter = Kept::new();
    let limits = limits(|l| l.bytes = Some(Quota { amount: u64::MAX, period: HOUR }));
    let meter = admit(&limiter, "a", &limits).unwrap().meter();
    let first = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(limiter.file()).unwrap());
    // Each of these is more than what is written down ahead.
    let mut taken = 0;
    let replaced =
        || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(limiter.file()).unwrap()) != first;
    while !replaced() {
        for _ in 0..100 {
            taken += meter.take(Direction::Up, 5 << 20);
        }
    }
    taken += meter.take(Direction::Up, 5 << 20);
    let again = limiter.killed();
    let used = u64::MAX
        - u64::try_from(admit(&again, "a", &limits).unwrap().meter().take(Direction::Up, usize::MAX))
            .unwrap();
    let taken = u64::try_from(taken).unwrap();
    assert!(used >= taken && used - taken <= 4 << 20, "{used} of {taken}");
    assert!(limiter.text().len() < 2 << 20);
}

#[test]
fn many_accounts_are_bounded() {
    let limiter = Kept::new();
    let limits = limits(|l| l.connections = Some(1));
    {
        let mut all = lock(&limiter.accounts.counted);
        for number in 0..MOST_ACCOUNTS {
            let account = account(&number.to_string(), None);
            all.insert(account.clone(), Counted::new(account, &limiter.keeper));
        }
    }
    let known = admit(&limiter, "7", &limits).unwrap();
    let first = admit(&limiter, "new", &limits).unwrap();
    assert!(admit(&limiter, "newer", &limits).is_err(), "they share an account");
    assert_eq!(lock(&limiter.accounts.counted).len(), MOST_ACCOUNTS + 1);
    drop((known, first));
    limiter.forget_idle();
    assert!(lock(&limiter.accounts.counted).is_empty());
}

#[test]
fn however_much_there_is_to_say_a_restart_reads_it() {
    let kept = Kept::new();
    let quota = Quota { amount: 1_000_000, period: HOUR };
    let limits = limits(|l| l.domains = Some(quota));
    // More than the queue takes at a time, in all.
    let hosts = 30_000;
    for sandbox in 0..16 {
        let sandbox = sandbox.to_string();
        drop(admit(&kept, &sandbox, &limits).unwrap());
        let counted = kept.counted(account(&sandbox, None));
        let mut state = lock(&counted.sandbox);
        (0..hosts).for_each(|host| state.count_host(u64::MAX - host, quota, Now::read()).unwrap());
    }
    kept.keeper.fail(&"a test");
    wait_for("the file", || kept.is_kept());
    let again = kept.killed();
    for sandbox in 0..16 {
        let counted = again.counted(account(&sandbox.to_string(), None));
        let used = lock(&counted.sandbox).all(Now::read());
        assert_eq!(used.len() as u64, hosts.div_ceil(256), "lines about {sandbox}");
    }
}
