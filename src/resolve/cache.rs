//! Whole answers, remembered for as long as they may be, and one look-up at a time per name.
//!
//! Both families are kept together, so they expire together and every request between two
//! look-ups is judged by the same addresses. Bounded: the entries that nobody asked for lately
//! are dropped first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;
use tokio::time::Instant;

/// One name's entry. Empty while its first user looks the name up; the others wait for that.
/// When that user is cancelled, one of the waiting takes over.
pub(super) type Slot<T> = OnceCell<Stored<T>>;

/// A result and the end of its life.
#[derive(Debug)]
pub(super) struct Stored<T> {
    pub(super) value: T,
    /// At this moment and later the value serves only those who already wait for it.
    pub(super) expires: Instant,
}

/// At most `capacity` names, in two generations: names are added to the young one; when that is
/// half the capacity it becomes the old one, and the old one is forgotten.
#[derive(Debug)]
pub(super) struct Cache<T> {
    half: usize,
    generations: Mutex<Generations<T>>,
}

type Names<T> = HashMap<Box<str>, Arc<Slot<T>>>;

#[derive(Debug)]
struct Generations<T> {
    young: Names<T>,
    old: Names<T>,
}

impl<T> Cache<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let generations = Generations { young: HashMap::new(), old: HashMap::new() };
        Self { half: (capacity / 2).max(1), generations: Mutex::new(generations) }
    }

    /// The entry of `name`: one that is being filled or is fresh at `now`, else an empty one.
    pub(super) fn slot(&self, name: &str, now: Instant) -> Arc<Slot<T>> {
        // Nothing below panics half-way, so a poisoned map is a sound map.
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = generations.young.get(name)
            && usable(slot, now)
        {
            return Arc::clone(slot);
        }
        let kept = generations.old.remove(name).filter(|slot| usable(slot, now));
        let slot = kept.unwrap_or_default();
        if generations.young.len() >= self.half {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(name.into(), Arc::clone(&slot));
        slot
    }

    /// A fresh value, if there is one; makes no entry.
    pub(super) fn fresh<V>(&self, name: &str, now: Instant, read: impl FnOnce(&Stored<T>) -> V) -> Option<V> {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = generations.young.get(name).or_else(|| generations.old.get(name))?;
        slot.get().filter(|stored| now < stored.expires).map(read)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.young.len() + generations.old.len()
    }
}

fn usable<T>(slot: &Slot<T>, now: Instant) -> bool {
    slot.get().is_none_or(|stored| now < stored.expires)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    fn fill(cache: &Cache<u32>, name: &str, value: u32, now: Instant, life: u64) {
        let stored = Stored { value, expires: now + Duration::from_secs(life) };
        cache.slot(name, now).set(stored).unwrap();
    }

    fn value(cache: &Cache<u32>, name: &str, now: Instant) -> Option<u32> {
        cache.slot(name, now).get().map(|stored| stored.value)
    }

    #[test]
    fn fresh_entries_are_kept_and_expired_ones_replaced() {
        let (cache, now) = (Cache::new(8), Instant::now());
        fill(&cache, "a", 1, now, 5);
        assert_eq!(value(&cache, "a", now + Duration::from_secs(4)), Some(1));
        assert_eq!(value(&cache, "a", now + Duration::from_secs(5)), None);
    }

    #[test]
    fn no_life_means_no_later_use() {
        let (cache, now) = (Cache::new(8), Instant::now());
        fill(&cache, "a", 1, now, 0);
        assert_eq!(value(&cache, "a", now), None);
    }

    #[test]
    fn an_entry_in_the_making_is_shared() {
        let (cache, now) = (Cache::<u32>::new(8), Instant::now());
        assert!(Arc::ptr_eq(&cache.slot("a", now), &cache.slot("a", now)));
    }

    #[test]
    fn bounded_and_what_is_used_stays() {
        let (cache, now) = (Cache::new(8), Instant::now());
        fill(&cache, "hot", 1, now, 60);
        for n in 0..100 {
            fill(&cache, &format!("cold{n}"), n, now, 60);
            assert!(cache.len() <= 8);
            assert_eq!(value(&cache, "hot", now), Some(1), "after {n}");
        }
        assert_eq!(value(&cache, "cold0", now), None);
    }
}
