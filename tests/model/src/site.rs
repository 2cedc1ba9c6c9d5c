//! One node with the clients that share the lock on it.

use crate::network::{Attempt, Request};
use crate::node::{Key, Owner};
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
        let own = self.readers[client].filter(|_| from.attempt == Attempt::Present);
        let yes = Some(self.node.counter);
        match (request, own) {
            (Request::Enter, _) => self.enter(client, world, rules).then_some(self.node.counter),
            (Request::Upgrade, Some(age)) => {
                let alone = self.readers.iter().flatten().count() == 1;
                if !alone && rules.keep(Rule::UpgradeAlone) {
                    return None;
                }
                self.readers = [None; CLIENTS];
                self.node.key = Some(Key { owner: from, age, expires: true, upgraded: true });
                yes
            }
            // The node has missed a downgrade, or has the upgraded lock already.
            (Request::Upgrade, None) => {
                let key = self.node.key.as_mut().filter(|key| key.owner == from)?;
                key.upgraded = true;
                yes
            }
            (Request::Downgrade, _) => {
                let is_own = |key: &Key| key.owner == from && rules.concerns(false, *key);
                let key = self.node.key.filter(is_own)?;
                self.node.key = None;
                self.readers[client] = Some(key.age);
                yes
            }
            (Request::Extend, Some(_)) => {
                self.readers[client] = Some(0);
                yes
            }
            (Request::Delete, Some(_)) => {
                self.readers[client] = None;
                yes
            }
            (Request::Set, _) if is_shared && rules.keep(Rule::NoWriterBesideReaders) => None,
            _ => self.node.execute(request, number, from, world, rules),
        }
    }

    fn enter(&mut self, client: usize, world: World, rules: Rules) -> bool {
        let may_vote = rules.may_vote(self.node.uptime) || !world.has_time();
        let is_exclusive = self.node.key.is_some() && rules.keep(Rule::NoReaderBesideAWriter);
        let most = match world.sharing {
            Sharing::Permits(permits) => usize::from(permits),
            Sharing::None | Sharing::Readers | Sharing::ChangingModes => CLIENTS,
        };
        let is_full = self.readers.iter().flatten().count() >= most;
        let enters = may_vote && !is_exclusive && !is_full;
        if enters {
            self.readers[client] = Some(0);
        }
        enters
    }

    /// Advances the node's clock by a tick.
    pub(crate) fn advance(&mut self, rules: Rules) {
        self.node.advance();
        for age in self.readers.iter_mut().flatten() {
            *age = LEASE.min(*age + 1);
        }
        // A lease of the whole key ends with the last client's.
        let youngest = self.readers.iter().flatten().min().copied();
        let own_end = rules.keep(Rule::OwnEndOfEachReader);
        for reader in &mut self.readers {
            *reader =
                reader.filter(|age| if own_end { *age < LEASE } else { youngest < Some(LEASE) });
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
