//! The network between the clients and the servers of a simulation.
//!
//! A connection behaves like TCP: it neither reorders nor loses bytes, but the bytes of one connection may
//! overtake those of another one between the same machines. A route leads from one machine to another. A
//! held route delivers nothing until it is resumed: TCP retransmits lost bytes, so a partition looks like a
//! delay. A reset connection loses some of its packets in flight; the other packets arrive before any
//! packet of a later connection.

mod pipe;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};

use super::resp::{Request, requests};
use pipe::Pipe;
pub(super) use pipe::{Packet, Receiver};
pub(crate) use stream::{Dial, Stream};

/// `BATCH_FROM` of `redlock-core`: from this number of commands in flight, a client's write waits for others. The driver of a
/// connection takes no command whose caller is gone, so a write with so many commands has waited.
const BATCH: usize = 8;

/// The time in milliseconds that a packet takes from one machine to another.
pub(super) type Latency = RangeInclusive<u64>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

/// A new connection, as its server receives it.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) client: usize,
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
}

/// The network between all machines.
#[derive(Debug, Clone)]
pub(super) struct Network(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notifies waiting connection attempts that a route was resumed.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    random: SmallRng,
    latency: Latency,
    routes: BTreeMap<Route, Condition>,
    /// The listeners of the servers that run.
    listeners: BTreeMap<usize, mpsc::UnboundedSender<Arrival>>,
    connections: Vec<Connection>,
    /// The clients that are cut off for good.
    lost: BTreeSet<usize>,
    /// The number of writes with many commands of callers.
    batches: u64,
}

type Route = (usize, usize, Direction);

#[derive(Debug, Clone, Default)]
struct Condition {
    held: bool,
    latency: Option<Latency>,
}

#[derive(Debug)]
struct Connection {
    client: usize,
    server: usize,
    to_server: Weak<Pipe>,
    to_client: Weak<Pipe>,
}

impl Network {
    pub(super) fn new(seed: u64, latency: Latency) -> Self {
        let state = State {
            random: SmallRng::seed_from_u64(seed),
            latency,
            routes: BTreeMap::new(),
            listeners: BTreeMap::new(),
            connections: Vec::new(),
            lost: BTreeSet::new(),
            batches: 0,
        };
        Self(Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() }))
    }

    /// Returns how many writes of clients contained at least [`BATCH`] commands.
    pub(super) fn batches(&self) -> u64 {
        self.0.state.lock().batches
    }

    /// Returns a dialer that opens connections from a client to a server.
    pub(super) fn dial(&self, client: usize, server: usize) -> Dial {
        Dial { network: self.clone(), client, server }
    }

    /// Accepts connections for a server from now on, and returns them.
    pub(super) fn listen(&self, server: usize) -> mpsc::UnboundedReceiver<Arrival> {
        let (listener, arrivals) = mpsc::unbounded_channel();
        self.0.state.lock().listeners.insert(server, listener);
        arrivals
    }

    /// Resets all connections of a server, and refuses new ones. Packets that the server has sent may still
    /// arrive.
    pub(super) fn stop(&self, server: usize) {
        let state = &mut *self.0.state.lock();
        state.listeners.remove(&server);
        state.reset(|connection| connection.server == server, true);
    }

    /// Resets the connections between two machines.
    pub(super) fn reset(&self, client: usize, server: usize) {
        let of = |connection: &Connection| (connection.client, connection.server);
        self.0.state.lock().reset(|connection| of(connection) == (client, server), false);
    }

    /// Stops the existing connections between two machines from delivering packets, until
    /// [`unstall`](Self::unstall).
    pub(super) fn stall(&self, client: usize, server: usize) {
        let state = &mut *self.0.state.lock();
        for connection in &state.connections {
            if (connection.client, connection.server) == (client, server) {
                connection.pipes().for_each(|pipe| pipe.hold());
            }
        }
    }

    /// Resumes stalled connections, except on routes that are held.
    pub(super) fn unstall(&self, client: usize, server: usize) {
        let state = &mut *self.0.state.lock();
        let routes = [Direction::ToServer, Direction::ToClient];
        let [to_server, to_client] = routes.map(|route| state.is_held((client, server, route)));
        for connection in &state.connections {
            if (connection.client, connection.server) != (client, server) {
                continue;
            }
            let at = Instant::now() + Duration::from_millis(state.random.random_range(0..=20));
            if let Some(pipe) = connection.to_server.upgrade().filter(|_| !to_server) {
                pipe.resume(at);
            }
            if let Some(pipe) = connection.to_client.upgrade().filter(|_| !to_client) {
                pipe.resume(at);
            }
        }
    }

    /// Stops a route from delivering packets, until [`resume`](Self::resume).
    pub(super) fn hold(&self, client: usize, server: usize, direction: Direction) {
        let state = &mut *self.0.state.lock();
        state.routes.entry((client, server, direction)).or_default().held = true;
        state.pipes(client, server, direction).iter().for_each(|pipe| pipe.hold());
    }

    /// Resumes a held route, which also delivers the held packets.
    pub(super) fn resume(&self, client: usize, server: usize, direction: Direction) {
        let state = &mut *self.0.state.lock();
        if state.lost.contains(&client) {
            return;
        }
        state.routes.entry((client, server, direction)).or_default().held = false;
        for pipe in state.pipes(client, server, direction) {
            // Each connection retransmits at its own time.
            let pause = Duration::from_millis(state.random.random_range(0..=20));
            pipe.resume(Instant::now() + pause);
        }
        self.0.changed.notify_waiters();
    }

    /// Cuts a client off for good. Its connections are reset, or stay open for ever.
    pub(super) fn lose(&self, client: usize, ends_connections: bool) {
        let state = &mut *self.0.state.lock();
        state.lost.insert(client);
        if ends_connections {
            state.reset(|connection| connection.client == client, false);
        }
        for connection in state.connections.iter().filter(|each| each.client == client) {
            connection.pipes().filter(|_| !ends_connections).for_each(|pipe| pipe.hold());
        }
    }

    /// Sets the latency of a route; `None` restores the usual latency.
    pub(super) fn slow(&self, route: (usize, usize, Direction), latency: Option<Latency>) {
        self.0.state.lock().routes.entry(route).or_default().latency = latency;
    }

    /// Waits as long as a packet takes on a route, including the time in which the route is held.
    async fn wait_for_passage(&self, client: usize, server: usize, direction: Direction) {
        let route = (client, server, direction);
        let latency = self.0.state.lock().latency(route);
        sleep(latency).await;
        loop {
            let changed = self.0.changed.notified();
            if !self.0.state.lock().is_held(route) {
                return;
            }
            changed.await;
        }
    }

    /// Opens a connection, if the server runs.
    fn accept(&self, client: usize, server: usize) -> io::Result<Stream> {
        let state = &mut *self.0.state.lock();
        let listener = state.listeners.get(&server).ok_or(io::ErrorKind::ConnectionRefused)?;
        let new = |direction| {
            let route = (client, server, direction);
            let pipe = Pipe::new(state.is_held(route));
            (Sender { network: self.clone(), pipe: Arc::clone(&pipe), route }, pipe)
        };
        let (to_server, into_server) = new(Direction::ToServer);
        let (to_client, into_client) = new(Direction::ToClient);
        state.connections.retain(|connection| connection.to_server.strong_count() > 0);
        let connection = Connection {
            client,
            server,
            to_server: Arc::downgrade(&into_server),
            to_client: Arc::downgrade(&into_client),
        };
        let receiver = Receiver::new(into_server);
        let arrival = Arrival { client, receiver, sender: to_client };
        listener.send(arrival).map_err(|_| io::ErrorKind::ConnectionRefused)?;
        state.connections.push(connection);
        Ok(Stream::new(to_server, Receiver::new(into_client)))
    }
}

