//! The leader, the follower, and the messages between them.

use super::client::CLIENTS;
use super::evidence::Times;

/// A message between the follower and the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Message {
    /// To the follower.
    Ping,
    /// To the leader: the clients that the follower has heard of since its last reply.
    Touched([bool; CLIENTS]),
    /// The beat of a client to the leader, or the reply to the follower, with the ticks since the client has sent it.
    Beat(usize, u8),
}

/// The session of a client, at the leader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Session {
    /// Ticks since the leader has heard of the session.
    pub(super) age: u8,
    pub(super) has_ended: bool,
    /// Whether the leader ends the session after the limit of the server that allows less than the others.
    pub(super) is_short: bool,
}

/// The leader, the follower, and the messages between them in the order of sending.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Ensemble {
    pub(super) sessions: [Session; CLIENTS],
    /// The clients whose child is in the queue of the lock, in the order of the children.
    pub(super) queue: Vec<usize>,
    /// Counts the transactions, if locks have fencing numbers.
    pub(super) zxid: u8,
    /// The number of the last transaction that has changed the queue.
    pub(super) pzxid: u8,
    /// The ticks until the leader has to send a ping before it executes a message.
    pub(super) next_ping: u8,
    /// The clients that the follower has heard of since its last reply to a ping.
    pub(super) table: [bool; CLIENTS],
    pub(super) to_leader: Vec<Message>,
    pub(super) to_follower: Vec<Message>,
}

impl Ensemble {
    pub(super) fn has_child(&self, client: usize) -> bool {
        self.queue.contains(&client)
    }

    pub(super) fn is_first(&self, client: usize) -> bool {
        self.queue.first() == Some(&client)
    }

    /// The leader hears of a session.
    pub(super) fn touch(&mut self, client: usize) {
        if !self.sessions[client].has_ended {
            self.sessions[client].age = 0;
        }
    }

    /// The leader ends a session, and removes its child.
    pub(super) fn end(&mut self, client: usize, is_fenced: bool) {
        self.sessions[client].has_ended = true;
        self.remove_child(client, is_fenced);
    }

    pub(super) fn remove_child(&mut self, client: usize, is_fenced: bool) {
        if self.has_child(client) {
            self.queue.retain(|other| *other != client);
            self.pzxid = self.next_zxid(is_fenced);
        }
    }

    pub(super) fn next_zxid(&mut self, is_fenced: bool) -> u8 {
        self.zxid += u8::from(is_fenced);
        self.zxid
    }

    /// The leader sends a ping, and the next one after `pause`.
    pub(super) fn ping(&mut self, pause: u8) {
        self.next_ping = pause;
        // A late ping has the same effect as two pings in a row.
        if self.to_follower.last() != Some(&Message::Ping) {
            self.to_follower.push(Message::Ping);
        }
    }

    /// The leader executes the next message of the follower.
    pub(super) fn execute(&mut self) {
        match self.to_leader.remove(0) {
            Message::Touched(clients) => {
                (0..CLIENTS)
                    .filter(|client| clients[*client])
                    .for_each(|client| self.touch(client));
            }
            Message::Beat(client, _) if self.sessions[client].has_ended => {}
            beat => self.to_follower.push(beat),
        }
    }

    /// The follower takes the beat of a client, and forwards it.
    pub(super) fn forward(&mut self, client: usize, age: u8) {
        self.table[client] = true;
        self.to_leader.push(Message::Beat(client, age));
    }

    /// The follower takes the next message of the leader. Returns the client to which it passes a reply on, and the age of its
    /// beat.
    pub(super) fn take(&mut self) -> Option<(usize, u8)> {
        match self.to_follower.remove(0) {
            Message::Beat(client, age) => return Some((client, age)),
            _ if self.table.contains(&true) => {
                self.to_leader.push(Message::Touched(std::mem::take(&mut self.table)));
            }
            _ => {}
        }
        None
    }

    /// The connection of a client has ended, and its beats with it.
    pub(super) fn forget_beats(&mut self, of: usize) {
        self.retain(|client, _| client != of);
    }

    /// Advances the time by a tick. A beat that is too old for a chain makes no difference any more.
    pub(super) fn advance(&mut self, times: Times) {
        self.next_ping = self.next_ping.saturating_sub(1);
        for session in &mut self.sessions {
            session.age = times.timeout.min(session.age + 1);
        }
        for message in self.to_leader.iter_mut().chain(&mut self.to_follower) {
            if let Message::Beat(_, age) = message {
                *age += 1;
            }
        }
        self.retain(|_, age| !times.is_gap(age));
    }

    fn retain(&mut self, keep: impl Fn(usize, u8) -> bool) {
        for messages in [&mut self.to_leader, &mut self.to_follower] {
            messages.retain(|message| match *message {
                Message::Beat(client, age) => keep(client, age),
                Message::Ping | Message::Touched(_) => true,
            });
            messages.dedup_by(|next, before| match (next, before) {
                (Message::Ping, Message::Ping) => true,
                (Message::Touched(next), Message::Touched(before)) => {
                    (0..CLIENTS).for_each(|client| before[client] |= next[client]);
                    true
                }
                _ => false,
            });
        }
    }
}
