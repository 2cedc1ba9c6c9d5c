//! When a reader asks for a turn of the readers.

use std::time::Duration;

use crate::ballot::Ballot;
use crate::jitter::jitter;
use crate::lock::{LockSpec, Mode};
use crate::node::{Subscription, TURN};

/// The patience of a reader that waits while exclusive callers get the lock one after another.
#[derive(Debug)]
pub(super) struct Patience {
    /// How many further releases the reader lets pass.
    left: Option<u32>,
    /// The requests for a turn of the readers, which last as long as the reader waits.
    turn: Vec<Subscription>,
}

impl Patience {
    /// How many releases a reader lets pass before it asks for a turn. About one more passes until the nodes know. A
    /// reader that asked for a turn at once would delay more exclusive callers than it gains.
    const RELEASES: u32 = 3;

    pub(super) fn new(mode: Mode) -> Self {
        Self { left: mode.is_shared().then_some(Self::RELEASES), turn: Vec::new() }
    }

    /// Records whether a release has passed the waiter. After the last release that it lets pass, asks the nodes for a
    /// turn.
    pub(super) fn record(&mut self, ballot: &Ballot, spec: &LockSpec, has_passed: bool) {
        let Some(left) = self.left.as_mut().filter(|_| has_passed) else { return };
        *left -= 1;
        if *left == 0 {
            self.left = None;
            self.turn = ballot.nodes.iter().map(|node| node.request_turn(spec)).collect();
        }
    }

    /// Limits the pause of a reader that has asked for a turn, so that it does not miss the turn.
    pub(super) fn limit(&self, pause: Duration) -> Duration {
        if self.turn.is_empty() { pause } else { pause.min(jitter(TURN / 4..TURN / 2)) }
    }
}
