//! What each step does. Where client, node and network meet, the algorithm can be read here: ask,
//! arrive, count, decide, leave.

use crate::client::{Client, Phase};
use crate::network::{Answer, Attempt, Message, Request, UnderWay};
use crate::node::Owner;
use crate::rules::{Rule, Rules};
use crate::state::State;
use crate::world::World;

impl<const NODES: usize, const CLIENTS: usize> State<NODES, CLIENTS> {
    /// A client asks all nodes at once.
    pub(crate) fn ask(&mut self, client: usize) {
        if self.is_left(client, Attempt::Present) {
            self.make_former(client);
        }
        self.clients[client].ask(self.handed_out);
        for site in &mut self.sites {
            let connection = &mut site.connections[client];
            connection.present = UnderWay::default();
            connection.present.send(Request::Set);
        }
    }

    /// What was the present attempt is the one before the next.
    fn make_former(&mut self, client: usize) {
        for site in &mut self.sites {
            let connection = &mut site.connections[client];
            connection.former = std::mem::take(&mut connection.present);
            if let Some(key) = &mut site.node.key
                && key.owner.is(client)
            {
                key.owner.attempt = Attempt::Former;
            }
        }
    }

    /// A client gives up, or releases: it asks all nodes to clean up.
    ///
    /// A client that crashes is one whose clean-ups are all lost.
    pub(crate) fn leave(&mut self, client: usize, world: World) {
        self.clients[client].leave();
        self.forget_answers(client);
        if world.sets_clocks() {
            // There a key may run out at any moment, and a clean-up does no more than that.
            return;
        }
        for site in &mut self.sites {
            site.connections[client].present.send(Request::Delete);
        }
    }

    /// A holder asks all nodes to extend its lease.
    pub(crate) fn renew(&mut self, client: usize) {
        self.clients[client].renewal = Some(0);
        self.forget_answers(client);
        for site in &mut self.sites {
            site.connections[client].present.send(Request::Extend);
        }
    }

    /// A message arrives, and the node executes it.
    pub(crate) fn arrive(&mut self, message: Message, world: World, rules: Rules) {
        let Message { client, node, attempt, request } = message;
        let site = &mut self.sites[node];
        let connection = &mut site.connections[client];
        let under_way = connection.of_mut(attempt);
        let number = under_way.number();
        under_way.remove(request);
        under_way.cleaned |= request == Request::Delete;
        let owner = Owner::new(client, attempt);
        let yes = site.node.execute(request, number, owner, world, rules);
        if let Some(counter) = yes
            && attempt == Attempt::Present
            && self.clients[client].awaits(request)
        {
            connection.answer = Answer::Sent(counter);
        }
    }

    /// A message is lost.
    pub(crate) fn lose(&mut self, message: Message, rules: Rules) {
        let Message { client, node, attempt, request } = message;
        let connection = &mut self.sites[node].connections[client];
        connection.of_mut(attempt).remove(request);
        let is_asked = request == Request::Set
            && attempt == Attempt::Present
            && self.clients[client].awaits(request);
        if is_asked && !rules.keep(Rule::QuorumOfAll) {
            connection.answer = Answer::Unreachable;
        }
    }

    /// A client reads an answer, which may be the one that decides.
    pub(crate) fn count(&mut self, client: usize, node: usize, world: World, rules: Rules) {
        let connection = &mut self.sites[node].connections[client];
        let Answer::Sent(counter) = connection.answer else { return };
        connection.answer = Answer::Counted(counter);
        if !rules.keep(Rule::LeaseWithTheKey) {
            connection.present.send(Request::Expire);
        }

        let (mut votes, mut unreachable, mut highest) = (0, 0, 0);
        for site in &self.sites {
            match site.connections[client].answer {
                Answer::Counted(counter) => (votes, highest) = (votes + 1, counter.max(highest)),
                Answer::Unreachable => unreachable += 1,
                Answer::None | Answer::Sent(_) => {}
            }
        }
        if votes >= rules.quorum(NODES, unreachable) {
            self.forget_answers(client);
            self.decide(client, highest, world, rules);
        }
    }

    /// A quorum has said yes.
    fn decide(&mut self, client: usize, highest: u8, world: World, rules: Rules) {
        let decider = &mut self.clients[client];
        match decider.phase {
            Phase::Asking if world.is_fenced() => {
                decider.number = highest;
                if rules.keep(Rule::NumberWrittenBack) {
                    decider.phase = Phase::WritingBack;
                    for site in &mut self.sites {
                        site.connections[client].present.send_number(highest);
                    }
                } else {
                    self.hold(client, rules);
                }
            }
            Phase::Asking | Phase::WritingBack => self.hold(client, rules),
            Phase::Holding => decider.end_renewal(rules),
            Phase::Idle => {}
        }
    }

    fn hold(&mut self, client: usize, rules: Rules) {
        let holder = &mut self.clients[client];
        holder.hold(rules);
        self.handed_out = self.handed_out.max(holder.number);
    }

    /// A tick passes for all. A clock that was ahead lets the others catch up.
    pub(crate) fn tick(&mut self, world: World, rules: Rules) {
        for site in &mut self.sites {
            if !std::mem::take(&mut site.node.ahead) {
                site.node.advance();
            }
        }
        for client in 0..CLIENTS {
            if !std::mem::take(&mut self.clients[client].ahead) {
                self.advance_client(client, world, rules);
            }
        }
    }

    /// A tick passes on a node's clock alone.
    pub(crate) fn run_node_ahead(&mut self, node: usize) {
        let node = &mut self.sites[node].node;
        node.advance();
        node.ahead = true;
    }

    /// A tick passes on a client's clock alone.
    pub(crate) fn run_client_ahead(&mut self, client: usize, world: World, rules: Rules) {
        self.clients[client].ahead = true;
        self.advance_client(client, world, rules);
    }

    /// A client that can believe in its lease no longer leaves. If it notices late, its clean-up is
    /// no other than one that is delayed.
    fn advance_client(&mut self, client: usize, world: World, rules: Rules) {
        self.clients[client].advance();
        let Client { phase, age, .. } = self.clients[client];
        if phase != Phase::Idle && !rules.is_valid(age) {
            self.leave(client, world);
        }
    }

    fn forget_answers(&mut self, client: usize) {
        for site in &mut self.sites {
            site.connections[client].answer = Answer::None;
        }
    }
}
