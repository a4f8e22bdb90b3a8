//! The latest decisions in memory, and those who listen to records as they are written. Bounded,
//! whatever the listeners do; nobody waits for them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::record::{Record, What};

/// Decisions that are kept.
pub const RECENT_DECISIONS: usize = 4096;
/// Records that wait for one listener.
const WAITING: usize = 1024;
/// Listeners at a time.
const LISTENERS: usize = 16;

/// Which decisions are asked for. An absent condition is met by all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The sandbox ID.
    pub sandbox: Option<String>,
    /// The word for the verdict.
    pub verdict: Option<String>,
    /// The reason code.
    pub reason: Option<String>,
    /// The canonical host.
    pub host: Option<String>,
    /// The earliest time, as records write it.
    pub since: Option<String>,
    /// At most so many.
    pub limit: usize,
}

/// What a listener gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A record, as it stands in the audit file.
    Record(Arc<str>),
    /// So many records were not sent, because the listener was slow.
    Dropped(u64),
    /// Nothing has happened for a while.
    Alive,
}

/// A listener's end. Dropping it ends the listening.
pub type Listener = mpsc::Receiver<Message>;

#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Their lines alone: they are asked for seldom, and read again then.
    decisions: VecDeque<Arc<str>>,
    listeners: Vec<Speaker>,
    closed: bool,
}

/// Our end of a listener.
#[derive(Debug)]
struct Speaker {
    channel: mpsc::Sender<Message>,
    dropped: u64,
}

impl Recent {
    /// Tells everybody of records that were folded.
    pub(super) fn publish(&self, records: Vec<(Record, String)>) {
        let mut state = self.lock();
        for (record, line) in records {
            let line: Arc<str> = line.into();
            state.tell(&Message::Record(Arc::clone(&line)));
            if let What::Decision(_) = record.what {
                if state.decisions.len() >= RECENT_DECISIONS {
                    state.decisions.pop_front();
                }
                state.decisions.push_back(line);
            }
        }
    }

    /// Lets listeners know that they still listen, and finds those who don't.
    pub(super) fn keep_alive(&self) {
        self.lock().tell(&Message::Alive);
    }

    pub(super) fn has_listeners(&self) -> bool {
        !self.lock().listeners.is_empty()
    }

    /// A new listener, unless there are too many.
    pub(super) fn listen(&self) -> Option<Listener> {
        let mut state = self.lock();
        state.listeners.retain(|speaker| !speaker.channel.is_closed());
        if state.closed || state.listeners.len() >= LISTENERS {
            return None;
        }
        let (channel, listener) = mpsc::channel(WAITING);
        state.listeners.push(Speaker { channel, dropped: 0 });
        Some(listener)
    }

    /// The latest decisions that fit, newest first, as they stand in the audit file.
    pub(super) fn decisions(&self, filter: &Filter) -> Vec<Arc<str>> {
        let kept: Vec<_> = self.lock().decisions.iter().rev().cloned().collect();
        kept.into_iter().filter(|line| filter.takes(line)).take(filter.limit).collect()
    }

    /// Ends all listening.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.listeners.clear();
    }

    /// Plain data that is whole between any two statements.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tell(&mut self, message: &Message) {
        self.listeners.retain_mut(|speaker| speaker.tell(message));
    }
}

impl Speaker {
    /// False if nobody listens any more.
    fn tell(&mut self, message: &Message) -> bool {
        if self.dropped > 0 {
            match self.channel.try_send(Message::Dropped(self.dropped)) {
                Ok(()) => self.dropped = 0,
                Err(TrySendError::Closed(_)) => return false,
                Err(TrySendError::Full(_)) => {}
            }
        }
        match self.channel.try_send(message.clone()) {
            Ok(()) => true,
            Err(TrySendError::Closed(_)) => false,
            Err(TrySendError::Full(_)) => {
                self.dropped += u64::from(*message != Message::Alive);
                true
            }
        }
    }
}

impl Filter {
    /// Is the line a decision that is asked for?
    fn takes(&self, line: &str) -> bool {
        fn is(wanted: &Option<String>, found: Option<&str>) -> bool {
            wanted.as_deref().is_none_or(|wanted| Some(wanted) == found)
        }
        let Some(Record { ts, what: What::Decision(decision), .. }) = Record::parse(line.as_bytes()) else {
            return false;
        };
        let host = decision.destination.as_ref().map(|(host, _)| host.as_str());
        is(&self.sandbox, decision.sandbox.as_deref())
            && is(&self.verdict, Some(decision.verdict.word()))
            && is(&self.reason, Some(&decision.reason))
            && is(&self.host, host)
            && self.since.as_deref().is_none_or(|since| ts.as_str() >= since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: usize) -> (Record, String) {
        let (sandbox, verdict) = if number.is_multiple_of(2) { ("even", "allow") } else { ("odd", "deny") };
        let line = format!(
            "{{\"seq\":{number},\"ts\":\"2026-01-01T00:00:{:02}.000000Z\",\"event\":\"decision\",\"id\":\"i{number}\",\"sandbox\":\"{sandbox}\",\"host\":\"h{number}\",\"port\":80,\"verdict\":\"{verdict}\",\"reason\":\"r\"}}",
            number % 60
        );
        (Record::parse(line.as_bytes()).unwrap(), line)
    }

    fn all() -> Filter {
        Filter { limit: usize::MAX, ..Filter::default() }
    }

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let recent = Recent::default();
        recent.publish((1..=RECENT_DECISIONS + 5).map(record).collect());
        let found = recent.decisions(&all());
        assert_eq!(found.len(), RECENT_DECISIONS);
        assert_eq!(&*found[0], record(RECENT_DECISIONS + 5).1);
        assert_eq!(&*found[RECENT_DECISIONS - 1], record(6).1);
    }

    #[test]
    fn every_condition_must_be_met() {
        let recent = Recent::default();
        recent.publish((1..=40).map(record).collect());
        let count = |filter: Filter| recent.decisions(&filter).len();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(count(Filter { sandbox: some("even"), ..all() }), 20);
        assert_eq!(count(Filter { sandbox: some("even"), verdict: some("deny"), ..all() }), 0);
        assert_eq!(count(Filter { host: some("h7"), ..all() }), 1);
        assert_eq!(count(Filter { reason: some("x"), ..all() }), 0);
        assert_eq!(count(Filter { since: some("2026-01-01T00:00:31.000000Z"), ..all() }), 10);
        assert_eq!(count(Filter { limit: 3, ..Filter::default() }), 3);
    }

    #[test]
    fn a_slow_listener_is_told_what_it_missed() {
        let recent = Recent::default();
        let mut listener = recent.listen().unwrap();
        recent.publish((1..=WAITING + 10).map(record).collect());
        for number in 1..=WAITING {
            assert_eq!(listener.try_recv().unwrap(), Message::Record(record(number).1.into()));
        }
        recent.publish(vec![record(1)]);
        assert_eq!(listener.try_recv().unwrap(), Message::Dropped(10));
        assert_eq!(listener.try_recv().unwrap(), Message::Record(record(1).1.into()));
    }

    #[test]
    fn listeners_are_few_and_leave_room_when_they_go() {
        let recent = Recent::default();
        let listeners: Vec<_> = (0..LISTENERS).map(|_| recent.listen().unwrap()).collect();
        assert!(recent.listen().is_none());
        drop(listeners);
        let mut listener = recent.listen().unwrap();
        recent.close();
        assert_eq!(listener.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
        assert!(recent.listen().is_none());
    }
}
