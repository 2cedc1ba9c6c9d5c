//! A client of one server, for values that are no locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind, Value, cmd};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::error::node_error;
use super::link::open::Endpoint;
use super::link::{Link, Prefix};
use super::url::RedisUrl;
use crate::error::NodeError;

/// The longest time to connect, and the longest time without a reply.
const LIMIT: Duration = Duration::from_secs(1);
/// The longest value, and the rest of its reply.
const LONGEST_REPLY: u64 = (64 << 20) + (1 << 20);
/// The time after a failed attempt to connect in which callers get its error, and do not connect again.
const PAUSE: Duration = Duration::from_millis(100);

/// A client of one Redis server for the other crates of this workspace, over one connection that is made anew when it
/// has broken. No public API.
pub struct RedisClient {
    endpoint: Endpoint,
    link: ArcSwapOption<Link>,
    /// The last failed attempt to connect. Callers that find no connection queue here.
    failed: Mutex<Option<(Instant, NodeError)>>,
}

/// The reply to a command. No public API.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "no public API")]
pub enum RedisReply {
    /// No value.
    Nil,
    /// A number.
    Number(i64),
    /// A text.
    Bytes(Vec<u8>),
}

/// A script that the server knows by its digest. No public API.
#[derive(Debug)]
pub struct RedisScript {
    text: &'static str,
    sha: String,
}

impl RedisScript {
    /// Returns the script of a text.
    pub fn new(text: &'static str) -> Self {
        Self { text, sha: sha1_smol::Sha1::from(text).digest().to_string() }
    }
}

impl RedisClient {
    /// Returns a client of the server of a URL, which is not connected yet.
    ///
    /// # Errors
    ///
    /// The mistake in the URL, without repeating it.
    pub fn new(url: &str) -> Result<Self, String> {
        let url = RedisUrl::parse(url)?;
        let endpoint = Endpoint::of_one(&url).ok_or(
            "it names a Sentinel group or a cluster; write the URL of one server, as redis://, rediss:// or unix://",
        )?;
        let endpoint = endpoint.with_replies_up_to(LONGEST_REPLY);
        Ok(Self { endpoint, link: ArcSwapOption::empty(), failed: Mutex::default() })
    }

    /// Returns the host and the port of the server.
    pub fn name(&self) -> &str {
        self.endpoint.name()
    }

    /// Gets a value.
    ///
    /// # Errors
    ///
    /// Why there is no reply.
    pub async fn get(&self, key: &[u8]) -> Result<RedisReply, NodeError> {
        let get = cmd("GET").arg(key).get_packed_command();
        self.send(get).await?.map_err(|error| node_error(&error))
    }

    /// Sets a value and its time to live, if the key has no value. Returns whether it was set.
    ///
    /// # Errors
    ///
    /// Why there is no reply. Unless the server has refused the command, it may have executed it.
    pub async fn set_new(
        &self,
        key: &[u8],
        value: &[u8],
        milliseconds: &[u8],
    ) -> Result<bool, NodeError> {
        let mut set = cmd("SET");
        set.arg(key).arg(value).arg("NX").arg("PX").arg(milliseconds);
        let reply = self.send(set.get_packed_command()).await?;
        Ok(reply.map_err(|error| node_error(&error))? != RedisReply::Nil)
    }

    /// Executes a script over one key.
    ///
    /// # Errors
    ///
    /// Why there is no reply. Unless the server has refused the script, it may have executed it.
    pub async fn run(
        &self,
        script: &RedisScript,
        key: &[u8],
        arguments: &[&[u8]],
    ) -> Result<RedisReply, NodeError> {
        let command = |name: &str, script: &str| {
            let mut command = cmd(name);
            command.arg(script).arg(1).arg(key);
            for argument in arguments {
                command.arg(*argument);
            }
            command.get_packed_command()
        };
        match self.send(command("EVALSHA", &script.sha)).await? {
            Err(error) if is_unknown_script(&error) => {
                self.load(script).await?;
                self.send(command("EVALSHA", &script.sha)).await?
            }
            reply => reply,
        }
        .map_err(|error| node_error(&error))
    }

    /// Loads a script, so that the server knows it.
    ///
    /// # Errors
    ///
    /// Why the server does not know it.
    pub async fn load(&self, script: &RedisScript) -> Result<(), NodeError> {
        let load = cmd("SCRIPT").arg("LOAD").arg(script.text).get_packed_command();
        self.send(load).await?.map(drop).map_err(|error| node_error(&error))
    }

    /// Sends a command. The inner error is the server's.
    async fn send(&self, command: Vec<u8>) -> Result<Result<RedisReply, RedisError>, NodeError> {
        let link = self.link().await?;
        let Ok(reply) = timeout(LIMIT, link.send_packed(command.into(), Prefix::None)).await else {
            // A device on the way may accept commands without delivering them.
            link.end(&format!("no reply for {LIMIT:?}"));
            return Err(NodeError::NoReply(LIMIT));
        };
        match reply {
            Ok(Value::Nil) => Ok(Ok(RedisReply::Nil)),
            Ok(Value::Int(number)) => Ok(Ok(RedisReply::Number(number))),
            Ok(Value::BulkString(bytes)) => Ok(Ok(RedisReply::Bytes(bytes))),
            Ok(Value::Okay) => Ok(Ok(RedisReply::Bytes(b"OK".to_vec()))),
            Ok(Value::SimpleString(text)) => Ok(Ok(RedisReply::Bytes(text.into_bytes()))),
            Ok(_) => Err(NodeError::UnexpectedReply),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Returns the connection. Makes it if there is none.
    async fn link(&self) -> Result<Arc<Link>, NodeError> {
        let alive = || self.link.load_full().filter(|link| link.is_alive());
        if let Some(link) = alive() {
            return Ok(link);
        }
        let mut failed = self.failed.lock().await;
        if let Some(link) = alive() {
            return Ok(link);
        }
        if let Some((at, error)) = &*failed
            && at.elapsed() < PAUSE
        {
            return Err(error.clone());
        }
        match self.endpoint.open(LIMIT, false, |_| {}).await {
            Ok(link) => {
                let link = Arc::new(link);
                self.link.store(Some(Arc::clone(&link)));
                *failed = None;
                Ok(link)
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

impl fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisClient").field("server", self.endpoint.name()).finish_non_exhaustive()
    }
}
