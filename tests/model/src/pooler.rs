//! A pooler that hides a failover, as a sixth model: two processes behind it, a primary, and its standby, which has no lock.
//!
//! The pooler keeps the connections of the processes, and sends each statement to the server that is the primary by then. A
//! process measures its server when it makes a connection, and asks for no lock until the server has been the primary for the
//! longest lease (`restart_guard`). It does not see that the pooler leads to another server later, unless each answer says
//! which session has given it.

use std::fmt;

use stateright::{Model, Property};

use crate::check::Found;

/// A rule of connections. "If broken" says how a model breaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A grant counts if the session of the connection has given it. If broken: each grant counts.
    CompareSessions,
    /// Sessions of two servers have different numbers. If broken: they can have the same one.
    DistinctNumbers,
    /// A connection measures its server. If broken: only the first connection of a process does.
    MeasureEachConnection,
}

const NAME: &str = "a pooler";
const ONE_HOLDER: &str = "at most one process relies on the lock";

/// Checks that one process at a time relies on the lock, and that a second one gets it after a failover.
///
/// # Panics
///
/// If two processes rely on it, with the steps that lead there. If nobody ever gets the lock after a failover.
pub fn holds() {
    Found::by(Pooler { broken: None }).expect_kept(NAME, "all rules are kept: all claims hold");
}

/// Checks that two processes rely on the lock while `rule` is broken, and prints the steps that lead there.
///
/// # Panics
///
/// If the checker finds no such steps.
pub fn needs(rule: Rule) {
    let found = Found::by(Pooler { broken: Some(rule) });
    found.expect_broken(NAME, &format!("without {rule:?}"), ONE_HOLDER);
}

type Tick = u8;

/// Each lease, and the time for which a new primary grants no lock.
const LEASE: Tick = 2;
/// The last tick: enough for a lease, a failover, the guard, and another lease.
const LAST: Tick = 5;

#[derive(Debug, Clone, Copy)]
struct Pooler {
    broken: Option<Rule>,
}

/// A server: the first primary, or the standby that replaces it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
enum Server {
    #[default]
    First,
    Standby,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Connection {
    session: Server,
    /// The process asks for no lock before this tick.
    opens: Tick,
}

/// A statement, with its answer once a server has executed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Statement {
    sent: Tick,
    /// The session, and whether it has granted the lock.
    answer: Option<(Server, bool)>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
struct Process {
    connection: Option<Connection>,
    has_connected: bool,
    statement: Option<Statement>,
    /// The process relies on the lock before this tick.
    valid_until: Tick,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    now: Tick,
    primary: Server,
    promoted: Tick,
    /// The owner of the lock on each server, and when it ends.
    locks: [(usize, Tick); 2],
    processes: [Process; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Tick,
    Failover,
    Connect(usize),
    Ask(usize),
    Execute(usize),
    Receive(usize),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick => write!(f, "a tick passes"),
            Self::Failover => write!(f, "the pooler leads to the standby"),
            Self::Connect(process) => {
                write!(f, "process {process} connects, and measures the server")
            }
            Self::Ask(process) => write!(f, "process {process} asks for the lock"),
            Self::Execute(process) => {
                write!(f, "the primary executes the statement of process {process}")
            }
            Self::Receive(process) => write!(f, "process {process} receives the answer"),
        }
    }
}

impl State {
    fn is_valid(&self, process: usize) -> bool {
        self.processes[process].valid_until > self.now
    }
}

impl Pooler {
    fn keeps(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    fn connect(self, state: &mut State, process: usize) {
        let one = &mut state.processes[process];
        let measures = self.keeps(Rule::MeasureEachConnection) || !one.has_connected;
        let is_new = state.primary == Server::Standby && measures;
        let opens = if is_new { state.promoted + LEASE } else { 0 };
        one.connection = Some(Connection { session: state.primary, opens });
        one.has_connected = true;
    }

    fn receive(self, state: &mut State, process: usize) {
        let one = &mut state.processes[process];
        let Some(Statement { sent, answer: Some((session, granted)) }) = one.statement.take()
        else {
            return;
        };
        let own = one.connection.map(|connection| connection.session);
        let is_own = own == Some(session) || !self.keeps(Rule::DistinctNumbers);
        if !is_own && self.keeps(Rule::CompareSessions) {
            one.connection = None;
            // The clean-up of the attempt.
            let (owner, until) = &mut state.locks[session as usize];
            if *owner == process {
                *until = 0;
            }
        } else if granted {
            one.valid_until = sent + LEASE;
        }
    }
}

impl Model for Pooler {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < LAST {
            actions.push(Action::Tick);
        }
        if state.primary == Server::First {
            actions.push(Action::Failover);
        }
        for (number, process) in state.processes.iter().enumerate() {
            match (process.connection, process.statement) {
                (None, _) => actions.push(Action::Connect(number)),
                (Some(Connection { opens, .. }), None) => {
                    if opens <= state.now && !state.is_valid(number) {
                        actions.push(Action::Ask(number));
                    }
                }
                (_, Some(Statement { answer: None, .. })) => actions.push(Action::Execute(number)),
                (_, Some(_)) => actions.push(Action::Receive(number)),
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Tick => state.now += 1,
            Action::Failover => {
                (state.primary, state.promoted) = (Server::Standby, state.now);
            }
            Action::Connect(process) => self.connect(&mut state, process),
            Action::Ask(process) => {
                state.processes[process].statement =
                    Some(Statement { sent: state.now, answer: None });
            }
            Action::Execute(process) => {
                let (owner, until) = &mut state.locks[state.primary as usize];
                let granted = *until <= state.now;
                if granted {
                    (*owner, *until) = (process, state.now + LEASE);
                }
                if let Some(statement) = &mut state.processes[process].statement {
                    statement.answer = Some((state.primary, granted));
                }
            }
            Action::Receive(process) => self.receive(&mut state, process),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![Property::always(ONE_HOLDER, |_, state: &State| {
            !(state.is_valid(0) && state.is_valid(1))
        })];
        if self.broken.is_none() {
            all.push(Property::sometimes(
                "another process gets the lock after a failover",
                |_, state| {
                    let State { primary, processes: [one, _], .. } = state;
                    *primary == Server::Standby && one.valid_until > 0 && state.is_valid(1)
                },
            ));
            all.push(Property::sometimes(
                "a connection ends by a strange session",
                |_, state: &State| {
                    let [one, _] = state.processes;
                    one.has_connected && one.connection.is_none()
                },
            ));
        }
        all
    }
}