impl Connection {
    fn pipes(&self) -> impl Iterator<Item = Arc<Pipe>> {
        [self.to_server.upgrade(), self.to_client.upgrade()].into_iter().flatten()
    }
}

impl State {
    fn is_held(&self, route: Route) -> bool {
        self.lost.contains(&route.0) || self.routes.get(&route).is_some_and(|route| route.held)
    }

    fn latency(&mut self, route: Route) -> Duration {
        let of_route = self.routes.get(&route).and_then(|route| route.latency.clone());
        let latency = of_route.unwrap_or_else(|| self.latency.clone());
        Duration::from_millis(self.random.random_range(latency))
    }

    fn pipes(&self, client: usize, server: usize, direction: Direction) -> Vec<Arc<Pipe>> {
        let of =
            |connection: &&Connection| (connection.client, connection.server) == (client, server);
        let pipe = |connection: &Connection| match direction {
            Direction::ToServer => connection.to_server.upgrade(),
            Direction::ToClient => connection.to_client.upgrade(),
        };
        self.connections.iter().filter(of).filter_map(pipe).collect()
    }

    fn reset(&mut self, which: impl Fn(&Connection) -> bool, server_is_gone: bool) {
        for connection in self.connections.iter().filter(|connection| which(connection)) {
            if let Some(pipe) = connection.to_server.upgrade() {
                // Nobody retransmits packets to a server that is gone, or packets on a held route.
                let lost = server_is_gone || pipe.is_held();
                let most = if lost { 0 } else { pipe.in_flight() };
                pipe.reset(self.random.random_range(0..=most));
            }
            if let Some(pipe) = connection.to_client.upgrade() {
                pipe.reset(self.random.random_range(0..=pipe.in_flight()));
            }
        }
    }
}

/// The sending end of a pipe.
#[derive(Debug)]
pub(super) struct Sender {
    network: Network,
    pipe: Arc<Pipe>,
    route: Route,
}

impl Sender {
    pub(super) fn is_closed(&self) -> bool {
        self.pipe.is_closed()
    }

    /// Sends bytes, sometimes in two packets.
    pub(super) fn send(&self, mut bytes: Vec<u8>) {
        let state = &mut *self.network.0.state.lock();
        if bytes.len() > 1 && state.random.random_ratio(1, 30) {
            let at = state.random.random_range(1..bytes.len());
            let rest = bytes.split_off(at);
            self.pipe.push(Instant::now() + state.latency(self.route), Packet::Data(bytes));
            bytes = rest;
        }
        self.pipe.push(Instant::now() + state.latency(self.route), Packet::Data(bytes));
    }

    /// Sends what a client has written.
    fn send_requests(&self, bytes: Vec<u8>) {
        // A new connection loads its scripts in one write, which no caller waits for.
        let is_of_a_caller = |request: &Request| matches!(&request[0][..], b"SET" | b"EVALSHA");
        let of_callers = requests(bytes.clone()).iter().filter(|each| is_of_a_caller(each)).count();
        self.network.0.state.lock().batches += u64::from(of_callers >= BATCH);
        self.send(bytes);
    }

    pub(super) fn end(&self) {
        let latency = self.network.0.state.lock().latency(self.route);
        self.pipe.push(Instant::now() + latency, Packet::End);
    }
}
