//! Checks that the user of a new connection has the rights that every lock needs. A user that may acquire locks, and neither
//! extend nor release them, would block each key for a whole lease after its work.

use std::sync::Arc;

use bb8_redis::redis::{Cmd, FromRedisValue, RedisError};

use super::Inner;
use super::native::NativeCommands;
use crate::error::{NodeError, legible};
use crate::lock::Dialect;
use crate::log_limited;
use crate::store::redis::channel;
use crate::store::redis::error::{is_denied, not_connected, server_message};
use crate::store::redis::fencing::hash_tag;
use crate::store::redis::link::Link;

/// The commands that every lock needs, on a key that does not exist. The server refuses the arguments of `HSET`, after it has
/// checked the permission.
const PLAIN: &[&[&str]] =
    &[&["SET", "", "XX", "PX", "1"], &["GET"], &["PTTL"], &["PEXPIRE", "1"], &["DEL"]];
/// The commands with which shared locks and permits are acquired.
const SHARE: &[&[&str]] =
    &[&["ZADD", "XX", "1", "entry"], &["ZRANGE", "0", "0"], &["PEXPIREAT", "1"]];
/// The commands without which they are not released or not extended.
const STOP_SHARING: &[&[&str]] =
    &[&["ZREM", "entry"], &["ZSCORE", "entry"], &["ZREMRANGEBYSCORE", "-inf", "0"]];
const REDISSON: &[&[&str]] = &[
    &["EXISTS"],
    &["HSET", "field", "1", "field"],
    &["HEXISTS", "field"],
    &["PTTL"],
    &["PEXPIRE", "1"],
    &["DEL"],
];

/// The locks for whose operations a user needs rights.
#[derive(Debug, Clone, Default)]
pub(crate) struct CheckedLocks {
    /// The prefix of their keys.
    pub(crate) prefix: Arc<str>,
    pub(crate) dialect: Dialect,
}

/// A right that the user lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MissingRight {
    /// No lock can be used, or none can be released or extended.
    Command { names: String, words: String },
    /// Shared locks and permits can be acquired, and not be released or extended.
    StopSharing { names: String, words: String },
    /// The patterns of the user exclude the key of the check. Those of the locks may not.
    Key { key: String, words: String },
    /// The releases are not published.
    Publish { channel: Arc<str> },
}

impl CheckedLocks {
    fn name(&self) -> String {
        format!("{}redlock:rights", self.prefix)
    }

    /// Returns a channel that the user may use like those of the locks. Nobody publishes on it.
    pub(super) fn channel(&self) -> Arc<str> {
        channel::of_name(self.dialect, &self.name())
    }

    /// Asks the server which rights the user lacks, and which commands replace a script. `sha` is that of the script of the check.
    pub(super) async fn missing(
        &self,
        link: &Link,
        sha: &str,
    ) -> Result<(Vec<MissingRight>, NativeCommands), RedisError> {
        let (name, channel) = (self.name(), self.channel());
        let key = if hash_tag(&name).is_some() { name } else { name + ":{0}" };
        let mut check = Cmd::new();
        check.arg("EVALSHA").arg(sha).arg(0).arg(&*channel);
        let (commands, shared) = match self.dialect {
            Dialect::Redisson => (REDISSON, [&[][..]; 2]),
            Dialect::Plain => (PLAIN, [SHARE, STOP_SHARING]),
        };
        for command in commands.iter().chain(shared.into_iter().flatten()) {
            let (name, rest) = command.split_first().unwrap_or((&"", &[]));
            check.arg(command.len() + 1).arg(name).arg(&key).arg(rest);
        }
        let checks_native = self.dialect == Dialect::Plain;
        for (name, before, behind) in NativeCommands::CHECKS.iter().filter(|_| checks_native) {
            let words = 2 + before.len() + behind.len();
            check.arg(words).arg(name).arg(*before).arg(&key).arg(*behind);
        }
        // Another reply than a list shows nothing.
        let mut is_understood = false;
        let refused = match link.send(&check).await {
            Ok(reply) => {
                let refused = Vec::<(String, String)>::from_redis_value(reply);
                is_understood = refused.is_ok();
                refused.unwrap_or_default()
            }
            Err(error) if error.is_io_error() || error.is_unrecoverable_error() => {
                return Err(error);
            }
            Err(error) => vec![("EVALSHA".to_owned(), server_message(&error))],
        };
        let mut missing = Vec::new();
        let (published, mut refused): (Vec<_>, Vec<_>) =
            refused.into_iter().partition(|(name, _)| name == "PUBLISH");
        // A server that is loading its data, or has no replica, executes the command later.
        refused.retain(|(_, words)| is_missing_right(words));
        let lacking: Vec<_> =
            refused.extract_if(.., |(name, _)| NativeCommands::are_checked_by(name)).collect();
        let native = if is_understood && checks_native {
            NativeCommands::without(&lacking)
        } else {
            NativeCommands::default()
        };
        let mut take = |commands: &[&[&str]]| -> Vec<_> {
            let is_one = |name: &str| commands.iter().any(|command| command[0] == name);
            refused.extract_if(.., |(name, _)| is_one(name)).collect()
        };
        let [share, stop_sharing] = shared.map(&mut take);
        if refused.is_empty() {
            refused.extend(self.refused_script_key(link, sha, &key, &channel).await?);
        }
        if !published.is_empty() {
            missing.push(MissingRight::Publish { channel });
        }
        if share.is_empty()
            && let Some((names, words)) = named(&stop_sharing)
        {
            missing.push(MissingRight::StopSharing { names, words });
        }
        if let Some((names, words)) = named(&refused) {
            let all = refused.len() == commands.len();
            if all && refused.iter().all(|(_, words)| is_about_key(words)) {
                missing.push(MissingRight::Key { key, words });
            } else {
                missing.push(MissingRight::Command { names, words });
            }
        }
        Ok((missing, native))
    }

