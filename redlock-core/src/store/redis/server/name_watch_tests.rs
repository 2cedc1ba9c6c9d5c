//! Names that lead to several servers, or to other ones later.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redlock_logs::Logs;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::played_redis::PlayedRedis;
use super::{Nobody, Role, Server, ServerSettings};
use crate::node::{NodeSettings, NodeStatus};
use crate::store::kit::dial::{Dial, Dialing};
use crate::store::redis::link::open::Endpoint;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A name, its present addresses, and the servers at all addresses.
#[derive(Debug)]
struct Name {
    addresses: Mutex<Vec<SocketAddr>>,
    look_ups: Mutex<Vec<Instant>>,
    servers: HashMap<SocketAddr, PlayedRedis>,
}

impl Dial for Arc<Name> {
    fn open(&self) -> Dialing {
        Box::pin(async { Err(std::io::ErrorKind::NotFound.into()) })
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.look_ups.lock().push(Instant::now());
        self.addresses.lock().clone()
    }

    fn open_at(&self, address: SocketAddr) -> Dialing {
        self.servers.get(&address).map_or_else(|| self.open(), Dial::open)
    }
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 6379))
}

/// Starts a server with this name, which leads to the first address. Its servers have these addresses and run IDs.
async fn start(name: &'static str, servers: &[(u8, &'static str)]) -> (Arc<Name>, Arc<Server>) {
    let play = |(number, run_id): &(u8, &'static str)| {
        let redis = PlayedRedis::new();
        redis.change(|fields| fields.run_id = run_id);
        (address(*number), redis)
    };
    let played = Arc::new(Name {
        addresses: Mutex::new(vec![address(servers[0].0)]),
        look_ups: Mutex::default(),
        servers: servers.iter().map(play).collect(),
    });
    let settings = ServerSettings {
        voter: name.into(),
        ..ServerSettings::for_tests(NodeSettings::for_tests(SECOND))
    };
    let endpoint =
        Endpoint::parse(&format!("redis://{name}")).dialed_by(Arc::new(Arc::clone(&played)));
    let observer = Weak::<Nobody>::new();
    let server = Server::new(endpoint, Role::Alone, &Arc::new(settings), None, observer);
    server.start(&Handle::current());
    let connected = async { server.status().wait_for(NodeStatus::is_up).await };
    timeout(HOUR, connected).await.unwrap();
    (played, server)
}

/// Returns how often the log says that the name leads to several servers, and to another one.
fn warnings(logs: &Logs, name: &str) -> (usize, usize) {
    let count = |words: &str| {
        let lines = logs.lines();
        lines
            .iter()
            .filter(|line| [words, name, "WARN"].iter().all(|word| line.contains(word)))
            .count()
    };
    (count("leads to several servers"), count("leads to another server by now"))
}

impl Name {
    fn lead_to(&self, numbers: &[u8]) {
        *self.addresses.lock() = numbers.iter().copied().map(address).collect();
    }

