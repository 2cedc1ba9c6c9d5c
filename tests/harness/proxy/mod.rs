//! A network that does what a test wants.

mod pump;
mod wall_clock;

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::redis_server::RedisServer;
use pump::Way;

/// Where what passes is going.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Questions.
    ToServer,
    /// Answers.
    ToClient,
}

/// What happens to what passes in one direction. The bytes of a connection stay in order and
/// complete until it ends, as TCP sees to in every real network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// It passes.
    Pass,
    /// It arrives so much later; a slow link.
    Delay(Duration),
    /// It does not arrive, as long as this lasts, and neither does the end of the connection; a
    /// partition, which looks like silence. Afterwards it arrives all the same.
    Hold,
    /// So many bytes pass yet, then both sides see the connection reset.
    ResetAfter(usize),
}

/// What becomes of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Welcome {
    /// It leads to the server.
    Forward,
    /// It is made, and nothing ever answers.
    Silence,
}

/// A TCP proxy in front of one server, that is told by the test what to do while it runs.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    _end: DropGuard,
}

#[derive(Debug)]
struct Shared {
    target: AtomicU16,
    silent: AtomicBool,
    /// By how many seconds the server's wall clock seems to be ahead.
    clock_ahead: Arc<AtomicI64>,
    /// What new connections begin with.
    defaults: [watch::Sender<Traffic>; 2],
    connections: Mutex<Vec<Connection>>,
    end: CancellationToken,
}

/// One connection through a [`Proxy`].
#[derive(Debug, Clone)]
pub struct Connection {
    traffic: [watch::Sender<Traffic>; 2],
    /// Ends each side by itself: its socket is reset.
    reset: [CancellationToken; 2],
    /// How much has come in, delivered or not.
    received: Arc<[AtomicUsize; 2]>,
    clock_ahead: Arc<AtomicI64>,
    /// What was delivered to the server after the client's side had ended.
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
    /// When it cannot listen.
    pub async fn to(server: &RedisServer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let end = CancellationToken::new();
        let shared = Arc::new(Shared {
            target: AtomicU16::new(server.port()),
            silent: AtomicBool::new(false),
            clock_ahead: Arc::default(),
            defaults: Direction::BOTH.map(|_| watch::Sender::new(Traffic::Pass)),
            connections: Mutex::default(),
            end: end.clone(),
        });
        tokio::spawn(Arc::clone(&shared).listen(listener));
        Self { port, shared, _end: end.drop_guard() }
    }

    /// The URL of the server by way of this proxy.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Leads new connections to another server, as a name does after a failover.
    pub fn lead_to(&self, server: &RedisServer) {
        self.shared.target.store(server.port(), Ordering::SeqCst);
    }

    /// Steps what the server tells of its wall clock (`TIME`), on all connections, so that it is ahead
    /// by so many seconds. What the server does by its clock is as before.
    pub fn set_clock_ahead(&self, seconds: i64) {
        self.shared.clock_ahead.store(seconds, Ordering::SeqCst);
    }

    /// Says what becomes of new connections.
    pub fn welcome(&self, welcome: Welcome) {
        self.shared.silent.store(welcome == Welcome::Silence, Ordering::SeqCst);
    }

    /// Says what happens to what passes in one direction, on all connections, present and future.
    pub fn set(&self, direction: Direction, traffic: Traffic) {
        // Under the lock, so that a connection that is being made is not missed.
        let connections = self.shared.lock();
        self.shared.defaults[direction as usize].send_replace(traffic);
        for connection in connections.iter() {
            connection.set(direction, traffic);
        }
    }

    /// Says what happens in both directions, on all connections, present and future.
    pub fn set_both(&self, traffic: Traffic) {
        for direction in Direction::BOTH {
            self.set(direction, traffic);
        }
    }

    /// Resets all connections.
    pub fn reset(&self) {
        self.connections().iter().for_each(Connection::reset);
    }

    /// The connections that are open, the oldest first.
    pub fn connections(&self) -> Vec<Connection> {
        let mut connections = self.shared.lock();
        connections
            .retain(|connection| !connection.reset.iter().all(CancellationToken::is_cancelled));
        connections.clone()
    }
}

impl Connection {
    /// Says what happens to what passes in one direction.
    pub fn set(&self, direction: Direction, traffic: Traffic) {
        self.traffic[direction as usize].send_replace(traffic);
    }

    /// Says what happens in both directions.
    pub fn set_both(&self, traffic: Traffic) {
        for direction in Direction::BOTH {
            self.set(direction, traffic);
        }
    }

    /// How many bytes have come in that go in this direction, whether they got there or not.
    pub fn received(&self, direction: Direction) -> usize {
        self.received[direction as usize].load(Ordering::SeqCst)
    }

    /// What the server was told after the client's side had been [reset](Self::reset_client).
    pub fn outlived(&self) -> Vec<u8> {
        self.outlived.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Resets both sides. What is held back is gone.
    pub fn reset(&self) {
        self.reset.iter().for_each(CancellationToken::cancel);
    }

    /// Resets the client's side only: what it has said before, and is held back, may still arrive.
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
        if self.silent.load(Ordering::SeqCst) {
            self.end.cancelled().await;
            return;
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
            let _ = connect(client, server, &connection).await;
        }
        connection.reset();
    }
}

/// Carries both directions until the connection has ended.
async fn connect(client: TcpStream, server: TcpStream, connection: &Connection) -> io::Result<()> {
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        // What ends it is a reset, unless one side has closed it in order.
        stream.set_zero_linger()?;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let [questions, answers] = connection.traffic.each_ref().map(watch::Sender::subscribe);
    let [server_side, client_side] = &connection.reset;
    let [asked, answered] = &*connection.received;
    let outlived = |bytes: &[u8]| {
        let mut outlived = connection.outlived.lock().unwrap_or_else(PoisonError::into_inner);
        outlived.extend_from_slice(bytes);
    };
    let step = |bytes: &mut [u8]| {
        wall_clock::set_ahead(bytes, connection.clock_ahead.load(Ordering::SeqCst));
    };
    let questions = Way { traffic: questions, from_reset: client_side, to_reset: server_side };
    let answers = Way { traffic: answers, from_reset: server_side, to_reset: client_side };
    let questions = questions.pump((from_client, asked, |_| {}), to_server, outlived);
    let answers = answers.pump((from_server, answered, step), to_client, |_| {});
    tokio::join!(questions, answers);
    Ok(())
}