    /// Returns the refusal of a script with a key. A user whose rights are in several selectors may call scripts, and the
    /// commands on the key, but not scripts with the key. A master of a cluster checks this before it looks at the slot.
    async fn refused_script_key(
        &self,
        link: &Link,
        sha: &str,
        key: &str,
        channel: &str,
    ) -> Result<Option<(String, String)>, RedisError> {
        let mut check = Cmd::new();
        check.arg("EVALSHA").arg(sha).arg(1).arg(key).arg(channel);
        match link.send(&check).await {
            Ok(_) => Ok(None),
            Err(error) if error.is_io_error() || error.is_unrecoverable_error() => Err(error),
            Err(error) => {
                let words = server_message(&error);
                Ok(is_missing_right(&words).then(|| ("EVALSHA".to_owned(), words)))
            }
        }
    }
}

/// Returns whether an error shows that the user lacks a right, or that the server has no such command (`rename-command`).
fn is_missing_right(words: &str) -> bool {
    let is_unknown = || words.to_lowercase().contains("unknown");
    is_denied(words) || (is_unknown() && words.contains("command"))
}

/// Returns the names of refused commands, and the words of the first refusal. `None` if there is none.
fn named(refused: &[(String, String)]) -> Option<(String, String)> {
    let (_, words) = refused.first()?;
    let names: Vec<_> = refused.iter().map(|(name, _)| &**name).collect();
    Some((names.join(", "), legible(words)))
}

fn is_about_key(words: &str) -> bool {
    words.contains(" key")
}

impl Inner {
    /// Returns an error if the user lacks a right that every lock needs. Logs and returns the others, and the commands that replace
    /// a script.
    pub(super) async fn check_rights(
        &self,
        link: &Link,
        sha: &str,
    ) -> Result<(Vec<MissingRight>, NativeCommands), NodeError> {
        let (settings, server) = (&self.settings, self.name());
        let missing = settings.locks.missing(link, sha).await;
        let (missing, native) = missing.map_err(|error| not_connected(&error))?;
        for missing in &missing {
            let (limit, user) = (&settings.log_limit, "the user of the connection");
            match missing {
                MissingRight::Command { names, words } => {
                    let prefix = &settings.locks.prefix;
                    let reason = format!(
                        "{user} has no right to {names}, without which locks are not released or extended (~{prefix}*): {words}"
                    );
                    return Err(NodeError::NotPermitted(reason.into()));
                }
                MissingRight::StopSharing { names, words } => log_limited!(
                    limit, "shared right", server, warn, node = %server, reason = words,
                    "{user} has no right to {names}, without which shared locks and permits are not released or extended"
                ),
                MissingRight::Key { key, words } => log_limited!(
                    limit, "key right", server, warn, node = %server, key, reason = words,
                    "{user} may not use a key with the prefix of the locks; locks whose keys its patterns exclude fail"
                ),
                MissingRight::Publish { channel } => log_limited!(
                    limit, "publish right", server, warn, node = %server, %channel,
                    "{user} may not publish releases (PUBLISH), so that waiters poll"
                ),
            }
        }
        Ok((missing, native))
    }
}