    fn connections(&self, number: u8) -> usize {
        *self.servers[&address(number)].connections().borrow()
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_of_several_masters_is_a_warning_that_names_two() {
    let logs = Logs::collect();
    let (name, server) = start("several", &[(1, "one"), (2, "two")]).await;
    name.lead_to(&[2, 1]);
    sleep(2 * SECOND).await;
    assert_eq!(warnings(&logs, "several"), (1, 0));
    let lines = logs.lines();
    assert!(
        lines.iter().any(|line| line.contains("10.0.0.1:6379") && line.contains("10.0.0.2:6379"))
    );
    sleep(HOUR).await;
    assert_eq!(warnings(&logs, "several"), (1, 0), "once for each connection");
    assert_eq!((name.connections(1), name.connections(2)), (1, 0), "no further connection stays");
    assert!(server.connection().is_ok());
}

/// `localhost` is 127.0.0.1 and `::1`, and a service of a cloud may have an address in each zone, of which each answer has some. A
/// name may also lead to a master and its replicas, and to addresses at which nobody answers.
#[tokio::test(start_paused = true)]
async fn addresses_of_one_server_are_no_warning_whatever_the_answers() {
    let logs = Logs::collect();
    let (name, server) =
        start("zones", &[(1, "one"), (2, "one"), (3, "one"), (4, "replica")]).await;
    name.servers[&address(4)].change(|fields| fields.role = "slave");
    for numbers in [&[1, 2][..], &[2, 3], &[3, 1], &[2], &[4, 1], &[4], &[5], &[], &[1, 2, 3, 4, 5]]
    {
        name.lead_to(numbers);
        sleep(200 * SECOND).await;
    }
    assert_eq!(warnings(&logs, "zones"), (0, 0));
    assert_eq!(name.connections(1), 1, "the first connection");
    assert!(server.connection().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_has_moved_to_another_master_ends_the_connection() {
    let logs = Logs::collect();
    let (name, server) = start("moving", &[(1, "one"), (2, "two")]).await;
    sleep(10 * SECOND).await;
    let connection = server.connection().unwrap();
    name.lead_to(&[2]);
    sleep(76 * SECOND).await;
    assert_eq!(warnings(&logs, "moving"), (0, 1));
    assert!(!connection.link.is_alive());
    assert_eq!(server.connection().unwrap().link.address, Some(address(2)));
    assert_eq!((name.connections(1), name.connections(2)), (0, 1));
    sleep(HOUR).await;
    assert_eq!(warnings(&logs, "moving"), (0, 1));
}

/// The new server may start after its name has moved.
#[tokio::test(start_paused = true)]
async fn a_name_that_leads_nowhere_yet_is_looked_at_again() {
    let logs = Logs::collect();
    let (name, server) = start("early", &[(1, "one"), (2, "two")]).await;
    name.servers[&address(2)].change(|fields| fields.is_listening = false);
    name.lead_to(&[2]);
    sleep(HOUR).await;
    assert_eq!((warnings(&logs, "early"), server.connection().is_ok()), ((0, 0), true));
    name.servers[&address(2)].change(|fields| fields.is_listening = true);
    sleep(76 * SECOND).await;
    assert_eq!(warnings(&logs, "early"), (0, 1));
    assert_eq!(server.connection().unwrap().link.address, Some(address(2)));
}

/// The server has another `run_id` then, and perhaps another address.
#[tokio::test(start_paused = true)]
async fn a_restart_is_no_other_server() {
    let logs = Logs::collect();
    let (name, server) = start("restarted", &[(1, "one"), (2, "one")]).await;
    name.lead_to(&[1, 2]);
    for run_id in ["two", "three"] {
        sleep(200 * SECOND).await;
        for redis in name.servers.values() {
            redis.change(|fields| fields.run_id = run_id);
            redis.close();
        }
    }
    sleep(200 * SECOND).await;
    assert_eq!(warnings(&logs, "restarted"), (0, 0));
    assert!(server.connection().is_ok());
}

/// The connection of a server that was restarted does not show the former `run_id` any more.
#[tokio::test(start_paused = true)]
async fn a_restart_that_a_connection_has_not_noticed_is_no_other_server() {
    let logs = Logs::collect();
    let (name, _server) = start("unnoticed", &[(1, "one"), (2, "one")]).await;
    sleep(10 * SECOND).await;
    for redis in name.servers.values() {
        redis.change(|fields| fields.run_id = "two");
    }
    name.lead_to(&[1, 2]);
    sleep(200 * SECOND).await;
    assert!(!name.servers[&address(2)].answered().is_empty(), "the servers were not compared");
    assert_eq!(warnings(&logs, "unnoticed"), (0, 0));
}

/// The other address has shown the former `run_id`, and the connection shows the new one. This does not prove two servers.
#[tokio::test(start_paused = true)]
async fn a_restart_between_the_answers_of_two_connections_is_no_other_server() {
    let logs = Logs::collect();
    let (name, _server) = start("between", &[(1, "one"), (2, "one")]).await;
    sleep(10 * SECOND).await;
    name.servers[&address(1)].change(|fields| fields.run_id = "two");
    name.lead_to(&[1, 2]);
    sleep(200 * SECOND).await;
    assert!(!name.servers[&address(2)].answered().is_empty(), "the servers were not compared");
    assert_eq!(warnings(&logs, "between"), (0, 0));
}

/// Each process asks the name servers.
#[tokio::test(start_paused = true)]
async fn a_name_is_looked_up_at_most_once_a_minute_while_a_connection_lasts() {
    let (name, _server) = start("looked-up", &[(1, "one")]).await;
    sleep(2 * SECOND).await;
    let before = name.look_ups.lock().len();
    assert!(before <= 3, "{before}");
    sleep(HOUR).await;
    let look_ups = name.look_ups.lock().len() - before;
    assert!((45..=60).contains(&look_ups), "{look_ups}");
}
