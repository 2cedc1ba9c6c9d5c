//! Puts this library and others into the same trouble, and prints what happens, as a Markdown table. Starts its own servers.
//!
//! Each side has a lease of two seconds, except advisory locks, which have none. A holder is a process of its own, behind a
//! proxy; a rival beside it asks the same server without a proxy.
//!
//! | trial | what happens |
//! |---|---|
//! | long work | the holder works for three leases. When does the rival get the lock? |
//! | deletion | somebody deletes the lock, or ends the session that has it. When does the holder know? |
//! | partition | the holder is cut off from its server. Does it know before the rival has the lock? |
//! | cancellation | the holder stops to wait for an attempt whose reply is on its way. When does the rival get the lock? |
//! | crash | the holder is killed. When does the rival get the lock? |
//!
//! redsync needs Go 1.26 and its registry of modules, an advisory lock needs PostgreSQL.

mod holder;
mod sides;

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_tests::{Direction, PostgresServer, Proxy, RedisServer, Traffic};

use holder::{Holder, Program};
use sides::LEASE;

/// The time after which a trial ends.
const LIMIT: Duration = LEASE.saturating_mul(3);

/// The server of a side.
enum Server {
    Redis(RedisServer),
    Postgres(PostgresServer),
}

/// One library with a server of its own.
struct Side {
    name: &'static str,
    program: Program,
    server: Server,
    proxy: Proxy,
}

/// The time until an event; `None` if it has not happened within the limit.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct After(Option<Duration>);

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(time) if time < Duration::from_millis(100) => {
                write!(f, "{} ms", time.as_millis().max(1))
            }
            Some(time) => write!(f, "{:.1} s", time.as_secs_f64()),
            None => write!(f, "not within {} s", LIMIT.as_secs()),
        }
    }
}

impl Side {
    async fn on_redis(name: &'static str, program: Program) -> Self {
        let server = RedisServer::start().await;
        let proxy = Proxy::to(&server).await;
        Self { name, program, server: Server::Redis(server), proxy }
    }

    /// `None` without PostgreSQL.
    async fn on_postgres(name: &'static str, program: Program) -> Option<Self> {
        let server =
            PostgresServer::start().await.inspect_err(|reason| eprintln!("{reason}")).ok()?;
        let proxy = Proxy::to_port(server.port()).await;
        Some(Self { name, program, server: Server::Postgres(server), proxy })
    }

    /// Starts a process behind the proxy, and one beside it. The first command of some libraries opens the connection.
    async fn processes(&self) -> (Holder, Holder) {
        let port = match &self.server {
            Server::Redis(server) => server.port(),
            Server::Postgres(server) => server.port(),
        };
        let url = |port: u16| match &self.server {
            Server::Redis(_) => format!("redis://127.0.0.1:{port}"),
            Server::Postgres(server) => server.url_at("127.0.0.1", port),
        };
        let mut holder = Holder::start(&self.program, &url(self.proxy.port())).await;
        let mut rival = Holder::start(&self.program, &url(port)).await;
        assert!(
            holder.tries("the holder is ready").await && rival.tries("the rival is ready").await
        );
        (holder, rival)
    }

    /// Deletes all locks, or ends the sessions that have them.
    async fn delete_locks(&self) {
        match &self.server {
            Server::Redis(server) => server.probe().await.command::<()>(["FLUSHALL"]).await,
            Server::Postgres(server) => {
                const END: &str =
                    "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'";
                server.admin().await.execute(END, &[]).await.expect("an end");
            }
        }
    }

    async fn long_work(&self) -> String {
        let (mut holder, mut rival) = self.processes().await;
        assert!(holder.tries("report").await);
        match rival.gets("report").await {
            After(None) => "keeps the lock".to_owned(),
            after => format!("loses the lock after {after}"),
        }
    }

    async fn deletion(&self) -> String {
        let (mut holder, _rival) = self.processes().await;
        assert!(holder.tries("report").await);
        holder.watch().await;
        // What tells a holder of its loss is there before the loss.
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.delete_locks().await;
        match holder.learns().await {
            After(None) => "does not know".to_owned(),
            after => format!("knows after {after}"),
        }
    }

