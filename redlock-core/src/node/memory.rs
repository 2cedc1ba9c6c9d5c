//! A node in the memory of this process.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::{Answer, Claim, Listening, LockName, Node, Notify, Ready};
use crate::clock::{Clock, Moment, SystemClock};
use crate::error::{ForeignKind, Vote};

/// Locks in the memory of this process: for examples, tests and services that run as one copy.
///
/// Behaves as a Redis does, but for what a network adds. Cloning is cheap, and the clones share
/// their locks: managers that are built over the same `MemoryNode` exclude each other, as two
/// copies of a service on one Redis do.
///
/// # Examples
///
/// ```
/// use redlock_core::{LockManager, MemoryNode};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let node = MemoryNode::new();
/// let one = LockManager::builder().memory_node(&node).connect().await?;
/// let other = LockManager::builder().memory_node(&node).connect().await?;
///
/// let guard = one.lock("order:42").try_acquire().await?;
/// assert!(other.lock("order:42").try_acquire().await.unwrap_err().is_contended());
/// guard.release().await?;
/// assert!(node.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryNode {
    store: Arc<Store>,
}

struct Store {
    name: Arc<str>,
    clock: Arc<dyn Clock>,
    locks: Mutex<Locks>,
}

#[derive(Default)]
struct Locks {
    by_name: HashMap<String, Entry>,
    listeners: HashMap<LockName, Vec<(u64, Notify)>>,
    next_listener: u64,
    /// The fencing counters, by name.
    counters: HashMap<String, i64>,
    /// How many locks there may be before those that have run out are swept away: a lock that is
    /// never asked for again would stay for ever.
    sweep_at: usize,
}

struct Entry {
    claim: Arc<Claim>,
    deadline: Moment,
}

impl MemoryNode {
    /// Makes an empty node.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    pub(crate) fn with_clock(clock: Arc<dyn Clock>) -> Self {
        // Numbered, so that votes tell several apart.
        static COUNT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("memory-{}", COUNT.fetch_add(1, Ordering::Relaxed)).into();
        let store = Store { name, clock, locks: Mutex::default() };
        Self { store: Arc::new(store) }
    }

    /// What is left of the lease of a lock, by its name on the node (with the prefix, if the
    /// manager has one). `None` where it is free.
    pub fn time_to_live(&self, name: &str) -> Option<Duration> {
        let now = self.store.clock.now();
        let locks = self.store.locks.lock();
        let left = now.until(locks.by_name.get(name)?.deadline);
        (!left.is_zero()).then_some(left)
    }

    /// Whether both share their locks.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.store, &other.store)
    }

    /// How many locks are held.
    pub fn len(&self) -> usize {
        let now = self.store.clock.now();
        let locks = self.store.locks.lock();
        locks.by_name.values().filter(|entry| !now.until(entry.deadline).is_zero()).count()
    }

    /// Whether no lock is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
impl MemoryNode {
    /// As if a lock of this name had been released.
    pub(crate) fn announce(&self, name: &LockName) {
        let to_notify: Vec<Notify> = self.store.locks.lock().listeners[name]
            .iter()
            .map(|(_, notify)| Arc::clone(notify))
            .collect();
        for notify in to_notify {
            notify();
        }
    }

    /// How many listen for the release of any lock.
    pub(crate) fn listeners(&self) -> usize {
        self.store.locks.lock().listeners.values().map(Vec::len).sum()
    }
}

impl Default for MemoryNode {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode").field("len", &self.len()).finish()
    }
}

impl Locks {
    /// Not below the time in microseconds, so that it grows although this process starts anew.
    fn next_number(&mut self, counter: &str) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let floor = i64::try_from(now.as_micros()).unwrap_or_default();
        let count = self.counters.entry(counter.to_owned()).or_default();
        *count = floor.max(*count) + 1;
        *count
    }

    fn sweep(&mut self, now: Moment) {
        const SMALLEST: usize = 64;
        if self.by_name.len() >= self.sweep_at.max(SMALLEST) {
            self.by_name.retain(|_, entry| !now.until(entry.deadline).is_zero());
            self.sweep_at = self.by_name.len() * 2;
        }
    }
}

