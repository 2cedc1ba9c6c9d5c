//! The steps of the model.

use std::fmt;

/// One step. Clients are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client asks for the lock.
    Ask(usize),
    /// The leader creates the child of a client, or confirms it.
    Create(usize),
    /// The server of a client lists the queue.
    List(usize),
    /// A client gets the list, and decides.
    Decide(usize),
    /// A holder hands its lock over within its process.
    HandOver(usize),
    /// A client releases the lock, or gives its place up.
    Leave(usize),
    /// The leader removes the child of a client that leaves.
    Remove(usize),
    /// A client sends a beat.
    Beat(usize),
    /// The follower forwards the beat of a client.
    Forward(usize),
    /// The leader hears of the session of a client.
    Hear(usize),
    /// A client learns when the leader has last heard of its session.
    Learn(usize),
    /// A client connects again.
    Reconnect(usize),
    /// A client connects to a server that allows only a shorter session, and leaves it.
    Shorten(usize),
    /// The leader ends the session of a client.
    End(usize),
    /// The leader sends a ping to the follower.
    Ping,
    /// The leader executes the next message of the follower.
    Execute,
    /// The follower takes the next message of the leader.
    Take,
    /// A tick passes on all clocks.
    Tick,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |client| ('A'..='Z').nth(client).unwrap_or('?');
        match *self {
            Self::Ask(client) => write!(f, "{} asks for the lock", name(client)),
            Self::Create(client) => write!(f, "the leader has the child of {}", name(client)),
            Self::List(client) => write!(f, "the queue is listed for {}", name(client)),
            Self::Decide(client) => write!(f, "{} gets the list", name(client)),
            Self::HandOver(client) => write!(f, "{} hands its lock over", name(client)),
            Self::Leave(client) => write!(f, "{} leaves", name(client)),
            Self::Remove(client) => write!(f, "the leader removes the child of {}", name(client)),
            Self::Beat(client) => write!(f, "{} sends a beat", name(client)),
            Self::Forward(client) => {
                write!(f, "the follower forwards the beat of {}", name(client))
            }
            Self::Hear(client) => write!(f, "the leader hears of {}", name(client)),
            Self::Learn(client) => write!(f, "{} learns when it was last heard of", name(client)),
            Self::Reconnect(client) => write!(f, "{} connects again", name(client)),
            Self::Shorten(client) => write!(f, "a server shortens the session of {}", name(client)),
            Self::End(client) => write!(f, "the leader ends the session of {}", name(client)),
            Self::Ping => f.write_str("the leader sends a ping"),
            Self::Execute => f.write_str("the leader executes a message of the follower"),
            Self::Take => f.write_str("the follower takes a message of the leader"),
            Self::Tick => f.write_str("a tick passes"),
        }
    }
}
