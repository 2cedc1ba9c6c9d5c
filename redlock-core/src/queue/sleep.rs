//! The pauses of a waiter, and the events that end them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::backoff::Backoff;
use super::fair::{FairPosition, FairWait};
use super::place::Place;
use super::release_signal::ReleaseSignal;
use super::waiter::WaiterState;
use crate::error::{LockError, NodeError, Vote};
use crate::lease::Holding;

/// Why a waiter sleeps.
pub(crate) enum Pause {
    /// It stands behind another waiter of this process.
    Queue,
    /// Its process does not have the first ticket of the fair queue.
    Fair,
    /// This process holds the lock. The holder may overrun its lease, so the waiter sleeps at most for this time.
    Holder(Arc<Holding>, Duration),
    /// Another process holds the lock. A published release ends the sleep, and this time at the latest.
    Release(Duration),
    /// Several callers got votes.
    Split(Duration),
    /// Other processes have their turn, or the nodes name one key and then another.
    Yield(Duration),
    /// Its subscription to the releases is not in effect yet.
    Subscribe,
    /// No quorum of nodes answers. The waiter gives up with this error at this time, if there is one.
    Outage(Box<LockError>, Option<Instant>),
}

/// The event that has ended a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// Another caller of this process: it has handed the lock over or called the waiter, has got, shared or released the lock,
    /// or has reached a quorum. Or the manager was shut down.
    Notified,
    Release,
    Timer,
    HolderEnded,
    Subscribed,
    QuorumIsBack,
    FairQueue,
    HomeIsIdle,
}

