//! A network that a test controls.

mod pump;
mod wall_clock;

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::redis_server::RedisServer;
use pump::Pump;

/// The direction of the data on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Replies.
    ToClient,
}

/// The treatment of the data in one direction. As with TCP, the bytes of a connection arrive in order and
/// without gaps until the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// The data passes without a delay.
    Pass,
    /// The data arrives later by this duration, as over a slow link.
    Delay(Duration),
    /// The data and the end of the connection are held back, as in a network partition. They arrive when the
    /// traffic changes.
    Hold,
    /// This many more bytes pass, then both sides see a connection reset.
    ResetAfter(usize),
}

/// The treatment of new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Welcome {
    /// The proxy connects to the server.
    Forward,
    /// The proxy accepts the connection and never answers.
    Silence,
    /// The proxy accepts the connection and closes it at once, as a proxy without a server does.
    Close,
}

/// A TCP proxy in front of one server. The test changes its behaviour while it runs.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    _end: DropGuard,
}

#[derive(Debug)]
struct Shared {
    target: AtomicU16,
    welcome: Mutex<Welcome>,
    /// The number of accepted connections.
    accepted: AtomicUsize,
    /// How many seconds the proxy adds to the server's replies to `TIME`.
    clock_ahead: Arc<AtomicI64>,
    /// The traffic of new connections, by direction.
    defaults: [watch::Sender<Traffic>; 2],
    connections: Mutex<Vec<Connection>>,
    end: CancellationToken,
}

/// One connection through a [`Proxy`].
#[derive(Debug, Clone)]
pub struct Connection {
    traffic: [watch::Sender<Traffic>; 2],
    /// Resets the socket of each side.
    reset: [CancellationToken; 2],
    /// The number of bytes that the proxy has received, by direction.
    received: Arc<[AtomicUsize; 2]>,
    clock_ahead: Arc<AtomicI64>,
    /// The data that the proxy delivered to the server after the reset of the client's side.
    outlived: Arc<Mutex<Vec<u8>>>,
}

impl Direction {
    const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];
}

impl Proxy {
    /// Starts a proxy in front of a server.
    ///
    /// # Panics
    ///
    /// If the proxy cannot listen.
    pub async fn to(server: &RedisServer) -> Self {
        Self::to_port(server.port()).await
    }

    /// Starts a proxy in front of the server at this port.
    ///
    /// # Panics
    ///
    /// If the proxy cannot listen.
    pub async fn to_port(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let end = CancellationToken::new();
        let shared = Arc::new(Shared {
            target: AtomicU16::new(server),
            welcome: Mutex::new(Welcome::Forward),
            accepted: AtomicUsize::new(0),
            clock_ahead: Arc::default(),
            defaults: Direction::BOTH.map(|_| watch::Sender::new(Traffic::Pass)),
            connections: Mutex::default(),
            end: end.clone(),
        });
        tokio::spawn(Arc::clone(&shared).listen(listener));
        Self { port, shared, _end: end.drop_guard() }
    }

    /// Returns the port of the proxy, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of the server through this proxy.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Connects new connections to another server, as a DNS name does after a failover.
    pub fn lead_to(&self, server: &RedisServer) {
        self.lead_to_port(server.port());
    }

    /// Connects new connections to the server at this port.
    pub fn lead_to_port(&self, server: u16) {
        self.shared.target.store(server, Ordering::SeqCst);
    }

    /// Adds `seconds` to the server's replies to `TIME` on all connections. The clock by which the server
    /// expires its keys does not change.
    pub fn set_clock_ahead(&self, seconds: i64) {
        self.shared.clock_ahead.store(seconds, Ordering::SeqCst);
    }

    /// Sets the treatment of new connections.
    pub fn welcome(&self, welcome: Welcome) {
        *self.shared.welcome.lock().unwrap_or_else(PoisonError::into_inner) = welcome;
    }

    /// Returns how many connections the proxy has accepted.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Sets the traffic in one direction, on all present and future connections.
    pub fn set(&self, direction: Direction, traffic: Traffic) {
        // Hold the mutex for both steps, so that no new connection is missed.
        let connections = self.shared.lock();
        self.shared.defaults[direction as usize].send_replace(traffic);
        for connection in connections.iter() {
            connection.set(direction, traffic);
        }
    }

