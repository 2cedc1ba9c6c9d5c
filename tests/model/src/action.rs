//! What can happen next.

use std::fmt;

use crate::network::{Attempt, Message};

/// One step. Clients and nodes are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client asks all nodes for the lock.
    Ask(usize),
    /// A client gives up, or releases.
    Leave(usize),
    /// A client asks all nodes to extend its lease.
    Renew(usize),
    /// A message arrives, and the node executes it.
    Arrive(Message),
    /// A message is lost.
    Lose(Message),
    /// A client reads the answer of a node.
    Count(usize, usize),
    /// A tick passes on all clocks.
    Tick,
    /// A tick passes on a node's clock alone.
    RunNodeAhead(usize),
    /// A tick passes on a client's clock alone.
    RunClientAhead(usize),
    /// A node's clock is set, so that its key runs out.
    SetClock(usize),
    /// A node crashes and comes back.
    Restart(usize),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ask(client) => write!(f, "{} asks all nodes", Client(client)),
            Self::Leave(client) => write!(f, "{} gives up or releases", Client(client)),
            Self::Renew(client) => write!(f, "{} asks for an extension", Client(client)),
            Self::Arrive(message) => write!(f, "{} executes {message}", Node(message.node)),
            Self::Lose(message) => write!(f, "{message} to {} is lost", Node(message.node)),
            Self::Count(client, node) => {
                write!(f, "{} counts the yes of {}", Client(client), Node(node))
            }
            Self::Tick => f.write_str("a tick passes"),
            Self::RunNodeAhead(node) => write!(f, "a tick passes on {} alone", Node(node)),
            Self::RunClientAhead(client) => write!(f, "a tick passes for {} alone", Client(client)),
            Self::SetClock(node) => {
                write!(f, "the clock of {} is set, its key runs out", Node(node))
            }
            Self::Restart(node) => write!(f, "{} restarts", Node(node)),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let former = if self.attempt == Attempt::Former { "former " } else { "" };
        write!(f, "{}'s {former}{}", Client(self.client), self.request)
    }
}

/// Called A, B, C.
struct Client(usize);

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ('A'..='Z').nth(self.0).unwrap_or('?'))
    }
}

/// Called node 1, node 2, node 3.
struct Node(usize);

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0 + 1)
    }
}
