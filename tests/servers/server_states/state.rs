//! The states, how each begins and how it ends.

use redlock_tests::{Probe, RedisServer, eventually};

use super::{KEY, SOON};

/// What a server can be in beside up and down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It has been started, and reads its data.
    Loading,
    /// It was a master, and is a replica now.
    ReadOnly,
    /// Its memory is full, and nothing is evicted.
    OutOfMemory,
    /// Somebody's script runs for too long.
    Busy,
    /// It wants a password by now, and we have none.
    NoAuth,
    /// Its password is another by now.
    WrongPassword,
    /// Its administrator has taken away what we need.
    NotPermitted,
    /// It cannot write its snapshots.
    Misconfigured,
    /// It was a master, is a replica now, and has lost its master.
    MasterDown,
    /// It wants replicas that acknowledge its writes, and has none.
    NoReplicas,
    /// It has as many clients as it wants.
    TooManyClients,
}

impl State {
    /// Whether this version of the server can be brought into it. Redis 6.2 looks at its clients
    /// so rarely while it loads that it rather seems to be frozen.
    pub(crate) async fn can_be_made(self) -> bool {
        if self != Self::Loading {
            return true;
        }
        let server = RedisServer::start().await;
        let info: String = server.probe().await.command(["INFO", "server"]).await;
        !info.contains("redis_version:6.")
    }

    pub(crate) async fn start_server(self) -> RedisServer {
        let options = RedisServer::options();
        match self {
            // A key a millisecond, looking at its clients after each.
            Self::Loading => options
                .directive("key-load-delay", "1000")
                .directive("loading-process-events-interval-bytes", "1024"),
            Self::WrongPassword => options.password("the-right-one"),
            // The name of Redis 6.2, which the newer ones understand too.
            Self::Busy => options.directive("lua-time-limit", "20"),
            _ => options,
        }
        .start()
        .await
    }

    /// What its vote says.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Loading => "LOADING",
            Self::ReadOnly => "READONLY",
            Self::OutOfMemory => "OOM",
            Self::Busy => "BUSY",
            Self::NoAuth => "NOAUTH",
            Self::WrongPassword => "WRONGPASS",
            Self::NotPermitted => "not permitted",
            Self::Misconfigured => "MISCONF",
            Self::MasterDown => "MASTERDOWN",
            Self::NoReplicas => "NOREPLICAS",
            Self::TooManyClients => "max number of clients",
        }
    }

    /// Whether a lock that is held can still be extended and released: by commands that need no
    /// memory, and that are still permitted.
    pub(crate) fn spares_holders(self) -> bool {
        matches!(self, Self::OutOfMemory | Self::NotPermitted)
    }

    /// Whether the server has forgotten the locks, as it was started again without having saved
    /// them.
    pub(crate) fn forgets(self) -> bool {
        self == Self::Loading
    }

    pub(crate) async fn begin(self, server: &mut RedisServer) -> Trouble {
        let mut probe = server.probe().await;
        let mut trouble = Trouble { state: self, probe: probe.clone(), clients: Vec::new() };
        match self {
            Self::Loading => {
                let fill = "for n = 1, 20000 do redis.call('SET', 'filler:' .. n, n) end";
                probe.command::<()>(["DEL", KEY]).await;
                probe.command::<()>(["EVAL", fill, "0"]).await;
                probe.command::<()>(["SAVE"]).await;
                server.restart_loading().await;
                trouble.probe = server.probe().await;
            }
            Self::ReadOnly => trouble.tell(&["REPLICAOF", "127.0.0.1", "1"]).await,
            Self::OutOfMemory => trouble.tell(&["CONFIG", "SET", "maxmemory", "1"]).await,
            Self::Busy => {
                let mut client = server.probe().await;
                tokio::spawn(async move {
                    let forever = ["EVAL", "while true do end", "0"];
                    client.try_command::<()>(forever).await.unwrap_err()
                });
                eventually("the script runs for too long", SOON, async || {
                    let error = probe.try_command::<String>(["PING"]).await.err()?;
                    error.to_string().contains("BUSY").then_some(())
                })
                .await;
            }
            Self::NoAuth | Self::WrongPassword => {
                trouble.tell(&["CONFIG", "SET", "requirepass", "another"]).await;
                trouble.tell(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
            }
            Self::NotPermitted => {
                trouble.tell(&["ACL", "SETUSER", "default", "-set", "-hset"]).await;
            }
            Self::Misconfigured => server.break_snapshots().await,
            Self::MasterDown => {
                trouble.tell(&["CONFIG", "SET", "replica-read-only", "no"]).await;
                trouble.tell(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
                trouble.tell(&["REPLICAOF", "127.0.0.1", "1"]).await;
            }
            Self::NoReplicas => {
                trouble.tell(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
            }
            Self::TooManyClients => {
                trouble.clients.push(server.probe().await);
                trouble.tell(&["CONFIG", "SET", "maxclients", "2"]).await;
                let id = trouble.clients[0].command::<u64>(["CLIENT", "ID"]).await.to_string();
                let list: String = probe.command(["CLIENT", "LIST", "TYPE", "normal"]).await;
                let own = probe.command::<u64>(["CLIENT", "ID"]).await.to_string();
                for line in list.lines() {
                    let other = line.split_whitespace().next().unwrap().trim_start_matches("id=");
                    if other != id && other != own {
                        let kill = ["CLIENT", "KILL", "ID", other];
                        let _ = probe.try_command::<redis::Value>(kill).await;
                    }
                }
            }
        }
        trouble
    }
}

/// A server's state, as long as it lasts.
pub(crate) struct Trouble {
    state: State,
    probe: Probe,
    clients: Vec<Probe>,
}

impl Trouble {
    async fn tell(&mut self, command: &[&str]) {
        self.probe.command::<redis::Value>(command).await;
    }

    async fn takes_commands(&mut self) {
        eventually("it takes commands again", SOON, async || {
            self.probe.try_command::<String>(["PING"]).await.ok()
        })
        .await;
    }

    pub(crate) async fn end(mut self, server: &RedisServer) {
        match self.state {
            State::Loading => {
                let fast = ["CONFIG", "SET", "key-load-delay", "0"];
                self.tell(&fast).await;
                self.takes_commands().await;
                let flush = "for n = 1, 20000 do redis.call('DEL', 'filler:' .. n) end";
                self.tell(&["EVAL", flush, "0"]).await;
            }
            State::ReadOnly | State::MasterDown => self.tell(&["REPLICAOF", "NO", "ONE"]).await,
            State::OutOfMemory => self.tell(&["CONFIG", "SET", "maxmemory", "0"]).await,
            State::Busy => {
                self.tell(&["SCRIPT", "KILL"]).await;
                self.takes_commands().await;
            }
            State::NoAuth => self.tell(&["CONFIG", "SET", "requirepass", ""]).await,
            State::WrongPassword => {
                self.tell(&["CONFIG", "SET", "requirepass", "the-right-one"]).await;
            }
            State::NotPermitted => {
                self.tell(&["ACL", "SETUSER", "default", "+set", "+hset"]).await;
            }
            State::Misconfigured => server.give_up_snapshots().await,
            State::NoReplicas => self.tell(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await,
            State::TooManyClients => self.tell(&["CONFIG", "SET", "maxclients", "1000"]).await,
        }
    }
}
