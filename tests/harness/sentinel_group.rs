//! A master with two replicas, and three sentinels.

use std::time::Duration;

use futures_util::future::join_all;

use crate::eventually::eventually;
use crate::proxy::{Proxy, Traffic, Welcome};
use crate::redis_server::{RedisOptions, RedisServer};
use crate::sentinel::Sentinel;

/// The name of the service that the sentinels watch.
const SERVICE: &str = "shop";
const INFO: [&str; 2] = ["INFO", "replication"];
/// The longest time for a failover, on a machine that is busy with other tests: a sentinel may need several elections,
/// begins none for 30 s after it had no processor for two seconds ("TILT mode"), and waits for 8 s before it makes a
/// restarted master a replica.
const FAILOVER: Duration = Duration::from_secs(240);

/// The options of a [`FailoverGroup`].
#[derive(Debug, Clone, Default)]
pub struct GroupOptions {
    servers: RedisOptions,
    sentinels: String,
    sentinel_password: Option<String>,
    /// The password with which the sentinels and the replicas connect to the servers.
    password: Option<String>,
    proxied: bool,
    calm: bool,
}

impl GroupOptions {
    /// Adds a directive of `redis.conf` to all servers.
    #[must_use]
    pub fn directive(mut self, name: &str, value: &str) -> Self {
        self.servers = self.servers.directive(name, value);
        self
    }

    /// Sets the password of the servers.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.servers = self.servers.password(password).directive("masterauth", password);
        self.password = Some(password.to_owned());
        self
    }

    /// Sets the password of the sentinels.
    #[must_use]
    pub fn sentinel_password(self, password: &str) -> Self {
        redlock_logs::remember_password(password);
        let options = self.sentinel_line(&format!("requirepass {password}"));
        // The sentinels connect to each other.
        let mut options = options.sentinel_line(&format!("sentinel sentinel-pass {password}"));
        options.sentinel_password = Some(password.to_owned());
        options
    }

    /// Adds a line to the configuration of the sentinels.
    #[must_use]
    pub fn sentinel_line(mut self, line: &str) -> Self {
        self.sentinels.push_str(line);
        self.sentinels.push('\n');
        self
    }

    /// Puts a [`Proxy`] in front of each server. Sentinels, replicas and clients know only the proxies.
    #[must_use]
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Makes the group never fail over, and start at once: it does not wait for the replicas. For tests that keep the
    /// processor busy.
    #[must_use]
    pub fn calm(mut self) -> Self {
        self.calm = true;
        self
    }

    /// Starts the group; see [`FailoverGroup::start`].
    pub async fn start(self) -> FailoverGroup {
        let servers = join_all((0..3).map(|_| {
            // The first synchronization starts at once.
            self.servers.clone().directive("repl-diskless-sync-delay", "0").start()
        }));
        let servers = servers.await;
        let mut proxies = Vec::new();
        if self.proxied {
            for server in &servers {
                let proxy = Proxy::to(server).await;
                let port = proxy.port().to_string();
                let mut probe = server.probe().await;
                probe.command::<()>(["CONFIG", "SET", "replica-announce-ip", "127.0.0.1"]).await;
                probe.command::<()>(["CONFIG", "SET", "replica-announce-port", &port]).await;
                proxies.push(proxy);
            }
        }
        let mut group = FailoverGroup { servers, proxies, sentinels: Vec::new(), options: self };
        let master = group.public_port(0).to_string();
        for replica in &group.servers[1..] {
            let mut probe = replica.probe().await;
            probe.command::<()>(["REPLICAOF", "127.0.0.1", &master]).await;
        }
        if !group.options.calm {
            eventually("the replicas follow", FAILOVER, async || group.follow(0).await).await;
        }
        let configuration = group.configuration();
        let password = group.options.sentinel_password.clone();
        let start = || Sentinel::start(&configuration, password.as_deref());
        group.sentinels = join_all((0..3).map(|_| start())).await;
        if !group.options.calm {
            join_all(group.sentinels.iter().map(hurry)).await;
            group.knows_itself().await;
        }
        group
    }
}

