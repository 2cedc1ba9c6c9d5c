//! The effect of each step. This is the algorithm, from the client's request to its clean-up: ask, arrive,
//! count, decide, leave.

use crate::client::{Client, Hold, Phase};
use crate::network::{Answer, Attempt, InFlight, Message, Request};
use crate::node::Owner;
use crate::rules::{Rule, Rules};
use crate::state::State;
use crate::world::World;

impl<const NODES: usize, const CLIENTS: usize> State<NODES, CLIENTS> {
    /// A client begins an attempt, and asks all nodes at once.
    pub(crate) fn ask(&mut self, client: usize, hold: Hold) {
        if self.is_left(client, Attempt::Present) {
            self.make_former(client);
        }
        self.clients[client].ask(hold, self.handed_out);
        for site in &mut self.sites {
            site.connections[client].present = InFlight::default();
        }
        self.send(client, if hold == Hold::Shared { Request::Enter } else { Request::Set });
    }

    /// A client whose exclusive attempt has no quorum yet asks all nodes once more.
    pub(crate) fn ask_again(&mut self, client: usize, rules: Rules) {
        if !rules.keep(Rule::ValidityFromTheFirstRequest) {
            self.clients[client].age = 0;
        }
        self.send(client, Request::Set);
    }

    /// Turns the client's present attempt into its former one.
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

    /// A client releases the lock, or abandons its attempt: it asks all nodes to clean up.
    ///
    /// A crash of the client is the same as a loss of all its clean-ups.
    pub(crate) fn leave(&mut self, client: usize, world: World) {
        self.clients[client].leave();
        if world.sets_clocks() {
            // In such a world a key may expire at any moment, and a clean-up has no other effect.
            self.forget_answers(client);
        } else {
            self.send(client, Request::Delete);
        }
    }

    /// A holder asks all nodes to extend its lease.
    pub(crate) fn renew(&mut self, client: usize) {
        self.clients[client].renewal = Some(0);
        self.send(client, Request::Extend);
    }

    /// An exclusive holder shares its lock from now on, and asks all nodes to do so too.
    pub(crate) fn downgrade(&mut self, client: usize, rules: Rules) {
        let holder = &mut self.clients[client];
        holder.renewal = None;
        if rules.keep(Rule::ReaderBeforeTheDowngrade) {
            holder.hold = Hold::Shared;
        }
        self.send(client, Request::Downgrade);
    }

    /// A message arrives, and the node executes it.
    pub(crate) fn arrive(&mut self, message: Message, world: World, rules: Rules) {
        let Message { client, node, attempt, request } = message;
        let site = &mut self.sites[node];
        let connection = &mut site.connections[client];
        let in_flight = connection.of_mut(attempt);
        let number = in_flight.number();
        in_flight.remove(request);
        in_flight.cleaned |= request == Request::Delete;
        let owner = Owner::new(client, attempt);
        let yes = site.execute(request, number, owner, world, rules);
        let connection = &mut site.connections[client];
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
        let is_asked = request.acquires()
            && attempt == Attempt::Present
            && self.clients[client].awaits(request);
        if is_asked && !rules.keep(Rule::QuorumOfAll) {
            connection.answer = Answer::Unreachable;
        }
    }

    /// A client counts the yes vote of a node, and decides if that completes a quorum.
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

    /// A client acts on the yes of a quorum.
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

    /// All clocks advance by a tick, except for clocks that ran ahead: the other clocks catch up with them.
    pub(crate) fn tick(&mut self, world: World, rules: Rules) {
        for site in &mut self.sites {
            if !std::mem::take(&mut site.node.ahead) {
                site.advance(rules);
            }
        }
        for client in 0..CLIENTS {
            if !std::mem::take(&mut self.clients[client].ahead) {
                self.advance_client(client, world, rules);
            }
        }
    }

    /// The clock of one node advances by a tick, and no other clock does.
    pub(crate) fn run_node_ahead(&mut self, node: usize, rules: Rules) {
        let site = &mut self.sites[node];
        site.advance(rules);
        site.node.ahead = true;
    }

    /// The clock of one client advances by a tick, and no other clock does.
    pub(crate) fn run_client_ahead(&mut self, client: usize, world: World, rules: Rules) {
        self.clients[client].ahead = true;
        self.advance_client(client, world, rules);
    }

    /// Advances the clock of a client. The client leaves when its validity is over. If the client notices
    /// the end late, the effect is that of a delayed clean-up.
    fn advance_client(&mut self, client: usize, world: World, rules: Rules) {
        self.clients[client].advance();
        let Client { phase, age, .. } = self.clients[client];
        if phase != Phase::Idle && !rules.is_valid(age) {
            self.leave(client, world);
        }
    }

    /// Sends a request to all nodes. The client ignores later answers to its earlier requests.
    fn send(&mut self, client: usize, request: Request) {
        self.forget_answers(client);
        for site in &mut self.sites {
            site.connections[client].present.send(request);
        }
    }

    fn forget_answers(&mut self, client: usize) {
        for site in &mut self.sites {
            site.connections[client].answer = Answer::None;
        }
    }
}
