//! One node with the clients that share the lock on it.

use crate::network::{Attempt, Request};
use crate::node::Owner;
use crate::rules::{Rule, Rules};
use crate::state::Site;
use crate::time::LEASE;
use crate::world::{Restarts, Sharing, World};

impl<const CLIENTS: usize> Site<CLIENTS> {
    /// Returns whether an attempt shares the lock. Only present attempts do.
    pub(crate) fn has_reader(&self, owner: Owner) -> bool {
        owner.attempt == Attempt::Present && self.readers[usize::from(owner.client)].is_some()
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
        let client = usize::from(from.client);
        let is_shared = self.readers.iter().any(Option::is_some);
        let own = self.has_reader(from);
        let misses_downgrade = self.connections[client].of(from.attempt).has(Request::Downgrade);
        match request {
            Request::Enter if !self.may_enter(world, rules) => return None,
            Request::Enter => self.readers[client] = Some(0),
            Request::Extend if own => self.readers[client] = Some(0),
            Request::Delete if own && rules.keep(Rule::EntryOfEachReader) => {
                self.readers[client] = None;
            }
            Request::Delete if own => self.readers = [None; CLIENTS],
            Request::Downgrade => {
                let compares = rules.keep(Rule::CompareBeforeDowngrade);
                let key = self.node.key.take_if(|key| key.owner == from || !compares)?;
                self.readers[client] = Some(key.age);
            }
            Request::Extend | Request::Delete
                if misses_downgrade && !rules.keep(Rule::OwnKeyIsAnEntry) =>
            {
                return None;
            }
            Request::Set if is_shared && rules.keep(Rule::NoWriterBesideReaders) => return None,
            _ => return self.node.execute(request, number, from, world, rules),
        }
        Some(self.node.counter)
    }

    fn may_enter(&self, world: World, rules: Rules) -> bool {
        let may_vote = rules.may_vote(self.node.uptime) || !world.has_time();
        let is_exclusive = self.node.key.is_some() && rules.keep(Rule::NoReaderBesideAWriter);
        let most = match world.sharing {
            Sharing::Permits(permits) => usize::from(permits),
            Sharing::None | Sharing::Readers => CLIENTS,
        };
        let is_full = self.readers.iter().flatten().count() >= most;
        may_vote && !is_exclusive && !is_full
    }

    /// Advances the node's clock by a tick.
    pub(crate) fn advance(&mut self, rules: Rules) {
        self.node.advance();
        for age in self.readers.iter_mut().flatten() {
            *age = LEASE.min(*age + 1);
        }
        let ages = || self.readers.iter().flatten().copied();
        let (youngest, eldest) = (ages().min(), ages().max());
        for reader in &mut self.readers {
            let ending = if !rules.keep(Rule::EntryOfEachReader) {
                youngest
            } else if !rules.keep(Rule::KeyUntilTheLastEnd) {
                eldest
            } else {
                *reader
            };
            *reader = reader.filter(|_| ending < Some(LEASE));
        }
    }

    /// Crashes and starts again at once.
    pub(crate) fn restart(&mut self, world: World) {
        self.node.restart(world);
        if world.restarts == Restarts::Forgetting {
            self.readers = [None; CLIENTS];
        }
    }
}
