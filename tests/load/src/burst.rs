//! Many requests at once.

use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::answers::{Answer, Answers};
use crate::client::Connection;

/// How many connections are opened at a time. A listener keeps at most 1024 connections that it has not
/// accepted yet.
const OPENING: usize = 256;
/// How often the opening of one connection is tried, and the pause between two attempts.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Which keys the requests of a burst lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Each request locks a key of its own.
    Distinct,
    /// The requests share this many keys.
    Among(usize),
}

impl Keys {
    fn number(self, request: usize) -> usize {
        match self {
            Self::Distinct => request,
            Self::Among(keys) => request % keys.max(1),
        }
    }
}

impl FromStr for Keys {
    type Err = ();

    /// Reads `distinct`, `one`, or a number of keys.
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "distinct" => Ok(Self::Distinct),
            "one" => Ok(Self::Among(1)),
            _ => match text.parse() {
                Ok(0) | Err(_) => Err(()),
                Ok(keys) => Ok(Self::Among(keys)),
            },
        }
    }
}

/// Many requests at once, each of which is a POST without a body.
#[derive(Debug, Clone)]
pub struct Burst {
    /// The services, which get every other request.
    pub services: Vec<SocketAddr>,
    /// How many requests are sent.
    pub requests: usize,
    /// How many of them are under way at a time: as many connections are opened.
    pub in_flight: usize,
    /// The numbers that stand for `{n}` in the path.
    pub keys: Keys,
    /// The path, and a query if there is one, such as `/orders/{n}/pay?hold_ms=0`.
    pub path: String,
    /// How long one request may take. A longer one counts as a connection error.
    pub patience: Duration,
}

/// A burst whose connections are open.
#[derive(Debug)]
pub struct OpenBurst {
    burst: Burst,
    connections: Vec<(SocketAddr, Connection)>,
    retries: usize,
}

/// The result of a burst.
#[derive(Debug)]
pub struct Outcome {
    /// The answers.
    pub answers: Answers,
    /// How many attempts to open a connection failed and were made again.
    pub retries: usize,
    /// The time between the first request and the last answer.
    pub wall: Duration,
}

impl Burst {
    /// Opens all connections.
    ///
    /// # Errors
    ///
    /// A connection could not be opened within fifty attempts.
    pub async fn open(self) -> io::Result<OpenBurst> {
        let retries = AtomicUsize::new(0);
        let count = self.in_flight.clamp(1, self.requests.max(1));
        let open = async |number: usize| {
            let address = self.services[number % self.services.len()];
            open(address, &retries).await.map(|connection| (address, connection))
        };
        let connections = stream::iter((0..count).map(open));
        let connections = connections.buffer_unordered(OPENING).try_collect().await?;
        Ok(OpenBurst { burst: self, connections, retries: retries.into_inner() })
    }

    /// Opens all connections and sends the requests.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub async fn run(self) -> io::Result<Outcome> {
        Ok(self.open().await?.send().await)
    }
}

impl OpenBurst {
    /// Sends the requests, over all connections at once, and waits for all answers.
    ///
    /// A connection that broke is opened again for the next request.
    pub async fn send(self) -> Outcome {
        let Self { burst, connections, retries } = self;
        let (burst, next) = (Arc::new(burst), Arc::new(AtomicUsize::new(0)));
        let (start, started) = watch::channel(false);
        let workers: Vec<_> = connections
            .into_iter()
            .map(|(address, connection)| {
                let (burst, next) = (Arc::clone(&burst), Arc::clone(&next));
                let mut started = started.clone();
                tokio::spawn(async move {
                    // Fails only if the sender is gone, which it is not before the last answer.
                    let _ = started.wait_for(|started| *started).await;
                    burst.work(&next, address, connection).await
                })
            })
            .collect();
        let sent = Instant::now();
        start.send_replace(true);
        let answers = join_all(workers).await.into_iter();
        let answers = answers.flat_map(|worker| worker.expect("a worker that does not panic"));
        let answers = answers.collect();
        Outcome { answers, retries, wall: sent.elapsed() }
    }
}

impl Burst {
    /// Sends requests over one connection, one after another, until all are sent.
    async fn work(
        &self,
        next: &AtomicUsize,
        address: SocketAddr,
        connection: Connection,
    ) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut connection = Ok(connection);
        loop {
            let request = next.fetch_add(1, Ordering::Relaxed);
            if request >= self.requests {
                return answers;
            }
            let path = self.path.replace("{n}", &self.keys.number(request).to_string());
            let sent = Instant::now();
            if connection.is_err() {
                connection = Connection::open(address).await;
            }
            let status = match &mut connection {
                Ok(open) => timeout(self.patience, open.post(&path)).await.unwrap_or_else(|_| {
                    let words = format!("no answer within {:?}", self.patience);
                    Err(io::Error::new(io::ErrorKind::TimedOut, words))
                }),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            let status = status.map_err(|error| {
                let words = error.to_string();
                connection = Err(error);
                words
            });
            answers.push(Answer { sent, ended: Instant::now(), status });
        }
    }
}

async fn open(address: SocketAddr, retries: &AtomicUsize) -> io::Result<Connection> {
    for _ in 1..ATTEMPTS {
        match Connection::open(address).await {
            Ok(connection) => return Ok(connection),
            Err(error) if is_own_limit(&error) => return Err(error),
            Err(_) => retries.fetch_add(1, Ordering::Relaxed),
        };
        sleep(PAUSE).await;
    }
    Connection::open(address).await
}

/// Returns whether the connection failed because this process, not the service, cannot open more sockets.
fn is_own_limit(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE]
        .iter()
        .any(|limit| code == Some(limit.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_or_shared() {
        assert_eq!("distinct".parse(), Ok(Keys::Distinct));
        assert_eq!("one".parse(), Ok(Keys::Among(1)));
        assert_eq!("200".parse(), Ok(Keys::Among(200)));
        for wrong in ["", "0", "two"] {
            assert_eq!(wrong.parse::<Keys>(), Err(()), "{wrong}");
        }
        let numbers = |keys: Keys| (0..5).map(|request| keys.number(request)).collect::<Vec<_>>();
        assert_eq!(numbers(Keys::Distinct), [0, 1, 2, 3, 4]);
        assert_eq!(numbers(Keys::Among(1)), [0; 5]);
        assert_eq!(numbers(Keys::Among(2)), [0, 1, 0, 1, 0]);
    }

    #[tokio::test]
    async fn requests_whose_service_hangs_up_are_connection_errors() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let burst = Burst {
            services: vec![address],
            requests: 3,
            in_flight: 3,
            keys: Keys::Distinct,
            path: "/{n}".to_owned(),
            patience: Duration::from_secs(60),
        };
        let open = burst.open().await.unwrap();
        for _ in 0..3 {
            drop(listener.accept().await.unwrap());
        }
        let outcome = open.send().await;
        assert_eq!((outcome.answers.len(), outcome.answers.connection_errors()), (3, 3));
        assert_eq!(outcome.retries, 0);
    }
}
