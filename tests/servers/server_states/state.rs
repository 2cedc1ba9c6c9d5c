//! The states in which a server replies with errors: how each begins and ends.

use redlock_tests::{Probe, RedisServer, eventually};

use super::{KEY, SOON};

/// A state of a server that is up but replies with errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The server has started and is loading its data.
    Loading,
    /// The server was a master and is a replica now.
    ReadOnly,
    /// The memory is full, and nothing is evicted.
    OutOfMemory,
    /// A script runs for too long.
    Busy,
    /// The server now requires a password, and the client has none.
    NoAuth,
    /// The password was changed.
    WrongPassword,
    /// An administrator has revoked permissions that the client needs.
    NotPermitted,
    /// The server cannot write its snapshots.
    Misconfigured,
    /// The server was a master, is a replica now, and has lost its master.
    MasterDown,
    /// The server requires replicas that acknowledge its writes, and has none.
    NoReplicas,
    /// The server has reached its limit of clients.
    TooManyClients,
}

impl State {
    /// Returns whether this version of the server can be brought into the state. While Redis 6.2 loads, it
    /// handles its clients so rarely that it seems frozen.
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
            // Loads one key per millisecond, and handles clients after each key.
            Self::Loading => options
                .directive("key-load-delay", "1000")
                .directive("loading-process-events-interval-bytes", "1024"),
            Self::WrongPassword => options.password("the-right-one"),
            // The name of this option in Redis 6.2. Newer versions accept it, too.
            Self::Busy => options.directive("lua-time-limit", "20"),
            _ => options,
        }
        .start()
        .await
    }

    /// Returns the text that the failed vote contains.
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

    /// Returns whether a held lock can still be extended and released, because these commands need no memory
    /// and are still permitted.
    pub(crate) fn spares_holders(self) -> bool {
        matches!(self, Self::OutOfMemory | Self::NotPermitted)
    }

    /// Returns whether the server loses its locks, because it restarts without having saved them.
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
            Self::ReadOnly => trouble.run(&["REPLICAOF", "127.0.0.1", "1"]).await,
            Self::OutOfMemory => trouble.run(&["CONFIG", "SET", "maxmemory", "1"]).await,
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
                trouble.run(&["CONFIG", "SET", "requirepass", "another"]).await;
                trouble.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
            }
            Self::NotPermitted => {
                trouble.run(&["ACL", "SETUSER", "default", "-set", "-hset"]).await;
            }
            Self::Misconfigured => server.break_snapshots().await,
            Self::MasterDown => {
                trouble.run(&["CONFIG", "SET", "replica-read-only", "no"]).await;
                trouble.run(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
                trouble.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
            }
            Self::NoReplicas => {
                trouble.run(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
            }
            Self::TooManyClients => {
                trouble.clients.push(server.probe().await);
                trouble.run(&["CONFIG", "SET", "maxclients", "2"]).await;
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

/// A server that is in a [`State`] until [`end`](Self::end).
pub(crate) struct Trouble {
    state: State,
    probe: Probe,
    clients: Vec<Probe>,
}

impl Trouble {
    async fn run(&mut self, command: &[&str]) {
        self.probe.command::<redis::Value>(command).await;
    }

    async fn accepts_commands(&mut self) {
        eventually("the server accepts commands again", SOON, async || {
            self.probe.try_command::<String>(["PING"]).await.ok()
        })
        .await;
    }

    pub(crate) async fn end(mut self, server: &RedisServer) {
        match self.state {
            State::Loading => {
                let fast = ["CONFIG", "SET", "key-load-delay", "0"];
                self.run(&fast).await;
                self.accepts_commands().await;
                let flush = "for n = 1, 20000 do redis.call('DEL', 'filler:' .. n) end";
                self.run(&["EVAL", flush, "0"]).await;
            }
            State::ReadOnly | State::MasterDown => self.run(&["REPLICAOF", "NO", "ONE"]).await,
            State::OutOfMemory => self.run(&["CONFIG", "SET", "maxmemory", "0"]).await,
            State::Busy => {
                self.run(&["SCRIPT", "KILL"]).await;
                self.accepts_commands().await;
            }
            State::NoAuth => self.run(&["CONFIG", "SET", "requirepass", ""]).await,
            State::WrongPassword => {
                self.run(&["CONFIG", "SET", "requirepass", "the-right-one"]).await;
            }
            State::NotPermitted => {
                self.run(&["ACL", "SETUSER", "default", "+set", "+hset"]).await;
            }
            State::Misconfigured => server.give_up_snapshots().await,
            State::NoReplicas => self.run(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await,
            State::TooManyClients => self.run(&["CONFIG", "SET", "maxclients", "1000"]).await,
        }
    }
}
