//! The steps of the model.

use std::fmt;

use crate::network::{Attempt, Message};

/// One step. Clients and nodes are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client asks all nodes for the exclusive lock.
    Ask(usize),
    /// A client asks all nodes to share the lock.
    AskToShare(usize),
    /// A client whose exclusive attempt has no quorum yet asks all nodes once more, with the same token.
    AskAgain(usize),
    /// A client releases the lock, or abandons its attempt.
    Leave(usize),
    /// A client asks all nodes to extend its lease.
    Renew(usize),
    /// An exclusive holder asks all nodes to share its lock.
    Downgrade(usize),
    /// A message arrives, and the node executes it.
    Arrive(Message),
    /// A message is lost.
    Lose(Message),
    /// A client counts the yes vote of a node.
    Count(usize, usize),
    /// A tick passes on all clocks.
    Tick,
    /// The clock of one node advances by a tick, and no other clock does.
    RunNodeAhead(usize),
    /// The clock of one client advances by a tick, and no other clock does.
    RunClientAhead(usize),
    /// A node's clock is set forward, so that its key expires.
    SetClock(usize),
    /// A node crashes and comes back.
    Restart(usize),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ask(client) => write!(f, "{} asks all nodes", Client(client)),
            Self::AskToShare(client) => write!(f, "{} asks all nodes to share", Client(client)),
            Self::AskAgain(client) => write!(f, "{} asks all nodes again", Client(client)),
            Self::Leave(client) => write!(f, "{} releases or abandons its attempt", Client(client)),
            Self::Renew(client) => write!(f, "{} asks for an extension", Client(client)),
            Self::Downgrade(client) => write!(f, "{} downgrades its lock", Client(client)),
            Self::Arrive(message) => write!(f, "{} executes {message}", Node(message.node)),
            Self::Lose(message) => write!(f, "{message} to {} is lost", Node(message.node)),
            Self::Count(client, node) => {
                write!(f, "{} counts the yes vote of {}", Client(client), Node(node))
            }
            Self::Tick => f.write_str("a tick passes"),
            Self::RunNodeAhead(node) => write!(f, "a tick passes on {} alone", Node(node)),
            Self::RunClientAhead(client) => write!(f, "a tick passes for {} alone", Client(client)),
            Self::SetClock(node) => {
                write!(f, "the clock of {} is set forward, its key expires", Node(node))
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

/// Displays a client as `A`, `B` or `C`.
struct Client(usize);

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ('A'..='Z').nth(self.0).unwrap_or('?'))
    }
}

/// Displays a node as `node 1`, `node 2` or `node 3`.
struct Node(usize);

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0 + 1)
    }
}
