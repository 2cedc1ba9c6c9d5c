//! The network between the clients and the servers of a simulation.
//!
//! Connections are as those of TCP: nothing is reordered or lost inside one, while those of one pair
//! of machines may overtake each other. A way that is held delivers nothing until it is let go again,
//! which is what a partition looks like to TCP, that sends again what was lost. A connection that is
//! torn loses some of what was under way; what still arrives does so before anything that is sent over
//! a later connection.

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

use pipe::Pipe;
pub(super) use pipe::{Packet, Receiver};
pub(crate) use stream::{Dial, Stream};

/// The time in milliseconds that something takes from one machine to the other.
pub(super) type Latency = RangeInclusive<u64>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

/// The connection that a server has been asked for.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) client: usize,
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
}

/// All machines, and the ways between them.
#[derive(Debug, Clone)]
pub(super) struct Network(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A way was let go.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    random: SmallRng,
    latency: Latency,
    ways: BTreeMap<Way, Condition>,
    /// Where the servers that run take connections.
    listeners: BTreeMap<usize, mpsc::UnboundedSender<Arrival>>,
    connections: Vec<Connection>,
    /// The clients that will never be heard of again.
    lost: BTreeSet<usize>,
}

type Way = (usize, usize, Direction);

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
            ways: BTreeMap::new(),
            listeners: BTreeMap::new(),
            connections: Vec::new(),
            lost: BTreeSet::new(),
        };
        Self(Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() }))
    }

    /// The way of a client to a server.
    pub(super) fn dial(&self, client: usize, server: usize) -> Dial {
        Dial { network: self.clone(), client, server }
    }

    /// Takes connections for a server, from now on.
    pub(super) fn listen(&self, server: usize) -> mpsc::UnboundedReceiver<Arrival> {
        let (listener, arrivals) = mpsc::unbounded_channel();
        self.0.state.lock().listeners.insert(server, listener);
        arrivals
    }

    /// Ends all connections of a server, which takes no more. What it has sent may get there.
    pub(super) fn stop(&self, server: usize) {
        let state = &mut *self.0.state.lock();
        state.listeners.remove(&server);
        state.tear(|connection| connection.server == server, true);
    }

    /// Tears the connections between two machines.
    pub(super) fn tear(&self, client: usize, server: usize) {
        let of = |connection: &Connection| (connection.client, connection.server);
        self.0.state.lock().tear(|connection| of(connection) == (client, server), false);
    }

    /// Delivers nothing over the connections that there are between two machines, until they are
    /// [let go](Self::unstall).
    pub(super) fn stall(&self, client: usize, server: usize) {
        let state = &mut *self.0.state.lock();
        for connection in &state.connections {
            if (connection.client, connection.server) == (client, server) {
                connection.pipes().for_each(|pipe| pipe.hold());
            }
        }
    }

    pub(super) fn unstall(&self, client: usize, server: usize) {
        let state = &mut *self.0.state.lock();
        let ways = [Direction::ToServer, Direction::ToClient];
        let [to_server, to_client] = ways.map(|way| state.is_held((client, server, way)));
        for connection in &state.connections {
            if (connection.client, connection.server) != (client, server) {
                continue;
            }
            let at = Instant::now() + Duration::from_millis(state.random.random_range(0..=20));
            if let Some(pipe) = connection.to_server.upgrade().filter(|_| !to_server) {
                pipe.let_go(at);
            }
            if let Some(pipe) = connection.to_client.upgrade().filter(|_| !to_client) {
                pipe.let_go(at);
            }
        }
    }

    /// Delivers nothing on this way until it is [let go](Self::let_go).
    pub(super) fn hold(&self, client: usize, server: usize, direction: Direction) {
        let state = &mut *self.0.state.lock();
        state.ways.entry((client, server, direction)).or_default().held = true;
        state.pipes(client, server, direction).iter().for_each(|pipe| pipe.hold());
    }

    /// Delivers again, what was held too.
    pub(super) fn let_go(&self, client: usize, server: usize, direction: Direction) {
        let state = &mut *self.0.state.lock();
        if state.lost.contains(&client) {
            return;
        }
        state.ways.entry((client, server, direction)).or_default().held = false;
        for pipe in state.pipes(client, server, direction) {
            // Each is sent again in its own time.
            let pause = Duration::from_millis(state.random.random_range(0..=20));
            pipe.let_go(Instant::now() + pause);
        }
        self.0.changed.notify_waiters();
    }

    /// Delivers nothing for a client any more. Its connections end, or stay open for ever.
    pub(super) fn lose(&self, client: usize, ends_connections: bool) {
        let state = &mut *self.0.state.lock();
        state.lost.insert(client);
        if ends_connections {
            state.tear(|connection| connection.client == client, false);
        }
        for connection in state.connections.iter().filter(|each| each.client == client) {
            connection.pipes().filter(|_| !ends_connections).for_each(|pipe| pipe.hold());
        }
    }

    /// Makes a way slower, or as fast as it was.
    pub(super) fn slow(&self, way: (usize, usize, Direction), latency: Option<Latency>) {
        self.0.state.lock().ways.entry(way).or_default().latency = latency;
    }

    /// Waits as long as a packet takes on a way.
    async fn passes(&self, client: usize, server: usize, direction: Direction) {
        let way = (client, server, direction);
        let latency = self.0.state.lock().latency(way);
        sleep(latency).await;
        loop {
            let changed = self.0.changed.notified();
            if !self.0.state.lock().is_held(way) {
                return;
            }
            changed.await;
        }
    }

    /// Connects, if the server runs.
    fn accept(&self, client: usize, server: usize) -> io::Result<Stream> {
        let state = &mut *self.0.state.lock();
        let listener = state.listeners.get(&server).ok_or(io::ErrorKind::ConnectionRefused)?;
        let new = |direction| {
            let way = (client, server, direction);
            let pipe = Pipe::new(state.is_held(way));
            (Sender { network: self.clone(), pipe: Arc::clone(&pipe), way }, pipe)
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
    fn is_held(&self, way: Way) -> bool {
        self.lost.contains(&way.0) || self.ways.get(&way).is_some_and(|way| way.held)
    }

    fn latency(&mut self, way: Way) -> Duration {
        let of_way = self.ways.get(&way).and_then(|way| way.latency.clone());
        let latency = of_way.unwrap_or_else(|| self.latency.clone());
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

    fn tear(&mut self, which: impl Fn(&Connection) -> bool, server_is_gone: bool) {
        for connection in self.connections.iter().filter(|connection| which(connection)) {
            if let Some(pipe) = connection.to_server.upgrade() {
                // What does not get through has to be sent again, which nobody does any more.
                let lost = server_is_gone || pipe.is_held();
                let most = if lost { 0 } else { pipe.under_way() };
                pipe.tear(self.random.random_range(0..=most));
            }
            if let Some(pipe) = connection.to_client.upgrade() {
                pipe.tear(self.random.random_range(0..=pipe.under_way()));
            }
        }
    }
}

/// The end of a pipe that things are put into.
#[derive(Debug)]
pub(super) struct Sender {
    network: Network,
    pipe: Arc<Pipe>,
    way: Way,
}

impl Sender {
    pub(super) fn is_closed(&self) -> bool {
        self.pipe.is_closed()
    }

    /// Sends, now and then in two pieces.
    pub(super) fn send(&self, mut bytes: Vec<u8>) {
        let state = &mut *self.network.0.state.lock();
        if bytes.len() > 1 && state.random.random_ratio(1, 30) {
            let at = state.random.random_range(1..bytes.len());
            let rest = bytes.split_off(at);
            self.pipe.push(Instant::now() + state.latency(self.way), Packet::Data(bytes));
            bytes = rest;
        }
        self.pipe.push(Instant::now() + state.latency(self.way), Packet::Data(bytes));
    }

    pub(super) fn end(&self) {
        let latency = self.network.0.state.lock().latency(self.way);
        self.pipe.push(Instant::now() + latency, Packet::End);
    }
}
