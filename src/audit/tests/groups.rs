//! Who writes: a caller for all that are ready, and the thread where no caller can.

use super::*;

/// Waits until callers may write themselves.
async fn settled(audit: &Audit) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !audit.shared.queue.is_direct() {
        assert!(Instant::now() < deadline, "callers never get to write");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn callers_that_are_ready_together_share_a_write() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    settled(&audit).await;
    let before = audit.counters().batches.get();
    let attempts: Vec<_> = (0..100).map(|_| tokio::spawn(attempt(&audit).refuse())).collect();
    for attempt in attempts {
        attempt.await.unwrap().unwrap();
    }
    // Ready together, on one thread: one write, were it not for the thread that looks in between.
    assert!(audit.counters().batches.get() - before < 10);
    audit.shutdown().await.unwrap();
    let records = records(&file);
    assert_numbered(&records);
    assert_eq!(of_event(&records, "decision").len(), 100);
}

#[tokio::test]
async fn what_a_caller_left_is_written_by_the_thread() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    settled(&audit).await;
    let mut leader = Box::pin(attempt(&audit).refuse());
    assert!(poll_once(&mut leader).await.is_none(), "the first caller gives the others a moment");
    let follower = tokio::spawn(attempt(&audit).refuse());
    tokio::task::yield_now().await;
    drop(leader);
    follower.await.unwrap().unwrap();
    audit.shutdown().await.unwrap();
    assert_eq!(of_event(&records(&file), "decision").len(), 2);
}

#[tokio::test]
async fn a_writer_that_is_busy_is_left_to_the_thread() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    settled(&audit).await;
    let held = Arc::clone(&audit.shared.writer);
    let (locked, is_locked) = tokio::sync::oneshot::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        let _writer = held.lock().unwrap();
        locked.send(()).unwrap();
        released.recv().unwrap();
    });
    is_locked.await.unwrap();
    let waiting = tokio::spawn(attempt(&audit).refuse());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    release.send(()).unwrap();
    holder.join().unwrap();
    waiting.await.unwrap().unwrap();
    audit.shutdown().await.unwrap();
    assert_eq!(of_event(&records(&file), "decision").len(), 1);
}

#[tokio::test]
async fn a_pipe_is_left_to_the_thread() {
    let audit = open("/dev/null");
    attempt(&audit).refuse().await.unwrap();
    assert!(!audit.shared.queue.is_direct());
    audit.shutdown().await.unwrap();
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}