impl Place<'_> {
    /// Sleeps, if there is a pause. If the future is dropped, the caller gives up.
    ///
    /// # Errors
    ///
    /// Returns the error of a caller that gives up in an outage.
    pub(crate) async fn sleep(
        &mut self,
        mut pause: Option<Pause>,
        deadline: Option<Instant>,
    ) -> Result<(), LockError> {
        while let Some(present) = pause {
            let wake = self.sleep_once(&present, deadline).await;
            tracing::trace!(lock = %self.key(), pause = ?present, ?wake, "a waiter wakes");
            pause = self.woken(present, wake, deadline)?;
        }
        Ok(())
    }

    /// The only place where a waiter sleeps.
    async fn sleep_once(&mut self, pause: &Pause, deadline: Option<Instant>) -> Wake {
        let left = left(deadline);
        // No deadline needs no timer.
        let is_over = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let changed = self.waiter.changed.notified();
        match pause {
            Pause::Queue => tokio::select! {
                biased;
                () = changed => Wake::Notified,
                () = is_over => Wake::Timer,
            },
            Pause::Fair => {
                let fair = async {
                    if let Some(fair) = &self.fair {
                        fair.changed().await;
                    }
                };
                tokio::select! {
                    biased;
                    () = changed => Wake::Notified,
                    () = fair => Wake::FairQueue,
                    () = self.queues.home.idle(self.queues.ballot.node_timeout) => Wake::HomeIsIdle,
                    () = is_over => Wake::Timer,
                }
            }
            Pause::Holder(held, at_most) => tokio::select! {
                biased;
                () = changed => Wake::Notified,
                () = Arc::clone(held).lost() => Wake::HolderEnded,
                () = sleep(left.min(*at_most)) => Wake::Timer,
            },
            Pause::Release(at_most) => {
                let release = async {
                    match &self.last_ask.signal {
                        Some((signal, counts)) => signal.notified(counts, left.min(*at_most)).await,
                        None => false,
                    }
                };
                tokio::select! {
                    biased;
                    () = changed => Wake::Notified,
                    has_fired = release => if has_fired { Wake::Release } else { Wake::Timer },
                }
            }
            Pause::Split(time) | Pause::Yield(time) => tokio::select! {
                biased;
                () = sleep(left.min(*time)) => Wake::Timer,
                () = self.ended() => Wake::Notified,
            },
            Pause::Subscribe => tokio::select! {
                biased;
                () = self.subscribe(left) => Wake::Subscribed,
                () = self.ended() => Wake::Notified,
            },
            Pause::Outage(error, until) => {
                let is_first = self.outage_backoff.is_none();
                // The pause comes first: a node may appear to be up for a moment after its connection has broken, and
                // a frozen node always appears to be up.
                let pause = self.outage_backoff.get_or_insert_with(Backoff::new).pause();
                let ballot = &self.queues.ballot;
                let back = async {
                    if is_first
                        && until.is_none()
                        && let Some(votes) = error.votes()
                    {
                        // A server that is back is used at once.
                        ballot.reconnect(&self.waiter.spec, votes, ballot.node_timeout).await;
                    }
                    sleep(pause).await;
                    ballot.quorum_recovered().await;
                };
                let is_over = async {
                    match until {
                        Some(until) => sleep_until(*until).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    () = is_over => Wake::Timer,
                    () = changed => Wake::Notified,
                    () = back => Wake::QuorumIsBack,
                }
            }
        }
    }

    /// Resolves when a lock is handed over to the waiter, at a shutdown, or when a drain ends the wait.
    async fn ended(&self) {
        while !matches!(self.waiter.state(), WaiterState::HandedOver(_))
            && !self.queues.closed.is_cancelled()
            && self.check_drain().is_ok()
        {
            self.waiter.changed.notified().await;
        }
    }

    /// Subscribes to the releases of the queue's key, and waits until a quorum of subscriptions is in effect.
    async fn subscribe(&self, left: Duration) {
        let ballot = &self.queues.ballot;
        let Some(key) = self.at else { return };
        let spec = self.waiter.spec.of_key(self.waiter.spec.key_at(key));
        let (signal, ready) = ReleaseSignal::subscribe(&ballot.nodes, &spec);
        let signal = Arc::new(signal);
        self.with_queue(|queue| queue.set_signal(Arc::clone(&signal)));
        signal.take_effect(ready, ballot.node_timeout.min(left)).await;
    }

    /// Records the end of a sleep. Returns the next pause, if the waiter
    /// does not have to look at its queue before.
    fn woken(
        &mut self,
        pause: Pause,
        wake: Wake,
        deadline: Option<Instant>,
    ) -> Result<Option<Pause>, LockError> {
        let ballot = &self.queues.ballot;
        let has_passed = match &pause {
            Pause::Release(_) => wake == Wake::Release,
            Pause::Split(_) => {
                let signal = self.last_ask.signal.as_ref();
                signal.is_some_and(|(signal, counts)| signal.has_fired(counts))
            }
            // Before the subscription, a release may have passed unnoticed.
            Pause::Subscribe => true,
            Pause::Outage(..) | Pause::Fair => false,
            // The nodes were not asked.
            Pause::Queue | Pause::Holder(..) | Pause::Yield(_) => return Ok(None),
        };
        self.patience.record(ballot, &self.waiter.spec, has_passed);
        // A published release wakes one waiter per process, and only one of them gets the lock, perhaps
        // for a short time. After a wake-up, a refused waiter therefore skips the lookup of the TTL, to
        // save the server a round trip. Not with several nodes: their refusal may be a split vote, whose
        // end is not published.
        self.ask.skip_lookup = wake == Wake::Release && ballot.nodes.len() == 1;
        match (pause, wake) {
            // Another waiter may have been put before this one, and asks now.
            (Pause::Outage(error, _), Wake::Timer) if !self.waiter.is_queued() => {
                return Err(*error);
            }
            (_, Wake::HomeIsIdle) => {
                // The conductor may have answered since the last look.
                if let Some(FairPosition::Behind(since)) =
                    self.fair.as_mut().map(FairWait::position)
                {
                    self.with_queue(|queue| queue.end_outage_before(since));
                }
                let idle = Vote::Failed(NodeError::RuntimeIdle);
                let nodes = ballot.nodes.iter();
                let votes =
                    nodes.map(|node| (Arc::clone(node.name()), Some(idle.clone()))).collect();
                self.last_ask.begun = Instant::now();
                let error = LockError::Unavailable { key: self.key().clone(), votes };
                return self.no_quorum(error, deadline);
            }
            _ => {}
        }
        Ok(None)
    }
}

/// Returns the time until the deadline. No deadline is an endless time.
pub(super) fn left(deadline: Option<Instant>) -> Duration {
    deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()))
}

impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "Queue",
            Self::Fair => "Fair",
            Self::Holder(..) => "Holder",
            Self::Release(_) => "Release",
            Self::Split(_) => "Split",
            Self::Yield(_) => "Yield",
            Self::Subscribe => "Subscribe",
            Self::Outage(..) => "Outage",
        })
    }
}
