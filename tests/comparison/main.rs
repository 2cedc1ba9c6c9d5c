//! Runs the trials of README.md with this library and others, each in a process of its own, and prints their table.
#![allow(clippy::unwrap_used, reason = "a trial that cannot continue must stop")]

mod holder;

use std::process::Stdio;
use std::time::{Duration, Instant};

use redlock_tests::{PostgresServer, Servers};
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::sleep;

const LIBRARIES: [&str; 5] =
    ["this library", "rslock", "redsync", "`PgAdvisoryLock`", "`SET NX`"];
/// Short, for the trial of a renewal. Renewals of a busy machine come within it.
const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(12);
/// What comes within this time does not come by the end of a long lease.
const SOON: Duration = Duration::from_secs(6);

/// A process with a lock.
struct Holder {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    async fn start(library: &str, url: &str, work: &str, lease: Duration) -> Self {
        let lease = lease.as_millis().to_string();
        let program = match library {
            "redsync" => std::env::var("REDSYNC_TRIAL").unwrap(),
            _ => std::env::current_exe().unwrap().to_str().unwrap().to_owned(),
        };
        let mut command = Command::new(program);
        command.args([library, url, work, &lease]).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn says(&mut self, word: &str) {
        let line = self.lines.next_line().await.unwrap();
        assert_eq!(line.as_deref(), Some(word));
    }
}

/// The server of a library.
enum Server {
    Redis(Servers),
    Postgres(PostgresServer),
}

impl Server {
    async fn start(library: &str) -> Self {
        if library == "`PgAdvisoryLock`" {
            return Self::Postgres(PostgresServer::start().await.unwrap());
        }
        Self::Redis(Servers::start(1).await)
    }

    fn url(&self) -> String {
        match self {
            Self::Redis(servers) => servers.urls().remove(0),
            Self::Postgres(server) => server.url(),
        }
    }

    async fn is_locked(&self) -> bool {
        match self {
            Self::Redis(_) => self.redis(redis::cmd("EXISTS").arg("trial")).await == 1,
            Self::Postgres(_) => {
                self.postgres("select count(*) from pg_locks where locktype = 'advisory' and granted").await > 0
            }
        }
    }

    /// Takes the lock away from its holder, as an operator or a failover does.
    async fn take_away(&self) {
        match self {
            Self::Redis(_) => drop(self.redis(redis::cmd("DEL").arg("trial")).await),
            Self::Postgres(_) => {
                let end = "select count(pg_terminate_backend(pid)) from pg_locks where locktype = 'advisory'";
                self.postgres(end).await;
            }
        }
    }

    /// Delays the answer to the next acquisition until its caller has left.
    async fn delay(&self) -> Option<PgConnection> {
        match self {
            Self::Redis(_) => {
                let mut pause = redis::cmd("CLIENT");
                let client = redis::Client::open(self.url()).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                pause.arg("PAUSE").arg(3000).arg("WRITE").query_async::<()>(&mut connection).await.unwrap();
                None
            }
            Self::Postgres(server) => {
                let mut other = PgConnection::connect(&server.url()).await.unwrap();
                sqlx::query("select pg_advisory_lock(hashtextextended('trial', 0))").execute(&mut other).await.unwrap();
                Some(other)
            }
        }
    }

    async fn redis(&self, command: &redis::Cmd) -> i64 {
        let client = redis::Client::open(self.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        command.query_async(&mut connection).await.unwrap()
    }

    async fn postgres(&self, query: &'static str) -> i64 {
        let Self::Postgres(server) = self else { unreachable!() };
        let mut connection = PgConnection::connect(&server.admin_url()).await.unwrap();
        sqlx::query(query).fetch_one(&mut connection).await.unwrap().get(0)
    }

    /// Returns whether the lock is free soon, long before its lease ends.
    async fn is_free_soon(&self) -> bool {
        let started = Instant::now();
        while self.is_locked().await {
            if started.elapsed() > SOON {
                return false;
            }
            sleep(Duration::from_millis(20)).await;
        }
        true
    }
}

const TRIALS: [&str; 5] = [
    "the work takes three leases, and stays locked",
    "the lock is taken away: the holder is told",
    "the caller leaves while it acquires: the lock is free at once",
    "the guard is dropped: the lock is free at once",
    "the holder is killed: the lock is free",
];

async fn trial(number: usize, library: &str) -> &'static str {
    let yes = |held| if held { "yes" } else { "no" };
    let server = Server::start(library).await;
    let url = server.url();
    match number {
        0 => {
            let mut holder = Holder::start(library, &url, "hold", SHORT).await;
            holder.says("held").await;
            sleep(SHORT * 3).await;
            yes(server.is_locked().await)
        }
        1 => {
            let mut holder = Holder::start(library, &url, "hold", LONG).await;
            holder.says("held").await;
            server.take_away().await;
            match tokio::time::timeout(SOON, holder.says("lost")).await {
                Ok(()) => "at once",
                Err(_) => match tokio::time::timeout(LONG, holder.says("lost")).await {
                    Ok(()) => "at the next renewal",
                    Err(_) => "no",
                },
            }
        }
        2 => {
            let other = server.delay().await;
            let mut holder = Holder::start(library, &url, "cancel", LONG).await;
            holder.says("cancelled").await;
            if let Some(other) = other {
                other.close().await.unwrap();
            } else {
                sleep(Duration::from_secs(4)).await;
            }
            yes(server.is_free_soon().await)
        }
        3 => {
            let mut holder = Holder::start(library, &url, "drop", LONG).await;
            holder.says("dropped").await;
            yes(server.is_free_soon().await)
        }
        _ => {
            let mut holder = Holder::start(library, &url, "hold", LONG).await;
            holder.says("held").await;
            holder.child.kill().await.unwrap();
            if server.is_free_soon().await { "at once" } else { "when the lease ends" }
        }
    }
}

#[tokio::main]
async fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if let [library, url, work, lease] = &*words {
        return holder::run(library, url, work, Duration::from_millis(lease.parse().unwrap())).await;
    }
    println!("| trial | {} |\n|---{}|", LIBRARIES.join(" | "), "|---".repeat(LIBRARIES.len()));
    for (number, name) in TRIALS.iter().enumerate() {
        let mut row = format!("| {name} |");
        for library in LIBRARIES {
            row += &format!(" {} |", trial(number, library).await);
        }
        println!("{row}");
    }
}
