//! Ensembles of ZooKeeper servers.

use std::time::Duration;

use super::client::ZookeeperClient;
use super::locks::Locks;
use super::server::{START, Server};
use super::socks::Outgoing;
use super::{MEASURED, SESSION, admin, make_chroot, settings, url};
use crate::eventually::eventually;
use crate::port::Port;
use crate::proxy::{Proxy, Traffic};

/// The main class of a member of an ensemble.
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// The options of a [`ZookeeperEnsemble`].
#[derive(Debug, Clone)]
pub struct EnsembleOptions {
    tick: Duration,
    session_timeout: Duration,
    observers: usize,
    sync_limit: u32,
    measured: bool,
    /// Lines of `zoo.cfg`: of one server, or of all.
    settings: Vec<(Option<usize>, String, String)>,
}

impl EnsembleOptions {
    /// Sets the tick. Defaults to 500 ms.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets the session timeout in the URL. Defaults to 15 minutes.
    #[must_use]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Adds observers, which have no vote, behind the three voting servers.
    #[must_use]
    pub fn observers(mut self, count: usize) -> Self {
        self.observers = count;
        self
    }

    /// Sets the ticks after which a silent leader or follower is given up. Defaults to 10.
    #[must_use]
    pub fn sync_limit(mut self, ticks: u32) -> Self {
        self.sync_limit = ticks;
        self
    }

    /// Adds a line to `zoo.cfg` of all servers.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((None, name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a line to `zoo.cfg` of one server. The last line of a name counts.
    #[must_use]
    pub fn setting_of(mut self, server: usize, name: &str, value: &str) -> Self {
        self.settings.push((Some(server), name.to_owned(), value.to_owned()));
        self
    }

    /// Makes the servers as fast as those in production. They take longer to start, and no test can cut them off from each
    /// other.
    #[must_use]
    pub fn measured(mut self) -> Self {
        self.measured = true;
        self
    }

    /// Starts the servers; see [`ZookeeperEnsemble::start`].
    ///
    /// # Errors
    ///
    /// Java is missing, or the libraries of ZooKeeper cannot be downloaded. The error is the reason.
    pub async fn start(self) -> Result<ZookeeperEnsemble, String> {
        crate::java::class_path("curator")?;
        // The ports for the leader's followers and for elections.
        let count = 3 + self.observers;
        let ports: Vec<[Port; 2]> =
            (0..count).map(|_| [Port::reserve(), Port::reserve()]).collect();
        let numbers: Vec<[u16; 2]> =
            ports.iter().map(|ports| ports.each_ref().map(Port::number)).collect();
        let mut members = Vec::new();
        for index in 0..count {
            members.push(Member::launch(&self, index, &numbers).await);
        }
        for member in &mut members {
            member.server.ready().await.unwrap_or_else(|error| panic!("no ensemble: {error}"));
        }
        let chroot = make_chroot(members[0].server.port.number()).await;
        let session_timeout = self.session_timeout;
        Ok(ZookeeperEnsemble { members, ports, chroot, session_timeout })
    }
}

/// A server of the ensemble, and its networks.
#[derive(Debug)]
struct Member {
    server: Server,
    /// Between clients and the server.
    proxy: Proxy,
    /// Between this server and the others.
    outgoing: Outgoing,
}

impl Member {
    async fn launch(options: &EnsembleOptions, index: usize, ports: &[[u16; 2]]) -> Self {
        let own = ports[index];
        let others = ports.iter().flatten().copied().filter(|port| !own.contains(port));
        let outgoing = Outgoing::to(others).await;
        let is_observer = |index| index >= 3;
        let limit = |limit: u32| limit.to_string();
        let is_for = |server: &Option<usize>| server.is_none_or(|server| server == index);
        let own_settings = options.settings.iter().filter(|(server, ..)| is_for(server));
        let more: Vec<_> =
            own_settings.map(|(_, name, value)| (name.clone(), value.clone())).collect();
        let mut settings = settings(options.tick, &more);
        settings.push(("initLimit".to_owned(), limit(options.sync_limit)));
        settings.push(("syncLimit".to_owned(), limit(options.sync_limit)));
        if is_observer(index) {
            settings.push(("peerType".to_owned(), "observer".to_owned()));
        }
        for (index, [quorum, election]) in ports.iter().enumerate() {
            let role = if is_observer(index) { ":observer" } else { "" };
            let address = format!("127.0.0.1:{quorum}:{election}{role}");
            settings.push((format!("server.{}", index + 1), address));
        }
        let java: Vec<String> = if options.measured {
            MEASURED.map(str::to_owned).into()
        } else {
            outgoing.options().into()
        };
        let mut server = Server::new(MAIN, &java, settings);
        server.set_id(index + 1);
        server.launch().expect("a process");
        let proxy = Proxy::to_port(server.port.number()).await;
        Self { server, proxy, outgoing }
    }
}

/// An ensemble of three voting servers, perhaps with observers, and a folder for this test. Clients connect through a
/// [`Proxy`] in front of each server, and the servers connect to each other through proxies. Dropping the value ends the
/// servers.
#[derive(Debug)]
pub struct ZookeeperEnsemble {
    members: Vec<Member>,
    /// The ports for followers and for elections.
    ports: Vec<[Port; 2]>,
    chroot: String,
    session_timeout: Duration,
}

