//! A simulated server, with its crashes and restarts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::network::{Arrival, Network, Packet, Sender};
use super::resp::{Reply, take_request};
use super::store::{ConnectionId, Content, Sorted, Store};
use super::trace::Trace;

/// Whether a server keeps its data over a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    Kept,
    Lost,
}

/// A server's wall clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct WallClock {
    /// How much faster the clock runs than the simulated time, in millionths.
    pub(super) drift: i32,
    /// How many milliseconds the clock is ahead at the beginning.
    pub(super) ahead: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Server(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    number: usize,
    network: Network,
    trace: Trace,
    clock: WallClock,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    store: Store,
    /// The number of restarts.
    restarts: u32,
    connections: BTreeMap<ConnectionId, Sender>,
    next_connection: ConnectionId,
    /// The violations that the server has found.
    violations: Vec<String>,
    /// The longest lease that a client asks for, in milliseconds.
    longest_lease: i64,
    /// The sum of all steps of the wall clock, in milliseconds.
    stepped: i64,
    /// The sum of the backward steps alone, as a positive number of milliseconds.
    stepped_back: i64,
}

/// The uptime of the servers when a simulation begins.
const RUNNING_FOR: Duration = Duration::from_secs(3600);

/// How long the mark of a waiting writer and a turn of the readers last, in milliseconds.
const LONGEST_MARK: i64 = 1000;
const TURN: i64 = 50;

/// The prefix of the fencing counters, which have no time to live.
const COUNTERS: &[u8] = b"redlock:fencing:";
/// The prefix of the fair queues of both dialects.
const FAIR: &[u8] = b"redlock:fair";
/// The longest time to live of a fair queue, in milliseconds.
const PRESENCE: i64 = 3000;

impl Server {
    pub(super) fn start(
        number: usize,
        network: &Network,
        trace: &Trace,
        clock: WallClock,
        longest_lease: Duration,
        tracks: bool,
    ) -> Self {
        let shared = Shared {
            number,
            network: network.clone(),
            trace: trace.clone(),
            clock,
            began: Instant::now(),
            state: Mutex::new(State {
                store: Store::new(String::new(), Duration::ZERO, tracks, false),
                restarts: 0,
                connections: BTreeMap::new(),
                next_connection: 0,
                violations: Vec::new(),
                longest_lease: i64::try_from(longest_lease.as_millis()).expect("a lease"),
                stepped: 0,
                stepped_back: 0,
            }),
        };
        let server = Self(Arc::new(shared));
        let started = server.now().saturating_sub(RUNNING_FOR);
        let is_newer = server.is_newer(0);
        server.begin(Store::new(format!("life-0-of-{number}"), started, tracks, is_newer));
        server
    }

    /// Ends the server process and its connections.
    pub(super) fn crash(&self) {
        self.0.network.stop(self.0.number);
        self.0.state.lock().connections.clear();
    }

    /// Returns whether the server has newer commands after this number of restarts. Each restart is an upgrade or a downgrade,
    /// and about half of the servers of all seeds begin with the newer version.
    fn is_newer(&self, restarts: u32) -> bool {
        (self.0.number as u64 + self.0.clock.ahead + u64::from(restarts)).is_multiple_of(2)
    }

    /// Starts the server again.
    pub(super) fn restart(&self, memory: Memory) {
        let now = self.now();
        let store = {
            let state = &mut *self.0.state.lock();
            state.restarts += 1;
            let run_id = format!("life-{}-of-{}", state.restarts, self.0.number);
            let is_newer = self.is_newer(state.restarts);
            match memory {
                Memory::Kept => state.store.restarted(run_id, now, is_newer),
                Memory::Lost => Store::new(run_id, now, state.store.tracks, is_newer),
            }
        };
        self.begin(store);
    }

    /// Deletes a key, as an operator does by hand.
    pub(super) fn delete(&self, key: &str) {
        // No client has this connection.
        self.execute(usize::MAX, 0, &["DEL", key].map(|word| word.as_bytes().to_vec()));
    }

    pub(super) fn forget_scripts(&self) {
        self.0.state.lock().store.forget_scripts();
    }

    /// Steps the wall clock by `by` milliseconds, backward if `by` is negative.
    pub(super) fn step_clock(&self, by: i64) {
        let state = &mut *self.0.state.lock();
        state.stepped += by;
        state.stepped_back += (-by).max(0);
    }

    fn begin(&self, store: Store) {
        self.0.state.lock().store = store;
        let mut arrivals = self.0.network.listen(self.0.number);
        let server = self.clone();
        tokio::spawn(async move {
            while let Some(arrival) = arrivals.recv().await {
                tokio::spawn(server.clone().serve(arrival));
            }
        });
    }

