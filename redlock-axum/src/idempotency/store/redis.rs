//! Answers in Redis: a string for each key.

use std::time::Duration;

use bytes::Bytes;
use redlock_core::__private::{RedisClient, RedisReply, RedisScript};
use redlock_core::NodeError;

use super::super::answers::{
    AnswerClaim, AnswerId, AnswerRecord, Answers, AnswersError, AnswersFuture, ClaimResult,
};
use super::super::fingerprint::Fingerprint;

/// The digits of a number, and the bytes in front of an answer: the number and the fingerprint.
const DIGITS: usize = 16;
const HEAD: usize = DIGITS + 32;

/// Answers in one Redis or Valkey server.
///
/// Each answer is a string with a time to live, at `{prefix}redlock:answer:{scope}:{key}`. Every user with the right to read the
/// key sees the answers. The server must not evict them, and a restart without its data forgets them: then a repeated request is executed
/// again.
///
/// The store connects again after a break. A request that meets a break is answered with 503.
///
/// # Examples
///
/// ```no_run
/// use redlock_axum::{IdempotencyLayer, LockManager, RedisAnswers};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = LockManager::connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).await?;
/// let answers = RedisAnswers::connect("redis://10.0.0.4").await?;
/// let once = IdempotencyLayer::new(&locks, answers).shared_scope()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct RedisAnswers {
    client: RedisClient,
    prefix: String,
    script: RedisScript,
}

impl RedisAnswers {
    /// Connects to the server of a URL: `redis://`, `rediss://` (feature `tls`), `valkey://` or `unix://`, as for a node.
    ///
    /// # Errors
    ///
    /// Returns an [`AnswersError`] for a mistake in the URL, and for a server that cannot be reached or refuses the login. The
    /// message contains no password.
    pub async fn connect(url: &str) -> Result<Self, AnswersError> {
        let client = RedisClient::new(url);
        let client = client.map_err(|reason| {
            AnswersError::new(format!("the URL of the answers cannot be used: {reason}"))
        })?;
        let script = RedisScript::new(include_str!("answer.lua"));
        let store = Self { client, prefix: String::new(), script };
        store.client.load(&store.script).await.map_err(|error| store.failed(&error))?;
        Ok(store)
    }

    /// Sets the text in front of all keys, such as `shop:`. Defaults to none.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    fn key(&self, id: &AnswerId) -> String {
        format!("{}redlock:answer:{}", self.prefix, id.text())
    }

    fn failed(&self, error: &NodeError) -> AnswersError {
        AnswersError::new(format!("{}: {error}", self.client.name()))
    }

    async fn run(&self, id: &AnswerId, arguments: &[&[u8]]) -> Result<RedisReply, AnswersError> {
        let reply = self.client.run(&self.script, self.key(id).as_bytes(), arguments).await;
        reply.map_err(|error| self.failed(&error))
    }

    /// Reads the value of a key.
    fn record(&self, reply: RedisReply) -> Result<Option<AnswerRecord>, AnswersError> {
        let foreign = || AnswersError::new(format!("{}: a value is no answer", self.client.name()));
        match reply {
            RedisReply::Nil => Ok(None),
            RedisReply::Number(_) => Err(foreign()),
            RedisReply::Bytes(value) => {
                let mut value = Bytes::from(value);
                if value.len() < HEAD {
                    return Err(foreign());
                }
                let (number, fingerprint) = (value.split_to(DIGITS), value.split_to(HEAD - DIGITS));
                let number = std::str::from_utf8(&number).ok().and_then(|text| text.parse().ok());
                let fingerprint = <[u8; 32]>::try_from(&fingerprint[..]).map(Fingerprint::from);
                let (Some(number), Ok(fingerprint)) = (number, fingerprint) else {
                    return Err(foreign());
                };
                let answer = (!value.is_empty()).then_some(value);
                Ok(Some(AnswerRecord::new(number, fingerprint, answer)))
            }
        }
    }
}

/// Returns a number with all its digits.
fn digits(number: i64) -> String {
    format!("{number:0DIGITS$}")
}

fn millis(keep: Duration) -> String {
    keep.as_millis().max(1).to_string()
}

impl Answers for RedisAnswers {
    fn load<'a>(&'a self, id: &'a AnswerId) -> AnswersFuture<'a, Option<AnswerRecord>> {
        Box::pin(async {
            let value = self.client.get(self.key(id).as_bytes()).await;
            self.record(value.map_err(|error| self.failed(&error))?)
        })
    }

    fn claim<'a>(&'a self, id: &'a AnswerId, claim: AnswerClaim) -> AnswersFuture<'a, ClaimResult> {
        Box::pin(async move {
            let (number, keep) = (digits(claim.number), millis(claim.keep));
            let replaces: &[u8] = if claim.replaces_unfinished { b"1" } else { b"0" };
            let fingerprint = claim.fingerprint;
            // Most keys have no record. Then this command does what the script would do, and costs the server less.
            let value = [number.as_bytes(), fingerprint.as_bytes()].concat();
            let is_new =
                self.client.set_new(self.key(id).as_bytes(), &value, keep.as_bytes()).await;
            if is_new.map_err(|error| self.failed(&error))? {
                return Ok(ClaimResult::Claimed);
            }
            let arguments =
                [b"claim", number.as_bytes(), fingerprint.as_bytes(), keep.as_bytes(), replaces];
            let reply = self.run(id, &arguments).await?;
            let record = self.record(reply)?;
            Ok(record.map_or(ClaimResult::Claimed, ClaimResult::Found))
        })
    }

    fn store<'a>(
        &'a self,
        id: &'a AnswerId,
        number: i64,
        answer: Bytes,
        keep: Duration,
    ) -> AnswersFuture<'a, bool> {
        Box::pin(async move {
            let (number, keep) = (digits(number), millis(keep));
            let arguments: [&[u8]; 4] = [b"store", number.as_bytes(), &answer, keep.as_bytes()];
            Ok(self.run(id, &arguments).await? == RedisReply::Number(1))
        })
    }

    fn forget<'a>(&'a self, id: &'a AnswerId, number: i64) -> AnswersFuture<'a, ()> {
        Box::pin(
            async move { self.run(id, &[b"forget", digits(number).as_bytes()]).await.map(drop) },
        )
    }
}
