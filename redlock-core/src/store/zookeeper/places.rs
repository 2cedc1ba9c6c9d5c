//! The places of this process in the queues of the locks that it waits for.
//!
//! From the first subscription to the end of the last one, a task keeps one znode in the queue of the lock. It watches the
//! znode in front of it. When the place is the first one, the task notifies the subscribers, and an acquisition turns the
//! place into the lock. Without a place, callers would starve beside the waiters of other processes, which have one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::RngExt;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::path;
use super::requests::RequestError;
use super::znodes::{HolderData, Listed, NO_NODE, Znode, Znodes};
use crate::clock::Moment;
use crate::lock::OwnerLabel;
use crate::node::{Notify, Subscription};
use crate::random::with_random;

/// How long the first place is offered to an acquisition. It keeps everybody else out.
const OFFERED: Duration = Duration::from_secs(1);
/// How long there is no place after one has ended, unless an acquisition is refused before.
const PAUSE: Duration = Duration::from_secs(1);

/// The places of this process, by the names of the locks.
pub(super) struct Places {
    znodes: Arc<Znodes>,
    by_name: Mutex<HashMap<Box<str>, Arc<QueuePlace>, ahash::RandomState>>,
}

/// The place in the queue of one lock.
struct QueuePlace {
    state: watch::Sender<PlaceState>,
    subscribers: Mutex<Vec<(u64, Notify)>>,
    /// Cancelled at the end of the last subscription.
    ended: CancellationToken,
}

#[derive(Clone)]
pub(super) enum PlaceState {
    /// The znode is being made, or its position is not known.
    Entering,
    /// The lease of the holder that the place has met ends at this moment, unless it is extended. The holder has this label.
    Behind(Option<Moment>, Option<OwnerLabel>),
    /// So many other processes wait behind it.
    First(Znode, usize),
    /// There is no znode: an acquisition has taken it, it could not be made, or nobody has taken it.
    Absent,
}

impl Places {
    pub(super) fn new(znodes: &Arc<Znodes>) -> Arc<Self> {
        Arc::new(Self { znodes: Arc::clone(znodes), by_name: Mutex::default() })
    }

    /// Keeps a place in the queue of a lock, until the subscription ends.
    pub(super) fn subscribe(self: &Arc<Self>, name: &str, notify: Notify) -> Subscription {
        let znodes = &self.znodes;
        let mut places = self.by_name.lock();
        let place = places.entry(name.into()).or_insert_with(|| {
            let place = Arc::new(QueuePlace {
                state: watch::Sender::new(PlaceState::Entering),
                subscribers: Mutex::default(),
                ended: CancellationToken::new(),
            });
            znodes.spawn(Arc::clone(&place).keep(Arc::clone(znodes), znodes.folder(name)));
            place
        });
        let id = with_random(RngExt::random);
        place.subscribers.lock().push((id, notify));
        let mut state = place.state.subscribe();
        let (places, name) = (Arc::clone(self), Box::from(name));
        Subscription::new(move || places.unsubscribe(&name, id)).ready_after(async move {
            // The place exists as long as the subscription.
            let _ = state.wait_for(|state| !matches!(state, PlaceState::Entering)).await;
        })
    }

    fn unsubscribe(&self, name: &str, id: u64) {
        let mut places = self.by_name.lock();
        let Some(place) = places.get(name) else { return };
        let mut subscribers = place.subscribers.lock();
        subscribers.retain(|(other, _)| *other != id);
        if subscribers.is_empty() {
            drop(subscribers);
            if let Some(place) = places.remove(name) {
                place.ended.cancel();
            }
        }
    }

    /// Returns the state of the place in the queue of a lock, and takes the place if it is the first one.
    pub(super) fn claim(&self, name: &str) -> Option<PlaceState> {
        let place = Arc::clone(self.by_name.lock().get(name)?);
        let mut claimed = None;
        place.state.send_if_modified(|state| {
            let is_first = matches!(state, PlaceState::First(..));
            claimed = Some(state.clone());
            if is_first {
                *state = PlaceState::Absent;
            }
            is_first
        });
        claimed
    }

    /// Returns whether this process waits for a lock.
    pub(super) fn exist(&self, name: &str) -> bool {
        self.by_name.lock().contains_key(name)
    }

