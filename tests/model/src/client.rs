//! One process that wants the lock.

use crate::network::Request;
use crate::rules::{Rule, Rules};

/// How far a client has got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// Wants nothing.
    #[default]
    Idle,
    /// Has asked all nodes to set the lock.
    Asking,
    /// Has a majority, and writes its fencing number back to all nodes.
    WritingBack,
    /// Holds the lock.
    Holding,
}

/// What one client knows, and when it asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// Ticks on the client's clock since it began to ask for the lease.
    pub(crate) age: u8,
    /// Ticks since it began to ask for an extension, if one is under way.
    pub(crate) renewal: Option<u8>,
    /// The fencing number, once there is one.
    pub(crate) number: u8,
    /// The highest number that had been handed out when this attempt began. Unknown to the client:
    /// what the property asks about.
    pub(crate) handed_out_before: u8,
    /// Whether its clock is a tick ahead.
    pub(crate) ahead: bool,
}

impl Client {
    /// Begins an attempt. The validity counts from here.
    pub(crate) fn ask(&mut self, handed_out_before: u8) {
        *self =
            Self { phase: Phase::Asking, handed_out_before, ahead: self.ahead, ..Self::default() };
    }

    /// Gives up, or releases.
    pub(crate) fn leave(&mut self) {
        *self = Self { ahead: self.ahead, ..Self::default() };
    }

    /// Whether it waits for answers to this request.
    pub(crate) fn awaits(self, request: Request) -> bool {
        match request {
            Request::Set => self.phase == Phase::Asking,
            Request::WriteBack => self.phase == Phase::WritingBack,
            Request::Extend => self.renewal.is_some(),
            Request::Expire | Request::Delete => false,
        }
    }

    /// Has got the lock.
    pub(crate) fn hold(&mut self, rules: Rules) {
        self.phase = Phase::Holding;
        if !rules.keep(Rule::ValidityFromTheStart) {
            self.age = 0;
        }
    }

    /// Has got the extension.
    pub(crate) fn end_renewal(&mut self, rules: Rules) {
        let age = self.renewal.take().unwrap_or(self.age);
        self.age = if rules.keep(Rule::ValidityFromTheStart) { age } else { 0 };
    }

    /// A tick passes on its clock.
    pub(crate) fn advance(&mut self) {
        if self.phase != Phase::Idle {
            self.age += 1;
            self.renewal = self.renewal.map(|age| age + 1);
        }
    }

    /// Whether it holds the lock and believes in it.
    pub(crate) fn believes(self, rules: Rules) -> bool {
        self.phase == Phase::Holding && rules.is_valid(self.age)
    }
}
