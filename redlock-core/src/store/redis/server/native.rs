//! The commands of newer servers that replace a script.
//!
//! A script costs a server about three times as much processor time as a command, so a server that has these commands gets
//! them. Each connection finds out what its server has and what its user may call, in the round trip of the
//! [check of the rights](super::rights).
//!
//! | command | servers | replaces |
//! |---|---|---|
//! | `DELIFEQ` | Valkey 9.0 | the release of an exclusive plain lock of one key, with `PUBLISH` |
//! | `DELEX .. IFEQ` | Redis 8.4, Valkey 9.2 (by their documentation) | the same |
//! | `MSETEX .. NX PX` | Valkey 9.1, Redis 8.4 (by its documentation), no server of a cluster | the first try to acquire several plain keys |
//!
//! A proxy may refuse a command that its server has. The connection then uses the script from then on.

use std::sync::atomic::{AtomicBool, Ordering};

use bb8_redis::redis::RedisError;

use super::identity::Identity;
use crate::store::redis::encode::NativeCommand;

/// The commands that a server has in place of scripts, for one connection.
#[derive(Debug, Default)]
pub(crate) struct NativeCommands {
    /// Deletes a key that has this value.
    delete: Option<NativeCommand>,
    /// Sets several keys if none of them exists.
    set_several: Option<NativeCommand>,
    /// Whether the server, or a proxy, has refused a command over this connection.
    is_delete_refused: AtomicBool,
    is_set_refused: AtomicBool,
    /// Whether one of the commands was answered over this connection.
    is_answered: AtomicBool,
    /// Whether the connection has ended instead.
    is_unanswered: AtomicBool,
}

impl NativeCommands {
    /// The commands with the arguments of their check, which change nothing, before and behind the key.
    pub(super) const CHECKS: [(&str, &[&str], &[&str]); 3] = [
        ("DELIFEQ", &[], &[""]),
        ("DELEX", &[], &["IFEQ", ""]),
        ("MSETEX", &["1"], &["", "XX", "PX", "1"]),
    ];

    /// Returns whether the check names a command with this name.
    pub(super) fn are_checked_by(name: &str) -> bool {
        Self::CHECKS.iter().any(|(checked, ..)| *checked == name)
    }

    /// Returns the commands of a server that has executed all checks but these.
    pub(super) fn without(refused: &[(String, String)]) -> Self {
        let permitted = |name: &str, command| {
            let is_refused = refused.iter().any(|(refused, _)| refused == name);
            (!is_refused).then_some(command)
        };
        let delete = permitted("DELIFEQ", NativeCommand::DelIfEq);
        Self {
            delete: delete.or_else(|| permitted("DELEX", NativeCommand::DelEx)),
            set_several: permitted("MSETEX", NativeCommand::MSetEx),
            ..Self::default()
        }
    }

    /// Returns the commands that the node may send to this server. A server of a cluster sets keys of several slots, from which no
    /// script could release them (Valkey 9.1.2).
    pub(super) fn on(self, identity: &Identity) -> Self {
        Self { set_several: self.set_several.filter(|_| identity.is_standalone), ..self }
    }

    /// Returns the command that deletes a key with a value.
    pub(crate) fn delete(&self) -> Option<NativeCommand> {
        self.delete.filter(|_| !self.is_delete_refused.load(Ordering::Relaxed))
    }

    /// Returns the command that sets several keys.
    pub(crate) fn set_several(&self) -> Option<NativeCommand> {
        self.set_several.filter(|_| !self.is_set_refused.load(Ordering::Relaxed))
    }

    /// Records that the server has answered a command.
    pub(crate) fn answered(&self) {
        if !self.is_answered.load(Ordering::Relaxed) {
            self.is_answered.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the server has answered a command.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Relaxed)
    }

    /// Records that the connection has ended instead of an answer. Returns false if that was recorded before: several commands may
    /// have waited for their answers.
    pub(crate) fn unanswered(&self) -> bool {
        !self.is_unanswered.swap(true, Ordering::Relaxed)
    }

    /// Records that the reply to a command is not that of its documentation. The connection does not use the command any more.
    pub(crate) fn refused(&self, command: NativeCommand) {
        let refused = match command {
            NativeCommand::DelIfEq | NativeCommand::DelEx => &self.is_delete_refused,
            NativeCommand::MSetEx => &self.is_set_refused,
        };
        refused.store(true, Ordering::Relaxed);
    }
}

/// The codes of errors that concern the key, or the state of the server. The script meets them, too.
const PASSING: [&str; 13] = [
    "WRONGTYPE",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "READONLY",
    "LOADING",
    "BUSY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "NOAUTH",
];

/// Returns whether the error shows that the server, or a proxy, does not execute the command for this user. A proxy may begin
/// it with any word.
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    !error.code().is_some_and(|code| PASSING.contains(&code))
}

#[cfg(test)]
impl NativeCommands {
    /// Returns the commands of a server that has only these.
    pub(crate) fn only(delete: Option<NativeCommand>, set_several: bool) -> Self {
        let set_several = set_several.then_some(NativeCommand::MSetEx);
        Self { delete, set_several, ..Self::default() }
    }
}