impl ZookeeperEnsemble {
    /// Starts three servers and waits until each of them serves clients.
    ///
    /// # Errors
    ///
    /// Java is missing, or the libraries of ZooKeeper cannot be downloaded. The error is the reason.
    ///
    /// # Panics
    ///
    /// If the servers cannot be started.
    pub async fn start() -> Result<Self, String> {
        Self::options().start().await
    }

    /// Returns the default options.
    pub fn options() -> EnsembleOptions {
        let tick = Duration::from_millis(500);
        EnsembleOptions {
            tick,
            session_timeout: SESSION,
            observers: 0,
            sync_limit: 10,
            measured: false,
            settings: Vec::new(),
        }
    }

    /// Returns the number of servers.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// Returns the folder of this test.
    pub fn chroot(&self) -> &str {
        &self.chroot
    }

    /// Returns the URL of a node over all servers, without proxies.
    pub fn url(&self) -> String {
        let ports: Vec<_> = self.members.iter().map(|member| member.server.port.number()).collect();
        url(&ports, &self.chroot, self.session_timeout)
    }

    /// Returns the URL of a node over these servers alone, through their proxies.
    pub fn url_of(&self, servers: &[usize]) -> String {
        let ports: Vec<_> = servers.iter().map(|index| self.members[*index].proxy.port()).collect();
        self.url_at(&ports)
    }

    /// Returns the URL of a node with these ports, such as those of further proxies.
    pub fn url_at(&self, ports: &[u16]) -> String {
        url(ports, &self.chroot, self.session_timeout)
    }

    /// Returns the port of a server, without its proxy.
    pub fn port(&self, server: usize) -> u16 {
        self.members[server].server.port.number()
    }

    /// Returns the proxy between clients and a server.
    pub fn proxy(&self, server: usize) -> &Proxy {
        &self.members[server].proxy
    }

    /// Connects to a server with every right.
    ///
    /// # Panics
    ///
    /// If the server does not accept the connection.
    pub async fn admin(&self, server: usize) -> ZookeeperClient {
        admin(self.port(server)).await
    }

    /// Returns the number of held locks in the folder of this test, and the number of waiters behind their holders.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn locks_count(&self, server: usize) -> (usize, usize) {
        let mut client = self.admin(server).await;
        client.sync("/").await.expect("an answer");
        Locks { client, chroot: self.chroot.clone() }.count().await
    }

    /// Waits until a server leads, and returns it.
    ///
    /// # Panics
    ///
    /// If no server leads within a minute.
    pub async fn leader(&self) -> usize {
        eventually("a server leads", START, async || {
            for (index, member) in self.members.iter().enumerate() {
                if member.server.is_up() && is(member.server.srvr().await, "leader") {
                    return Some(index);
                }
            }
            None
        })
        .await
    }

    /// Returns the voting servers that do not lead.
    ///
    /// # Panics
    ///
    /// As [`leader`](Self::leader).
    pub async fn followers(&self) -> [usize; 2] {
        let leader = self.leader().await;
        [(leader + 1) % 3, (leader + 2) % 3]
    }

    /// Waits until a server serves clients.
    ///
    /// # Panics
    ///
    /// If it serves no clients within a minute.
    pub async fn serves(&self, server: usize) {
        let server = &self.members[server].server;
        eventually("the server serves clients", START, async || server.srvr().await).await;
    }

    /// Stops the process of a server (SIGSTOP).
    pub fn freeze(&mut self, server: usize) {
        self.members[server].server.freeze();
    }

    /// Continues the process of a server (SIGCONT).
    pub fn thaw(&mut self, server: usize) {
        self.members[server].server.thaw();
    }

    /// Kills the process of a server (SIGKILL).
    pub fn kill(&mut self, server: usize) {
        self.members[server].server.kill();
    }

    /// Starts a server again with its data, and waits until it serves clients. Kills it first if it still runs.
    ///
    /// # Panics
    ///
    /// If it serves no clients within a minute, because too few others run.
    pub async fn restart(&mut self, server: usize) {
        self.members[server].server.restart().await;
    }

    /// Holds back everything between two servers.
    pub fn cut(&self, one: usize, other: usize) {
        self.set(one, other, Traffic::Hold);
    }

    /// Cuts a server off from all others. Clients still reach it.
    pub fn isolate(&self, server: usize) {
        (0..self.count())
            .filter(|other| *other != server)
            .for_each(|other| self.cut(server, other));
    }

    /// Delivers what was held back between the servers, and lets everything pass again.
    pub fn heal(&self) {
        for one in 0..self.count() {
            for other in one + 1..self.count() {
                self.set(one, other, Traffic::Pass);
            }
        }
    }

    fn set(&self, one: usize, other: usize, traffic: Traffic) {
        for (from, to) in [(one, other), (other, one)] {
            let ports = self.ports[to].each_ref().map(Port::number);
            let outgoing = &self.members[from].outgoing;
            outgoing.set(&ports, traffic);
        }
    }
}

fn is(answer: Option<String>, mode: &str) -> bool {
    answer.is_some_and(|answer| answer.lines().any(|line| line == format!("Mode: {mode}")))
}