impl MemoryNode {
    /// The entry of the claim's name: whose it is, and until when.
    fn vote<R>(
        &self,
        claim: &Claim,
        vote: impl FnOnce(&mut Locks, Option<Holder>, Moment) -> R,
    ) -> R {
        let mut locks = self.store.locks.lock();
        // Read under the lock, so that no two callers see the time in another order than the map.
        let now = self.store.clock.now();
        let holder = locks.by_name.get(claim.name().as_str()).and_then(|entry| {
            let remaining = now.until(entry.deadline);
            (!remaining.is_zero()).then_some(if entry.claim.dialect() != claim.dialect() {
                Holder::Foreign
            } else if entry.claim.token() == claim.token() {
                Holder::Own { remaining }
            } else {
                Holder::Other { remaining }
            })
        });
        vote(&mut locks, holder, now)
    }
}

enum Holder {
    Own {
        remaining: Duration,
    },
    Other {
        remaining: Duration,
    },
    /// One of another dialect: on a server the key would be of another type.
    Foreign,
}

const FOREIGN: Vote = Vote::Foreign { found: ForeignKind::WrongType };

impl Node for MemoryNode {
    fn name(&self) -> &Arc<str> {
        &self.store.name
    }

    fn acquire(&self, claim: &Arc<Claim>, expire: Duration) -> Answer {
        let vote = self.vote(claim, |locks, holder, now| match holder {
            Some(Holder::Own { remaining } | Holder::Other { remaining }) => {
                Vote::Held { remaining: Some(remaining) }
            }
            Some(Holder::Foreign) => FOREIGN,
            None => {
                locks.sweep(now);
                if let Some(counter) = claim.counter() {
                    claim.note_number(locks.next_number(counter));
                }
                let entry = Entry { claim: Arc::clone(claim), deadline: now.after(expire) };
                locks.by_name.insert(claim.name().as_str().to_owned(), entry);
                Vote::Granted
            }
        });
        Answer::Ready(vote)
    }

    fn extend(&self, claim: &Arc<Claim>, expire: Duration) -> Answer {
        let vote = self.vote(claim, |locks, holder, now| match holder {
            Some(Holder::Own { remaining }) => {
                if remaining < expire
                    && let Some(entry) = locks.by_name.get_mut(claim.name().as_str())
                {
                    entry.deadline = now.after(expire);
                }
                Vote::Granted
            }
            Some(Holder::Foreign) => FOREIGN,
            Some(Holder::Other { .. }) | None => Vote::Gone,
        });
        Answer::Ready(vote)
    }

    fn confirm(&self, claim: &Arc<Claim>, number: i64) -> Answer {
        let vote = self.vote(claim, |locks, holder, _| match holder {
            Some(Holder::Own { .. }) => {
                if let Some(counter) = claim.counter() {
                    let count = locks.counters.entry(counter.to_owned()).or_default();
                    *count = number.max(*count);
                }
                Vote::Granted
            }
            Some(Holder::Foreign) => FOREIGN,
            Some(Holder::Other { .. }) | None => Vote::Gone,
        });
        Answer::Ready(vote)
    }

    fn release(&self, claim: &Arc<Claim>) -> Answer {
        let (vote, to_notify) = self.vote(claim, |locks, holder, now| match holder {
            Some(Holder::Own { remaining }) => {
                match (claim.stays_for(), locks.by_name.get_mut(claim.name().as_str())) {
                    (Some(stays), Some(entry)) => entry.deadline = now.after(stays.min(remaining)),
                    _ => {
                        locks.by_name.remove(claim.name().as_str());
                    }
                }
                let listeners = locks.listeners.get(claim.name());
                let to_notify: Vec<Notify> = listeners
                    .map(|listeners| {
                        listeners.iter().map(|(_, notify)| Arc::clone(notify)).collect()
                    })
                    .unwrap_or_default();
                (Vote::Granted, to_notify)
            }
            Some(Holder::Foreign) => (FOREIGN, Vec::new()),
            Some(Holder::Other { .. }) | None => (Vote::Gone, Vec::new()),
        });
        claim.note_listeners(to_notify.len());
        for notify in to_notify {
            notify();
        }
        Answer::Ready(vote)
    }

