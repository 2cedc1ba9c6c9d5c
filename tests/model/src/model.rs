//! The model for the checker: the possible steps from each state, and the state after each step.

use stateright::{Model, Property};

use crate::action::Action;
use crate::claim::{Claim, shared_situation, situations};
use crate::client::{Hold, Phase};
use crate::network::{Answer, Attempt, Message, Request};
use crate::rules::Rules;
use crate::state::State;
use crate::world::{Restarts, Sharing, World};

/// By how much the fencing counters of some nodes are ahead in the initial states.
const LEAD: u8 = 1;

/// `CLIENTS` processes that want one lock on `NODES` servers.
#[derive(Debug, Clone)]
pub struct Redlock<const NODES: usize, const CLIENTS: usize> {
    /// The faults that may happen.
    pub world: World,
    /// The rules that clients and nodes keep.
    pub rules: Rules,
    /// The claim to check; `None` checks all claims.
    pub claim: Option<Claim>,
}

impl<const NODES: usize, const CLIENTS: usize> Model for Redlock<NODES, CLIENTS> {
    type State = State<NODES, CLIENTS>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        if !self.world.is_fenced() {
            return vec![State::new([0; NODES])];
        }
        // Some nodes have executed acquisitions that the other nodes missed.
        let counters = |leading| std::array::from_fn(|node| if node < leading { LEAD } else { 0 });
        (0..NODES).map(|leading| State::new(counters(leading))).collect()
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Action>) {
        for client in 0..CLIENTS {
            self.actions_of_client(state, client, actions);
            for node in 0..NODES {
                self.actions_between(state, client, node, actions);
            }
        }
        for node in 0..NODES {
            self.actions_of_node(state, node, actions);
        }
        if self.world.has_time() {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &Self::State, action: Action) -> Option<Self::State> {
        let (world, rules) = (self.world, self.rules);
        let mut state = *last;
        match action {
            Action::Ask(client) => state.ask(client, Hold::Exclusive),
            Action::AskToShare(client) => state.ask(client, Hold::Shared),
            Action::AskAgain(client) => state.ask_again(client, rules),
            Action::Downgrade(client) => state.downgrade(client, rules),
            Action::Leave(client) => state.leave(client, world),
            Action::Renew(client) => state.renew(client),
            Action::Arrive(message) => state.arrive(message, world, rules),
            Action::Lose(message) => state.lose(message, rules),
            Action::Count(client, node) => state.count(client, node, world, rules),
            Action::Tick => state.tick(world, rules),
            Action::RunNodeAhead(node) => state.run_node_ahead(node, rules),
            Action::RunClientAhead(client) => state.run_client_ahead(client, world, rules),
            Action::SetClock(node) => state.sites[node].node.key = None,
            Action::Restart(node) => state.sites[node].restart(world),
        }
        state.settle(rules);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        if let Some(claim) = self.claim {
            return vec![claim.property()];
        }
        let claims = Claim::ALL.into_iter().map(Claim::property);
        let sharing = self.world.is_shared().then(shared_situation);
        claims.chain(situations()).chain(sharing).collect()
    }

    fn within_boundary(&self, state: &Self::State) -> bool {
        let Some(highest) = self.world.fencing else { return true };
        state.sites.iter().all(|site| site.node.counter <= highest)
    }
}

impl<const NODES: usize, const CLIENTS: usize> Redlock<NODES, CLIENTS> {
    fn actions_of_client(
        &self,
        state: &State<NODES, CLIENTS>,
        client: usize,
        actions: &mut Vec<Action>,
    ) {
        let at = &state.clients[client];
        if state.may_ask(client, self.world) {
            actions.push(Action::Ask(client));
            if self.world.is_shared() {
                actions.push(Action::AskToShare(client));
            }
        }
        if at.phase != Phase::Idle {
            actions.push(Action::Leave(client));
        }
        if at.phase == Phase::Holding && self.world.renewals {
            actions.push(Action::Renew(client));
        }
        if self.world.sharing == Sharing::Readers && at.hold == Hold::Exclusive {
            match at.phase {
                Phase::Asking => actions.push(Action::AskAgain(client)),
                Phase::Holding => actions.push(Action::Downgrade(client)),
                Phase::Idle | Phase::WritingBack => {}
            }
        }
        if self.world.clients_drift() && !at.ahead {
            actions.push(Action::RunClientAhead(client));
        }
    }

    fn actions_between(
        &self,
        state: &State<NODES, CLIENTS>,
        client: usize,
        node: usize,
        actions: &mut Vec<Action>,
    ) {
        let connection = &state.sites[node].connections[client];
        for attempt in [Attempt::Present, Attempt::Former] {
            for request in Request::ALL {
                if !connection.of(attempt).has(request) {
                    continue;
                }
                let message = Message { client, node, attempt, request };
                if state.may_arrive(message, self.rules) {
                    actions.push(Action::Arrive(message));
                }
                // Only a request for the lock needs a step for its loss. To lose any other request is the same
                // as to delay it for ever, because no step waits for it.
                if request.acquires() {
                    actions.push(Action::Lose(message));
                }
            }
        }
        if matches!(connection.answer, Answer::Sent(_)) {
            actions.push(Action::Count(client, node));
        }
    }

    fn actions_of_node(
        &self,
        state: &State<NODES, CLIENTS>,
        node: usize,
        actions: &mut Vec<Action>,
    ) {
        let at = &state.sites[node].node;
        if self.world.restarts != Restarts::Never {
            actions.push(Action::Restart(node));
        }
        if self.world.nodes_drift() && !at.ahead {
            actions.push(Action::RunNodeAhead(node));
        }
        if self.world.sets_clocks() && at.key.is_some() {
            actions.push(Action::SetClock(node));
        }
    }
}
