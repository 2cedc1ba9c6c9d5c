//! The sleep of a waiter, and the events that end it.

use std::future::pending;
use std::sync::Arc;

use tokio::time::{sleep, sleep_until};

use super::Instant;
use super::driver::Place;
use super::machine::{Pause, Question, Wake};
use super::release_signal::ReleaseSignal;
use crate::error::{LockError, NodeError, Vote, Votes};
use crate::lease::Holding;

type Why = Pause<Arc<Holding>, Arc<ReleaseSignal>>;

impl Place<'_> {
    /// Sleeps until an event ends the pause of the machine, or until this time.
    pub(super) async fn sleep(&self, until: Option<Instant>) -> Wake {
        let Some(pause) = self.machine.pause() else { return Wake::Notified };
        let timer = async {
            match until {
                // The subscription counts as in effect at its end.
                Some(until) if !matches!(pause, Pause::Subscribe) => sleep_until(until).await,
                _ => pending().await,
            }
        };
        let wake = tokio::select! {
            biased;
            () = self.notified(pause) => Wake::Notified,
            wake = self.event(pause, until) => wake,
            () = timer => Wake::Timer,
        };
        let is_over = |until: Option<Instant>| until.is_some_and(|until| until <= Instant::now());
        // A waiter that is notified at the end of the grace does not wait any longer.
        if matches!(pause, Pause::Outage { .. }) && is_over(until) { Wake::Timer } else { wake }
    }

    /// Resolves when another caller notifies the waiter, as far as that ends the pause.
    async fn notified(&self, pause: &Why) {
        match pause {
            // Only a lock that is handed over, a shutdown, or a drain that ends the wait.
            Pause::Yield | Pause::Split(_) | Pause::Subscribe => {
                while !self.waiter.was_handed_over()
                    && !self.queues.closed.is_cancelled()
                    && self.check_drain().is_ok()
                {
                    self.waiter.changed.notified().await;
                }
            }
            _ => self.waiter.changed.notified().await,
        }
    }

    /// Resolves at an event that ends this pause only.
    async fn event(&self, pause: &Why, until: Option<Instant>) -> Wake {
        let ballot = &self.queues.ballot;
        match pause {
            Pause::Fair => {
                let fair = async {
                    if let Some(fair) = &self.fair {
                        fair.changed().await;
                    }
                };
                tokio::select! {
                    biased;
                    () = fair => Wake::FairQueue,
                    () = self.queues.home.idle(ballot.node_timeout) => Wake::HomeIsIdle,
                }
            }
            Pause::Holder(held) => {
                held.lost().await;
                Wake::HolderEnded
            }
            Pause::Release(Question { heard: Some((signal, counts)), .. }) => {
                signal.fired(counts).await;
                Wake::Release
            }
            Pause::Queue | Pause::Reader | Pause::Yield | Pause::Split(_) | Pause::Release(_) => {
                pending().await
            }
            Pause::Subscribe => {
                self.subscribe(until).await;
                Wake::Subscribed
            }
            Pause::Outage { pause, reconnects } => {
                if *reconnects && let Some(votes) = self.refusal.as_ref().and_then(LockError::votes)
                {
                    // A server that is back is used at once.
                    ballot.reconnect(&self.waiter.spec, votes, ballot.node_timeout).await;
                }
                // The pause comes first: a node may appear to be up for a moment after its connection has broken, and
                // a frozen node always appears to be up.
                sleep(*pause).await;
                if self.refusal.as_ref().and_then(LockError::votes).is_some_and(found_idle_home) {
                    // Each attempt would leave a release there until a thread drives the home.
                    self.queues.home.driven().await;
                }
                ballot.quorum_recovered().await;
                Wake::QuorumIsBack
            }
        }
    }

    /// Subscribes to the releases of the line's key, and waits until a quorum of subscriptions is in effect, or until this time.
    async fn subscribe(&self, until: Option<Instant>) {
        let ballot = &self.queues.ballot;
        let spec = self.waiter.spec.of_key(self.key());
        let (signal, ready) = ReleaseSignal::subscribe(&ballot.nodes, &spec);
        let signal = Arc::new(signal);
        self.with_line(|line| line.set_signal(Arc::clone(&signal)));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        signal.take_effect(ready, left.unwrap_or(ballot.node_timeout)).await;
    }
}

/// Returns whether nodes did not reply because no thread drives the home.
fn found_idle_home(votes: &Votes) -> bool {
    votes.iter().any(|(_, vote)| matches!(vote, Some(Vote::Failed(NodeError::RuntimeIdle))))
}