    async fn partition(&self) -> String {
        let (mut holder, mut rival) = self.processes().await;
        assert!(holder.tries("report").await);
        holder.watch().await;
        self.proxy.set_both(Traffic::Hold);
        let (learns, gets) = tokio::join!(holder.learns(), rival.gets("report"));
        self.proxy.set_both(Traffic::Pass);
        match (learns, gets) {
            (After(None), After(None)) => "keeps the lock, and does not know".to_owned(),
            (After(Some(learns)), After(Some(gets))) if learns < gets => {
                format!("knows {} before the rival has the lock", After(Some(gets - learns)))
            }
            (After(Some(_)), After(None)) => "knows, and the rival has no lock".to_owned(),
            (_, gets) => format!("**both have the lock** after {gets}"),
        }
    }

    async fn cancellation(&self) -> String {
        let (mut holder, mut rival) = self.processes().await;
        self.proxy.set(Direction::ToClient, Traffic::Delay(Duration::from_millis(200)));
        holder.abandons("report").await;
        let free = rival.gets("report").await;
        self.proxy.set(Direction::ToClient, Traffic::Pass);
        format!("free after {free}")
    }

    async fn crash(&self) -> String {
        let (mut holder, mut rival) = self.processes().await;
        assert!(holder.tries("report").await);
        holder.kill().await;
        format!("free after {}", rival.gets("report").await)
    }

    /// Makes all trials, one after another.
    async fn trials(&self) -> Vec<String> {
        let mut results = Vec::new();
        for trial in 0..TRIALS.len() {
            results.push(match trial {
                0 => self.long_work().await,
                1 => self.deletion().await,
                2 => self.partition().await,
                3 => self.cancellation().await,
                _ => self.crash().await,
            });
            self.delete_locks().await;
        }
        results
    }
}

const TRIALS: [&str; 5] = [
    "The holder works for three leases. It ..",
    "Somebody deletes the lock. The holder ..",
    "The holder is cut off. It ..",
    "An attempt is cancelled half way. The lock is ..",
    "The holder is killed. The lock is ..",
];

/// Builds the program for redsync. `None` without Go.
fn redsync() -> Option<Program> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = directory.join("target/redsync");
    let built = Command::new("go")
        .arg("build")
        .arg("-o")
        .arg(&program)
        .arg(".")
        .current_dir(directory.join("redsync"))
        .status();
    let is_built = built.is_ok_and(|status| status.success());
    is_built.then_some(Program::Other(program))
}

#[tokio::main]
async fn main() {
    redlock_logs::do_not_watch();
    let mut arguments = std::env::args().skip(1);
    if let (Some(side), Some(url)) = (arguments.next(), arguments.next()) {
        return sides::serve(&side, &url).await;
    }
    let mut sides = Vec::new();
    for (name, word) in
        [("this library", "ours"), ("rslock 0.10", "rslock"), ("`SET NX`, by hand", "by-hand")]
    {
        sides.push(Side::on_redis(name, Program::This(word)).await);
    }
    if let Some(program) = redsync() {
        sides.push(Side::on_redis("redsync 4.18 (Go)", program).await);
    } else {
        eprintln!("redsync is left out: its program was not built");
    }
    sides
        .extend(Side::on_postgres("`PgAdvisoryLock` of sqlx 0.8", Program::This("advisory")).await);
    let started = Instant::now();
    let results = join_all(sides.iter().map(Side::trials)).await;
    println!("| | {} |", sides.iter().map(|side| side.name).collect::<Vec<_>>().join(" | "));
    println!("|---|{}", "---|".repeat(sides.len()));
    for (row, trial) in TRIALS.into_iter().enumerate() {
        let cells: Vec<_> = results.iter().map(|cells| &*cells[row]).collect();
        println!("| {trial} | {} |", cells.join(" | "));
    }
    eprintln!("In {} s.", started.elapsed().as_secs());
}