    fn listen(&self, name: &LockName, notify: Notify) -> (Listening, Ready) {
        let mut locks = self.store.locks.lock();
        let id = locks.next_listener;
        locks.next_listener += 1;
        locks.listeners.entry(name.clone()).or_default().push((id, notify));
        let (store, name) = (Arc::clone(&self.store), name.clone());
        let listening = Listening::new(move || {
            let mut locks = store.locks.lock();
            if let Some(listeners) = locks.listeners.get_mut(&name) {
                listeners.retain(|(other, _)| *other != id);
                if listeners.is_empty() {
                    locks.listeners.remove(&name);
                }
            }
        });
        (listening, Box::pin(std::future::ready(())))
    }

    fn is_cluster(&self) -> bool {
        false
    }

    fn is_up(&self) -> bool {
        true
    }

    fn recovered(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::fake::FakeClock;
    use crate::key::LockKey;
    use crate::node::Dialect;

    fn claim(key: &str) -> Arc<Claim> {
        spoken(Dialect::Plain, key)
    }

    fn spoken(dialect: Dialect, key: &str) -> Arc<Claim> {
        let key = LockKey::new(key).unwrap();
        Arc::new(Claim::new(LockName::new("", &key, dialect), key))
    }

    fn now(answer: Answer) -> Vote {
        use futures_util::FutureExt;
        answer.now_or_never().unwrap()
    }

    #[test]
    fn a_lock_frees_itself_when_its_lease_is_over() {
        let clock = FakeClock::default();
        let node = MemoryNode::with_clock(Arc::new(clock.clone()));
        let (first, second) = (claim("a"), claim("a"));
        let lease = Duration::from_secs(5);
        assert_eq!(now(node.acquire(&first, lease)), Vote::Granted);
        clock.advance(Duration::from_secs(2));
        let held = Vote::Held { remaining: Some(Duration::from_secs(3)) };
        assert_eq!(now(node.acquire(&second, lease)), held);
        assert_eq!(node.time_to_live("a"), Some(Duration::from_secs(3)));
        clock.advance(Duration::from_secs(3));
        assert!(node.is_empty());
        assert_eq!(now(node.acquire(&second, lease)), Vote::Granted);
        assert_eq!(now(node.release(&first)), Vote::Gone);
        assert_eq!(now(node.extend(&first, lease)), Vote::Gone);
        assert_eq!(node.len(), 1);
    }

    /// As on a server, where the one is a string and the other a hash.
    #[test]
    fn a_lock_of_another_dialect_is_foreign() {
        for (one, other) in
            [(Dialect::Plain, Dialect::Redisson), (Dialect::Redisson, Dialect::Plain)]
        {
            let node = MemoryNode::new();
            let (holder, stranger) = (spoken(one, "a"), spoken(other, "a"));
            let lease = Duration::from_secs(5);
            assert_eq!(now(node.acquire(&holder, lease)), Vote::Granted);
            assert_eq!(now(node.acquire(&stranger, lease)), FOREIGN);
            assert_eq!(now(node.extend(&stranger, lease)), FOREIGN);
            assert_eq!(now(node.release(&stranger)), FOREIGN);
            assert_eq!(now(node.release(&holder)), Vote::Granted);
            assert_eq!(now(node.acquire(&stranger, lease)), Vote::Granted);
        }
    }

    /// Waiters come and go, for ever new locks.
    #[test]
    fn nothing_is_kept_of_a_lock_that_nobody_listens_for() {
        let node = MemoryNode::new();
        for number in 0..100 {
            let name = claim(&format!("lock:{number}")).name().clone();
            let [first, second] = [(), ()].map(|()| node.listen(&name, Arc::new(|| {})).0);
            drop(first);
            assert_eq!(node.listeners(), 1);
            drop(second);
        }
        assert!(node.store.locks.lock().listeners.is_empty());
    }

    /// Locks that run out and are never asked for again do not pile up.
    #[test]
    fn what_has_run_out_is_swept_away() {
        let clock = FakeClock::default();
        let node = MemoryNode::with_clock(Arc::new(clock.clone()));
        for number in 0..10_000 {
            now(node.acquire(&claim(&format!("lock:{number}")), Duration::from_millis(10)));
            clock.advance(Duration::from_millis(1));
        }
        let kept = node.store.locks.lock().by_name.len();
        assert!(kept <= 100, "{kept}");
    }
}
