//! One Redis server: one vote.

use crate::network::{Attempt, Request};
use crate::rules::{Rule, Rules};
use crate::time::LEASE;
use crate::world::{Restarts, World};

/// The owner of a key. It stands for the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner {
    pub(crate) client: u8,
    pub(crate) attempt: Attempt,
}

impl Owner {
    pub(crate) fn new(client: usize, attempt: Attempt) -> Self {
        Self { client: u8::try_from(client).unwrap_or(u8::MAX), attempt }
    }

    pub(crate) fn is(self, client: usize) -> bool {
        usize::from(self.client) == client
    }
}

/// The key of the lock on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) owner: Owner,
    /// Ticks on the node's clock since the key's lease began.
    pub(crate) age: u8,
    /// Whether the key has a time to live.
    pub(crate) expires: bool,
}

/// The state of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    pub(crate) key: Option<Key>,
    /// The fencing counter: it counts the grants if locks have fencing numbers.
    pub(crate) counter: u8,
    /// Ticks since the node was started, up to [`LEASE`].
    pub(crate) uptime: u8,
    /// Whether the node's clock is a tick ahead of the clocks that did not run ahead.
    pub(crate) ahead: bool,
}

impl Node {
    /// Returns a node that has run for at least a lease, so that it votes.
    pub(crate) fn new(counter: u8) -> Self {
        Self { key: None, counter, uptime: LEASE, ahead: false }
    }

    /// Executes a request. Returns the counter if the node says yes, and `None` if it says no.
    pub(crate) fn execute(
        &mut self,
        request: Request,
        number: u8,
        from: Owner,
        world: World,
        rules: Rules,
    ) -> Option<u8> {
        if request == Request::Set {
            return self.set(from, world, rules);
        }
        let key = self.key.as_mut()?;
        let own = rules.is_same_token(key.owner, from);
        match request {
            Request::Delete if own || !rules.keep(Rule::CompareBeforeDelete) => self.key = None,
            Request::Expire => key.expires = true,
            Request::Extend if own => key.age = 0,
            Request::WriteBack if own => self.counter = self.counter.max(number),
            _ => return None,
        }
        Some(self.counter)
    }

    fn set(&mut self, owner: Owner, world: World, rules: Rules) -> Option<u8> {
        let may_vote = rules.may_vote(self.uptime) || !world.has_time();
        match self.key {
            _ if !may_vote => None,
            Some(key) => rules.is_same_token(key.owner, owner).then_some(self.counter),
            None => {
                let expires = rules.keep(Rule::LeaseWithTheKey);
                self.key = Some(Key { owner, age: 0, expires });
                self.counter += u8::from(world.is_fenced());
                Some(self.counter)
            }
        }
    }

    /// Advances the node's clock by a tick.
    pub(crate) fn advance(&mut self) {
        self.uptime = LEASE.min(self.uptime + 1);
        if let Some(key) = &mut self.key {
            key.age = LEASE.min(key.age + 1);
            if key.age == LEASE && key.expires {
                self.key = None;
            }
        }
    }

    /// Crashes and starts again at once. A longer outage is the same as a node whose messages are delayed
    /// or lost.
    pub(crate) fn restart(&mut self, world: World) {
        self.uptime = 0;
        if world.restarts == Restarts::Forgetting {
            self.key = None;
            self.counter = 0;
        }
    }

    pub(crate) fn holds_key_of(self, owner: Owner) -> bool {
        self.key.is_some_and(|key| key.owner == owner)
    }
}
