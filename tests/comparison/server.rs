//! The servers of the trials.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::SOON;

/// How long a paused Redis answers no write.
const PAUSE: Duration = Duration::from_secs(3);

/// The server of a library.
pub enum Server {
    Redis(Redis),
    #[cfg(feature = "sqlx")]
    Postgres(crate::advisory::Postgres),
}

/// Delays the answer to an acquisition.
pub enum Delay {
    /// The server is paused for a time.
    Pause,
    /// Another session has the lock.
    #[cfg(feature = "sqlx")]
    Session(sqlx::postgres::PgConnection),
}

impl Delay {
    /// Returns when the server answers.
    pub async fn end(self) {
        match self {
            Self::Pause => sleep(PAUSE + Duration::from_secs(1)).await,
            #[cfg(feature = "sqlx")]
            Self::Session(other) => sqlx::Connection::close(other).await.unwrap(),
        }
    }
}

pub struct Redis {
    url: String,
    _process: Child,
    _folder: TempDir,
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Redis {
    async fn start() -> Self {
        let (port, folder) = (free_port().to_string(), tempfile::tempdir().unwrap());
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
        command.current_dir(folder.path()).stdout(Stdio::null()).kill_on_drop(true);
        let started = Self {
            url: format!("redis://127.0.0.1:{port}"),
            _process: command.spawn().unwrap(),
            _folder: folder,
        };
        let client = redis::Client::open(&*started.url).unwrap();
        while client.get_multiplexed_async_connection().await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
        started
    }

    async fn send<T: redis::FromRedisValue>(&self, command: &mut redis::Cmd) -> T {
        let client = redis::Client::open(&*self.url).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        command.query_async(&mut connection).await.unwrap()
    }
}

impl Server {
    pub async fn start(library: &str) -> Self {
        match library {
            #[cfg(feature = "sqlx")]
            "`PgAdvisoryLock`" => Self::Postgres(crate::advisory::Postgres::start().await),
            _ => Self::Redis(Redis::start().await),
        }
    }

    pub fn url(&self) -> String {
        match self {
            Self::Redis(redis) => redis.url.clone(),
            #[cfg(feature = "sqlx")]
            Self::Postgres(postgres) => postgres.url(),
        }
    }

    pub async fn is_locked(&self) -> bool {
        match self {
            Self::Redis(redis) => redis.send(redis::cmd("EXISTS").arg("trial")).await,
            #[cfg(feature = "sqlx")]
            Self::Postgres(postgres) => postgres.is_locked().await,
        }
    }

    /// Takes the lock away from its holder, as an operator or a failover does.
    pub async fn take_away(&self) {
        match self {
            Self::Redis(redis) => redis.send(redis::cmd("DEL").arg("trial")).await,
            #[cfg(feature = "sqlx")]
            Self::Postgres(postgres) => postgres.take_away().await,
        }
    }

    /// Delays the answer to the next acquisition until its caller has left.
    pub async fn delay(&self) -> Delay {
        match self {
            Self::Redis(redis) => {
                let mut pause = redis::cmd("CLIENT");
                let milliseconds = u64::try_from(PAUSE.as_millis()).unwrap();
                redis.send::<()>(pause.arg("PAUSE").arg(milliseconds).arg("WRITE")).await;
                Delay::Pause
            }
            #[cfg(feature = "sqlx")]
            Self::Postgres(postgres) => Delay::Session(postgres.hold().await),
        }
    }

    /// Returns whether the lock is free soon, long before its lease ends.
    pub async fn is_free_soon(&self) -> bool {
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
