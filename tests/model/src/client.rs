//! One client: a process that acquires, renews and releases the lock.

use crate::network::Request;
use crate::rules::{Rule, Rules};

/// The phase of a client's attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// The client neither holds the lock nor asks for it.
    #[default]
    Idle,
    /// The client has asked all nodes to set the lock.
    Asking,
    /// The client has a quorum, and writes its fencing number back to all nodes.
    WritingBack,
    /// The client holds the lock.
    Holding,
}

/// How a client holds the lock, or asks for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Hold {
    #[default]
    Exclusive,
    Shared,
}

/// The state of one client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    pub(crate) hold: Hold,
    /// Ticks on the client's clock since it asked for the lease, or for the last extension that a quorum
    /// granted.
    pub(crate) age: u8,
    /// Ticks on the client's clock since it asked for an extension; `None` without a pending extension.
    pub(crate) renewal: Option<u8>,
    /// The fencing number of the lock; 0 until a quorum has granted the lock.
    pub(crate) number: u8,
    /// The highest fencing number that had been handed out when this attempt began. The client does not
    /// know it: [`Claim::GrowingNumber`](crate::Claim::GrowingNumber) compares `number` with it.
    pub(crate) handed_out_before: u8,
    /// Whether the client's clock is a tick ahead of the clocks that did not run ahead.
    pub(crate) ahead: bool,
}

impl Client {
    /// Begins an attempt. Its validity counts from here.
    pub(crate) fn ask(&mut self, hold: Hold, handed_out_before: u8) {
        let (phase, ahead) = (Phase::Asking, self.ahead);
        *self = Self { phase, hold, handed_out_before, ahead, ..Self::default() };
    }

    /// Ends the attempt, or the hold.
    pub(crate) fn leave(&mut self) {
        *self = Self { ahead: self.ahead, ..Self::default() };
    }

    /// Returns whether the client waits for the answers to this request.
    pub(crate) fn awaits(self, request: Request) -> bool {
        match request {
            Request::Set => self.phase == Phase::Asking && self.hold == Hold::Exclusive,
            Request::Enter => self.phase == Phase::Asking && self.hold == Hold::Shared,
            Request::WriteBack => self.phase == Phase::WritingBack,
            Request::Extend => self.renewal.is_some(),
            Request::Expire | Request::Delete | Request::Downgrade => false,
        }
    }

    /// Records that the client holds the lock.
    pub(crate) fn hold(&mut self, rules: Rules) {
        self.phase = Phase::Holding;
        if !rules.keep(Rule::ValidityFromTheStart) {
            self.age = 0;
        }
    }

    /// Records that a quorum has granted the extension.
    pub(crate) fn end_renewal(&mut self, rules: Rules) {
        let age = self.renewal.take().unwrap_or(self.age);
        self.age = if rules.keep(Rule::ValidityFromTheStart) { age } else { 0 };
    }

    /// Advances the client's clock by a tick.
    pub(crate) fn advance(&mut self) {
        if self.phase != Phase::Idle {
            self.age += 1;
            self.renewal = self.renewal.map(|age| age + 1);
        }
    }

    /// Returns whether the client holds the lock with validity left.
    pub(crate) fn believes(self, rules: Rules) -> bool {
        self.phase == Phase::Holding && rules.is_valid(self.age)
    }
}
