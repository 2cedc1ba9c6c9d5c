//! How often a manager reconnects to a node that is down.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::LockManager;
use redlock_tests::{
    PostgresServer, Proxy, RedisServer, Servers, Welcome, ZookeeperServer, best_of_five, connect,
    eventually, skip,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::QUIET;

/// A proxy in front of a server. While it is away, it accepts connections and answers with errors.
struct Node {
    url: String,
    is_away: watch::Sender<bool>,
    /// When each connection was made.
    attempts: watch::Receiver<Vec<Instant>>,
}

impl Node {
    async fn in_front_of(server: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (is_away, (made, attempts)) = (watch::Sender::new(false), watch::channel(Vec::new()));
        let (away, port) = (is_away.subscribe(), server.port());
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                made.send_modify(|attempts| attempts.push(Instant::now()));
                let mut away = away.clone();
                tokio::spawn(async move {
                    if *away.borrow() {
                        refuse(client).await;
                        return;
                    }
                    let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = away.wait_for(|away| *away) => {}
                    }
                });
            }
        });
        Self { url, is_away, attempts }
    }

    fn set_away(&self, away: bool) {
        self.is_away.send_replace(away);
    }

    /// Waits for the next `count` connections. Returns when each was made.
    async fn next_attempts(&self, count: usize) -> Vec<Instant> {
        let begun = self.attempts.borrow().len();
        eventually("the node is tried again", Duration::from_secs(20), async || {
            let attempts = self.attempts.borrow();
            attempts.get(begun..begun + count).map(<[Instant]>::to_vec)
        })
        .await
    }
}

/// Answers every command with errors until the client closes the connection.
async fn refuse(mut client: TcpStream) {
    let mut command = [0; 1024];
    while let Ok(1..) = client.read(&mut command).await {
        let _ = client.write_all("-ERR away\r\n".repeat(8).as_bytes()).await;
    }
}

/// A manager on three nodes, the last of which is `node`.
async fn manager(servers: &Servers, node: &Arc<Node>) -> LockManager {
    connect([servers[0].url(), servers[1].url(), node.url.clone()]).await
}

/// If the pause doubled without limit, these attempts would take 40 s. After an outage of minutes, the
/// server would then stay unused for as long again.
#[tokio::test]
async fn a_node_that_stays_away_is_tried_several_times_a_second() {
    let servers = Servers::start(3).await;
    let node = Arc::new(Node::in_front_of(&servers[2]).await);
    let locks = manager(&servers, &node).await;
    node.set_away(true);
    node.next_attempts(12).await;
    node.set_away(false);
    locks.shutdown().await;
}

/// A server that accepts and closes every connection, for example a proxy without a backend, or a server with too many clients.
/// Each attempt costs it something, so their number must not grow with the traffic of the service.
///
/// `connections` is the number of connections that a manager keeps.
async fn attempts_do_not_grow_with_traffic(
    port: u16,
    url_at: impl Fn(u16) -> String,
    connections: usize,
) {
    const MANAGERS: usize = 3;
    const TIME: Duration = Duration::from_millis(2500);
    let count = async |has_traffic: bool| {
        let proxy = Proxy::to_port(port).await;
        let url = url_at(proxy.port());
        let managers = join_all((0..MANAGERS).map(|_| connect([&url]))).await;
        proxy.welcome(Welcome::Close);
        proxy.reset();
        let before = proxy.accepted();
        let (begun, mut requests) = (Instant::now(), 0);
        while begun.elapsed() < TIME {
            tokio::time::sleep(Duration::from_millis(20)).await;
            requests += 1;
            for locks in managers.iter().filter(|_| has_traffic) {
                let request = locks.lock(format!("order:{requests}"));
                let wait_time = Duration::from_millis(100) * (requests % 2);
                tokio::spawn(request.wait_time(wait_time).acquire());
            }
        }
        let attempts = proxy.accepted() - before;
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{attempts} connections of {MANAGERS} managers in {seconds:.1} s, with traffic: {has_traffic}"
        );
        // Six attempts until the pauses are at their longest, four a second after that, and those of callers that end a pause.
        let most = 12 + 5 * usize::try_from(begun.elapsed().as_secs() + 1).unwrap();
        assert!(attempts <= most * connections * MANAGERS, "{attempts}");
        join_all(managers.iter().map(LockManager::shutdown)).await;
    };
    tokio::join!(count(false), count(true));
}

#[tokio::test]
async fn connections_to_redis_do_not_grow_with_the_traffic() {
    let server = RedisServer::start().await;
    let url_at = |port| format!("redis://127.0.0.1:{port}");
    attempts_do_not_grow_with_traffic(server.port(), url_at, 1).await;
}

#[tokio::test]
async fn connections_to_postgres_do_not_grow_with_the_traffic() {
    let server = match PostgresServer::start().await {
        Ok(server) => server,
        Err(reason) => return skip(&reason),
    };
    let url_at = |port| server.url_at("127.0.0.1", port);
    attempts_do_not_grow_with_traffic(server.port(), url_at, 3).await;
}

#[tokio::test]
async fn connections_to_zookeeper_do_not_grow_with_the_traffic() {
    let server = match ZookeeperServer::start().await {
        Ok(server) => server,
        Err(reason) => return skip(&reason),
    };
    attempts_do_not_grow_with_traffic(server.port(), |port| server.url_at(port), 1).await;
}

mod measured {
    use super::*;

    /// The first attempts after a break follow each other quickly, so that a short outage stays short. Every
    /// outage begins with such attempts if the connection lasted in between.
    #[tokio::test]
    async fn a_node_that_goes_away_again_is_tried_as_quickly_as_the_first_time() {
        let _quiet = QUIET.write().await;
        let servers = Servers::start(3).await;
        let node = Arc::new(Node::in_front_of(&servers[2]).await);
        let locks = manager(&servers, &node).await;
        // Waits until the pauses have grown.
        node.set_away(true);
        node.next_attempts(8).await;
        let three_pauses = async || {
            node.set_away(false);
            node.next_attempts(1).await;
            // If a connection breaks within a second, a longer pause follows. So this connection lasts longer.
            tokio::time::sleep(Duration::from_millis(1500)).await;
            node.set_away(true);
            let attempts = node.next_attempts(4).await;
            (attempts[3] - attempts[0]).as_secs_f64() * 1000.0
        };
        // Three pauses of 20, 40 and 80 ms, where the longest pause is 320 ms.
        best_of_five("milliseconds of three pauses", three_pauses, |millis| *millis < 400.0).await;
        locks.shutdown().await;
    }
}
