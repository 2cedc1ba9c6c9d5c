//! One Redis server: one vote.

use crate::network::{Attempt, Request};
use crate::rules::{Rule, Rules};
use crate::time::LEASE;
use crate::world::{Restarts, World};

/// Whose key it is. Stands for the token.
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

/// The key of the lock, as it stands on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) owner: Owner,
    /// Ticks on the node's clock since its lease began.
    pub(crate) age: u8,
    /// Whether it has a time to live.
    pub(crate) expires: bool,
}

/// What one node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    pub(crate) key: Option<Key>,
    /// Counts the grants, where there are fencing numbers.
    pub(crate) counter: u8,
    /// Ticks since it was started, up to a lease.
    pub(crate) uptime: u8,
    /// Whether its clock is a tick ahead.
    pub(crate) ahead: bool,
}

impl Node {
    /// A node that has been up for long.
    pub(crate) fn new(counter: u8) -> Self {
        Self { key: None, counter, uptime: LEASE, ahead: false }
    }

    /// Executes a request. `Some`, with the counter, is a yes.
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
        if self.key.is_some() || !may_vote {
            return None;
        }
        let expires = rules.keep(Rule::LeaseWithTheKey);
        self.key = Some(Key { owner, age: 0, expires });
        self.counter += u8::from(world.is_fenced());
        Some(self.counter)
    }

    /// A tick passes on its clock.
    pub(crate) fn advance(&mut self) {
        self.uptime = LEASE.min(self.uptime + 1);
        if let Some(key) = &mut self.key {
            key.age = LEASE.min(key.age + 1);
            if key.age == LEASE && key.expires {
                self.key = None;
            }
        }
    }

    /// Crashes and comes back. The time in between is no other than that of a node whose messages
    /// are delayed or lost.
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
