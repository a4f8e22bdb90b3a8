//! Look-ups of one sandbox that wait for DNS at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most look-ups of one sandbox that may wait for DNS at once.
const PER_SANDBOX: usize = 64;

/// Turns by sandbox; a sandbox without a look-up takes no room after the next tidying.
#[derive(Debug)]
pub(super) struct Turns {
    sandboxes: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
    each: usize,
}

/// A turn; dropping it lets the next look-up go.
#[derive(Debug)]
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    _turns: Arc<Semaphore>,
}

impl Turns {
    /// Turns where `in_all` look-ups may wait together: one sandbox gets no more than half.
    pub(super) fn new(in_all: usize) -> Self {
        Self { sandboxes: Mutex::default(), each: (in_all / 2).clamp(1, PER_SANDBOX) }
    }

    /// Waits for a turn, but no longer than a look-up may take.
    pub(super) async fn take(&self, sandbox: &Arc<str>, patience: Duration) -> Option<Turn> {
        let turns = self.of(sandbox);
        let permit = tokio::time::timeout(patience, Arc::clone(&turns).acquire_owned()).await.ok()?.ok()?;
        Some(Turn { _permit: permit, _turns: turns })
    }

    fn of(&self, sandbox: &Arc<str>) -> Arc<Semaphore> {
        let mut map = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = map.get(sandbox).and_then(Weak::upgrade) {
            return turns;
        }
        if map.len() >= 1024 && map.len() == map.capacity() {
            map.retain(|_, turns| turns.strong_count() > 0);
        }
        let turns = Arc::new(Semaphore::new(self.each));
        map.insert(Arc::clone(sandbox), Arc::downgrade(&turns));
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_sandbox_waits_for_its_own_turns_only() {
        let turns = Turns::new(8);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(turns.take(&a, Duration::from_secs(5)).await.unwrap());
        }
        assert!(turns.take(&a, Duration::from_millis(20)).await.is_none());
        assert!(turns.take(&b, Duration::from_millis(20)).await.is_some());
        held.pop();
        assert!(turns.take(&a, Duration::from_secs(5)).await.is_some());
    }
}