    /// Makes a new place at once, because an acquisition was refused.
    pub(super) fn refused(&self, name: &str) {
        if let Some(place) = self.by_name.lock().get(name) {
            place.enter();
        }
    }
}

impl QueuePlace {
    /// Leaves the state without a znode.
    fn enter(&self) {
        self.state.send_if_modified(|state| {
            let is_absent = matches!(state, PlaceState::Absent);
            if is_absent {
                *state = PlaceState::Entering;
            }
            is_absent
        });
    }

    /// Keeps a place until there are no subscriptions.
    async fn keep(self: Arc<Self>, znodes: Arc<Znodes>, folder: Arc<str>) {
        while self.unless_ended(znodes.session.connected()).await.is_some() {
            // To its end, so that no znode is left behind.
            let prefix = path::prefix_of(with_random(RngExt::random));
            match znodes.enter(&folder, &prefix, &[]).await {
                Ok((znode, listed)) => {
                    if !self.wait(&znodes, &folder, &znode, listed).await {
                        // An acquisition asks the servers, and may want the next place already.
                        self.state.send_replace(PlaceState::Absent);
                        // It would keep out everybody, also the next place.
                        znodes.remove(&znode).await;
                    }
                }
                Err(_) => drop(self.state.send_replace(PlaceState::Absent)),
            }
            let mut state = self.state.subscribe();
            let refused = state.wait_for(|state| matches!(state, PlaceState::Entering));
            let pause = async {
                tokio::select! {
                    _ = refused => {}
                    () = sleep(PAUSE) => {}
                }
            };
            self.unless_ended(pause).await;
            self.enter();
        }
    }

    /// Waits until the znode is the first one and an acquisition has taken it. Returns `false` if the znode is not needed any
    /// more, or cannot be used.
    async fn wait(&self, znodes: &Znodes, folder: &str, znode: &Znode, mut listed: Listed) -> bool {
        loop {
            match listed.queue.position(&znode.prefix) {
                None => return false,
                Some((0, _)) => return self.offer(znode, listed.queue.others()).await,
                Some((_, front)) => {
                    let front = format!("{folder}/{}", front.unwrap_or_default());
                    let watch = znodes.session.link().and_then(|link| link.watch(&front));
                    let Ok((watching, gone)) = watch else { return false };
                    match watching.await {
                        Ok(()) => {
                            let holder = listed.queue.first().unwrap_or_default();
                            let HolderData { lease, label, .. } = znodes.data(folder, holder).await;
                            let end = lease.map(|rest| znodes.session.now().plus(rest));
                            self.state.send_replace(PlaceState::Behind(end, label));
                            if self.unless_ended(gone).await.is_none() {
                                return false;
                            }
                        }
                        Err(NO_NODE | RequestError::ConnectionBroke(_)) => {}
                        Err(_) => return false,
                    }
                }
            }
            // The place outlives a connection.
            listed = loop {
                match self.unless_ended(znodes.session.connected()).await {
                    Some(session) if session == znode.session => {}
                    _ => return false,
                }
                match znodes.list(folder).await {
                    Ok(listed) => break listed,
                    Err(_) if znodes.session.number().is_err() => {}
                    Err(_) => return false,
                }
            };
        }
    }

    /// Offers the first place to the subscribers. Returns whether an acquisition has taken it.
    async fn offer(&self, znode: &Znode, others: usize) -> bool {
        let mut state = self.state.subscribe();
        self.state.send_replace(PlaceState::First(znode.clone(), others));
        for (_, notify) in &*self.subscribers.lock() {
            notify();
        }
        let taken = state.wait_for(|state| !matches!(state, PlaceState::First(..)));
        let left = async {
            tokio::select! {
                _ = taken => {}
                () = sleep(OFFERED) => {}
            }
        };
        self.unless_ended(left).await;
        // Nobody takes it from now on. An acquisition that has taken it may want the next place already.
        !self.state.send_if_modified(|state| {
            let is_left = matches!(state, PlaceState::First(..));
            if is_left {
                *state = PlaceState::Absent;
            }
            is_left
        })
    }

    /// Waits for a future, but only as long as there are subscriptions.
    async fn unless_ended<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        self.ended.run_until_cancelled(future).await
    }
}