    /// Returns the keys of the locks that have not expired.
    pub(super) fn locks(&self) -> Vec<String> {
        let now = i64::try_from(self.now().as_millis()).expect("a time that fits into an i64");
        let state = self.0.state.lock();
        let is_there = |until: Option<i64>| until.is_none_or(|until| until >= now);
        let keys = state.store.keys.iter().filter(|(_, entry)| is_there(entry.until));
        let locks = keys.map(|(key, _)| key).filter(|key| !key.starts_with(COUNTERS));
        locks.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    /// Returns the keys of the locks at which the living mark of a writer stands.
    pub(super) fn marked_keys(&self) -> Vec<String> {
        let now = i64::try_from(self.now().as_millis()).expect("a time that fits into an i64");
        let state = self.0.state.lock();
        let is_marked = |value: &Content| {
            let Content::Sorted(members) = value else { return false };
            shared_entries(members).any(|(kind, till)| kind == b'w' && till >= now)
        };
        let locks = state.store.keys.iter().filter(|(key, _)| !key.starts_with(FAIR));
        let marked = locks.filter(|(_, entry)| is_marked(&entry.value));
        marked.map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect()
    }

    pub(super) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.0.state.lock().violations)
    }

    /// Returns the time since 1970 on the server's clock.
    fn now(&self) -> Duration {
        const BEGINNING: Duration = Duration::from_secs(1_790_000_000);
        let elapsed = self.0.began.elapsed();
        let elapsed = elapsed.mul_f64(1.0 + f64::from(self.0.clock.drift) / 1e6);
        let stepped = self.0.state.lock().stepped;
        let by = Duration::from_millis(stepped.unsigned_abs());
        let steady = BEGINNING + Duration::from_millis(self.0.clock.ahead) + elapsed;
        if stepped < 0 { steady.saturating_sub(by) } else { steady + by }
    }

    async fn serve(self, arrival: Arrival) {
        let Arrival { client, mut receiver, sender } = arrival;
        let id = {
            let state = &mut *self.0.state.lock();
            state.next_connection += 1;
            state.connections.insert(state.next_connection, sender);
            state.next_connection
        };
        let mut unread = Vec::new();
        while let Packet::Data(bytes) = receiver.next().await {
            unread.extend(bytes);
            while let Some(request) = take_request(&mut unread) {
                self.execute(client, id, &request);
            }
        }
        let state = &mut *self.0.state.lock();
        state.store.forget(id);
        if let Some(sender) = state.connections.remove(&id) {
            sender.end();
        }
    }

    fn execute(&self, client: usize, connection: ConnectionId, request: &[Vec<u8>]) {
        let now = self.now();
        let state = &mut *self.0.state.lock();
        let outgoing = state.store.execute(connection, now, request);
        let Shared { number, trace, .. } = &*self.0;
        trace.record(|| {
            let replies: Vec<_> = outgoing.iter().map(|(_, reply)| reply.shown()).collect();
            let (request, replies) = (trace.request(request), replies.join(", "));
            format!("server {number}, client {client}: {request} -> {replies}")
        });
        // A client sends no request that Redis does not understand.
        let is_mistake =
            |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with("ERR"));
        for (_, reply) in outgoing.iter().filter(|(_, reply)| is_mistake(reply)) {
            let words = request.iter().map(|word| String::from_utf8_lossy(word));
            let words = words.collect::<Vec<_>>().join(" ");
            state.violations.push(format!("server {number}: {words} -> {}", reply.shown()));
        }
        for (to, reply) in outgoing {
            if let Some(sender) = state.connections.get(&to) {
                sender.send(reply.encoded());
            }
        }
        state.check_deadlines(*number);
    }
}

impl State {
    /// Checks that every lock has a deadline, and that a shared lock ends with its last entry.
    fn check_deadlines(&mut self, number: usize) {
        let Self { store, longest_lease, stepped_back, .. } = self;
        for (key, entry) in store.keys.iter().filter(|(key, _)| !key.starts_with(COUNTERS)) {
            let time_to_live = store.time_to_live(key);
            // A backward step prolongs the leases.
            let allowed = |longest: i64| 0..=longest + *stepped_back;
            let is_allowed = match &entry.value {
                Content::Text(_) | Content::Hash(_) => {
                    allowed(*longest_lease).contains(&time_to_live)
                }
                Content::Sorted(_) if key.starts_with(FAIR) => {
                    allowed(PRESENCE).contains(&time_to_live)
                }
                Content::Sorted(members) => {
                    let entries =
                        shared_entries(members).map(|(kind, till)| (kind, till - store.millis()));
                    let living: Vec<_> = entries.filter(|(_, left)| *left >= 0).collect();
                    let is_short = |(kind, left): &(u8, i64)| match kind {
                        b'w' => allowed(LONGEST_MARK).contains(left),
                        b't' => allowed(TURN).contains(left),
                        _ => allowed(*longest_lease).contains(left),
                    };
                    let last = living.iter().map(|(_, left)| *left).max();
                    living.iter().all(is_short) && last == Some(time_to_live)
                }
            };
            if !is_allowed {
                let (key, value) = (String::from_utf8_lossy(key), entry.value.shown());
                let words = format!(
                    "{key} has a time to live of {time_to_live} ms on server {number}: {value}"
                );
                self.violations.push(words);
            }
        }
    }
}

/// Returns the kind and the end of each entry of a shared lock.
fn shared_entries(members: &Sorted) -> impl Iterator<Item = (u8, i64)> {
    let entries = members.iter().filter(|(member, _)| &member[..] != b"shared");
    entries.map(|(member, score)| (member[0], score.abs()))
}