    /// Sets the traffic in both directions, on all present and future connections.
    pub fn set_both(&self, traffic: Traffic) {
        for direction in Direction::BOTH {
            self.set(direction, traffic);
        }
    }

    /// Resets all connections.
    pub fn reset(&self) {
        self.connections().iter().for_each(Connection::reset);
    }

    /// Returns the open connections, the oldest first.
    pub fn connections(&self) -> Vec<Connection> {
        let mut connections = self.shared.lock();
        connections.retain(|connection| !connection.is_over());
        connections.clone()
    }
}

impl Connection {
    /// Sets the traffic in one direction.
    pub fn set(&self, direction: Direction, traffic: Traffic) {
        self.traffic[direction as usize].send_replace(traffic);
    }

    /// Sets the traffic in both directions.
    pub fn set_both(&self, traffic: Traffic) {
        for direction in Direction::BOTH {
            self.set(direction, traffic);
        }
    }

    /// Returns how many bytes the proxy has received for this direction, delivered or not.
    pub fn received(&self, direction: Direction) -> usize {
        self.received[direction as usize].load(Ordering::SeqCst)
    }

    /// Returns the data that reached the server after the [reset](Self::reset_client) of the client's side.
    pub fn outlived(&self) -> Vec<u8> {
        self.outlived.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether both sides have ended.
    pub fn is_over(&self) -> bool {
        self.reset.iter().all(CancellationToken::is_cancelled)
    }

    /// Resets both sides, and discards held-back data.
    pub fn reset(&self) {
        self.reset.iter().for_each(CancellationToken::cancel);
    }

    /// Resets only the client's side. Held-back requests may still reach the server.
    pub fn reset_client(&self) {
        self.reset[Direction::ToClient as usize].cancel();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn listen(self: Arc<Self>, listener: TcpListener) {
        loop {
            let client = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.end.cancelled() => return,
            };
            if let Ok((client, _)) = client {
                tokio::spawn(Arc::clone(&self).serve(client));
            }
        }
    }

    async fn serve(self: Arc<Self>, client: TcpStream) {
        self.accepted.fetch_add(1, Ordering::SeqCst);
        let welcome = *self.welcome.lock().unwrap_or_else(PoisonError::into_inner);
        match welcome {
            Welcome::Forward => {}
            Welcome::Silence => return self.end.cancelled().await,
            Welcome::Close => return,
        }
        let connection = {
            let mut connections = self.lock();
            let connection = Connection {
                traffic: self
                    .defaults
                    .each_ref()
                    .map(|default| watch::Sender::new(*default.borrow())),
                reset: Direction::BOTH.map(|_| self.end.child_token()),
                received: Arc::default(),
                clock_ahead: Arc::clone(&self.clock_ahead),
                outlived: Arc::default(),
            };
            connections.push(connection.clone());
            connection
        };
        let target = (Ipv4Addr::LOCALHOST, self.target.load(Ordering::SeqCst));
        if let Ok(server) = TcpStream::connect(target).await {
            let _ = forward(client, server, &connection).await;
        }
        connection.reset();
    }
}

/// Forwards both directions until the connection has ended.
async fn forward(client: TcpStream, server: TcpStream, connection: &Connection) -> io::Result<()> {
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        // Closing the socket sends a reset, unless one side has shut the connection down in order.
        stream.set_zero_linger()?;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let [requests, replies] = connection.traffic.each_ref().map(watch::Sender::subscribe);
    let [server_side, client_side] = &connection.reset;
    let [received_requests, received_replies] = &*connection.received;
    let outlived = |bytes: &[u8]| {
        let mut outlived = connection.outlived.lock().unwrap_or_else(PoisonError::into_inner);
        outlived.extend_from_slice(bytes);
    };
    let step = |bytes: &mut [u8]| {
        wall_clock::set_ahead(bytes, connection.clock_ahead.load(Ordering::SeqCst));
    };
    let requests = Pump { traffic: requests, from_reset: client_side, to_reset: server_side };
    let replies = Pump { traffic: replies, from_reset: server_side, to_reset: client_side };
    let requests = requests.run((from_client, received_requests, |_| {}), to_server, outlived);
    let replies = replies.run((from_server, received_replies, step), to_client, |_| {});
    tokio::join!(requests, replies);
    Ok(())
}