/// A master with two replicas, and three sentinels that watch them. Dropping the value ends all processes.
#[derive(Debug)]
pub struct FailoverGroup {
    /// The servers. At the start, the first one is the master.
    pub servers: Vec<RedisServer>,
    /// The proxies of the servers, if the group was started with [proxies](GroupOptions::proxied).
    pub proxies: Vec<Proxy>,
    /// The sentinels. Two of them can fail over.
    pub sentinels: Vec<Sentinel>,
    options: GroupOptions,
}

impl FailoverGroup {
    /// Starts a group whose master is down after a second and a half without a reply, and waits until the sentinels know
    /// each other and the replicas.
    ///
    /// # Panics
    ///
    /// If a process cannot be started.
    pub async fn start() -> Self {
        Self::options().start().await
    }

    /// Returns the default options.
    pub fn options() -> GroupOptions {
        GroupOptions::default()
    }

    /// Returns the URL of the group.
    pub fn url(&self) -> String {
        self.url_with("")
    }

    /// Returns the URL of the group with these parameters besides the password of the sentinels.
    pub fn url_with(&self, parameters: &str) -> String {
        let hosts: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        self.url_at(&hosts, SERVICE, parameters)
    }

    /// Returns the URL of a service at these sentinels.
    pub fn url_at(&self, sentinels: &[String], service: &str, parameters: &str) -> String {
        let password = self.options.password.as_ref();
        let user = password.map(|password| format!(":{password}@")).unwrap_or_default();
        let sentinel_password = self.options.sentinel_password.as_ref();
        let sentinel_password = sentinel_password
            .map(|password| format!("sentinel_password={password}&"))
            .unwrap_or_default();
        let query = format!("{sentinel_password}{parameters}");
        let query = query.trim_end_matches('&');
        let mark = if query.is_empty() { "" } else { "?" };
        format!("redis+sentinel://{user}{}/{service}{mark}{query}", sentinels.join(","))
    }

    /// Returns the index of the server that most sentinels name as the master.
    ///
    /// # Panics
    ///
    /// If the sentinels name no server of this group.
    pub async fn master(&self) -> usize {
        eventually("two sentinels agree on the master", FAILOVER, async || {
            let named = join_all(self.sentinels.iter().map(|sentinel| self.named_by(sentinel)));
            let named: Vec<_> = named.await.into_iter().flatten().collect();
            named
                .iter()
                .copied()
                .find(|index| named.iter().filter(|other| *other == index).count() > 1)
        })
        .await
    }

    /// Returns the index of the server that the first sentinel names as the master.
    pub async fn named_now(&self) -> Option<usize> {
        self.named_by(self.sentinels.first()?).await
    }

    async fn named_by(&self, sentinel: &Sentinel) -> Option<usize> {
        let mut probe = tokio::time::timeout(FAILOVER, sentinel.probe()).await.ok()?;
        let address: (String, u16) =
            probe.try_command(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).await.ok()?;
        (0..self.servers.len()).find(|index| self.public_port(*index) == address.1)
    }

    /// Makes the sentinels promote another server, and waits until two of them name it. The former master lives, and
    /// accepts writes for some time. Returns the index of the new master.
    ///
    /// # Panics
    ///
    /// If there is no failover.
    pub async fn fail_over(&self) -> usize {
        let former = self.master().await;
        eventually("another server is promoted", FAILOVER, async || {
            // A sentinel refuses this command while a failover is not complete. It aborts a failover if no replica has
            // answered of late, and does not try again while the master answers.
            if self.named_by(&self.sentinels[0]).await == Some(former) {
                let mut probe = self.sentinels[0].probe().await;
                let _ = probe.try_command::<()>(["SENTINEL", "FAILOVER", SERVICE]).await;
            }
            let master = self.master().await;
            (master != former).then_some(master)
        })
        .await
    }

    /// Waits until two sentinels name another master than this one. Returns its index.
    ///
    /// # Panics
    ///
    /// If there is no failover.
    pub async fn promoted_after(&self, former: usize) -> usize {
        eventually("another server is promoted", FAILOVER, async || {
            let master = self.master().await;
            (master != former).then_some(master)
        })
        .await
    }

    /// Waits until all servers but the master replicate it.
    ///
    /// # Panics
    ///
    /// If a server does not answer, or does not become a replica.
    pub async fn settle(&self) {
        eventually("all servers replicate the master", FAILOVER, async || {
            self.follow(self.master().await).await
        })
        .await;
    }

    /// Returns whether all servers but the master with this index replicate it.
    async fn follow(&self, master: usize) -> Option<()> {
        let port = format!("master_port:{}\r", self.public_port(master));
        for (index, server) in self.servers.iter().enumerate() {
            let info: String = server.probe().await.try_command(INFO).await.ok()?;
            let follows = info.contains("master_link_status:up") && info.contains(&port);
            (follows || index == master).then_some(())?;
        }
        Some(())
    }

    /// Waits until each sentinel knows the two replicas and the two other sentinels, and the replicas are able to become
    /// the master.
    async fn knows_itself(&self) {
        for sentinel in &self.sentinels {
            let mut probe = sentinel.probe().await;
            eventually("the sentinel knows the group", FAILOVER, async || {
                let info: String = probe.command(["INFO", "sentinel"]).await;
                info.contains("status=ok,").then_some(())?;
                info.contains("slaves=2,sentinels=3").then_some(())
            })
            .await;
        }
    }

    /// Cuts the server with this index off from the sentinels, the other servers, and all clients that connect by its
    /// [proxy](GroupOptions::proxied). Its connections stay open, but nothing arrives.
    pub fn cut_off(&self, index: usize) {
        self.proxies[index].welcome(Welcome::Silence);
        self.proxies[index].set_both(Traffic::Hold);
    }

    /// Ends the partition after [`cut_off`](Self::cut_off).
    pub fn heal(&self, index: usize) {
        self.proxies[index].welcome(Welcome::Forward);
        self.proxies[index].set_both(Traffic::Pass);
    }

    /// Starts a sentinel on the side of this server: it knows the server by its own address, and names it as the master
    /// whatever happens on the other side of a partition. Returns it with the URL of the server at this sentinel.
    ///
    /// # Panics
    ///
    /// If the sentinel cannot be started.
    pub async fn sentinel_beside(&self, index: usize) -> (Sentinel, String) {
        const SERVICE_BESIDE: &str = "beside";
        const PASSWORD: &str = "Ub37besidepass";
        redlock_logs::remember_password(PASSWORD);
        let password = format!(">{PASSWORD}");
        // Otherwise it would reconfigure the promoted server on the other side.
        let rights = ["on", &password, "~*", "&*", "+@all", "-replicaof", "-slaveof"];
        for server in &self.servers {
            let rule = [&["ACL", "SETUSER", "beside"], &rights[..]].concat();
            server.probe().await.command::<()>(rule).await;
        }
        let port = self.servers[index].port();
        let monitor = format!(
            "sentinel monitor {SERVICE_BESIDE} 127.0.0.1 {port} 9\n\
             sentinel auth-user {SERVICE_BESIDE} beside\n\
             sentinel auth-pass {SERVICE_BESIDE} {PASSWORD}"
        );
        let sentinel = Sentinel::start(&monitor, None).await;
        let url = self.url_at(&[format!("127.0.0.1:{}", sentinel.port())], SERVICE_BESIDE, "");
        (sentinel, url)
    }

    fn public_port(&self, index: usize) -> u16 {
        self.proxies.get(index).map_or_else(|| self.servers[index].port(), Proxy::port)
    }

    fn configuration(&self) -> String {
        let port = self.public_port(0);
        let password = self.options.password.as_ref();
        let password = password
            .map(|password| format!("sentinel auth-pass {SERVICE} {password}\n"))
            .unwrap_or_default();
        let down_after = if self.options.calm { 600_000 } else { 1500 };
        let lines = format!(
            "sentinel monitor {SERVICE} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {SERVICE} {down_after}\n\
             sentinel failover-timeout {SERVICE} 2000\n\
             sentinel parallel-syncs {SERVICE} 2\n"
        );
        lines + &password + &self.options.sentinels
    }
}

/// Makes a sentinel send its periodic messages more often, so that the tests take less time. With the usual periods, a
/// new master would count as down before the first message to it. A sentinel promotes no replica whose last `INFO` is
/// older than five periods of `PING`, and it asks for `INFO` once a second while the master is down.
async fn hurry(sentinel: &Sentinel) {
    let mut probe = sentinel.probe().await;
    let periods = ["ping-period", "300", "publish-period", "300", "info-period", "500"];
    let debug = [&["SENTINEL", "DEBUG"], &periods[..]].concat();
    // Servers older than Redis 7.0 do not know it.
    let _ = probe.try_command::<()>(debug).await;
}
