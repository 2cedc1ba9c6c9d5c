//! The Lua scripts of the operations that need more than one command.
//!
//! The server runs each script as one atomic step (Redis documentation, "Scripting with Lua"). The texts
//! are constant, and data is passed in KEYS and ARGV, so that the server compiles each script once.
//!
//! A script is assembled from the pieces in this folder. The first key is the lock, and the first argument the
//! token. The folder `plain` has the scripts of exclusive locks, `shared` those of shared locks, `several` those of
//! locks of several keys, and `redisson` those of the Redisson dialect.
//!
//! | script | further keys and arguments | replies |
//! |---|---|---|
//! | `acquire`, `take` | the lease in milliseconds; `shared/acquire`: the number of permits, or 0; `take`: a mark and its time to live, or two empty texts | OK; if refused, the time to live of the present lock in milliseconds; in a list if shared holders refuse an exclusive lock |
//! | `acquire_fenced`, `take_fenced` | the fencing counter; as above | the number as text; if refused, as above |
//! | `inspect` | | the time to live of the key |
//! | `extend` | the new lease, which never shortens the old one | 1 |
//! | `confirm` | the fencing counter; its least value | 1 |
//! | `release` | `redisson`: the channel | 1 + the number of notified subscribers |
//! | `shorten` | the new time to live, which never prolongs the old one; `redisson`: the channel | as `release` |
//! | `downgrade` | | 1 |
//! | `withdraw` | a mark instead of a token | 1 |
//!
//! The scripts of several keys have all of them first, and behind them the counters. The number of the locks' keys is the
//! third argument if there may be counters; the mark of an acquisition and its time to live follow it. A refused
//! acquisition replies the index of the first key that is not free and its time to live, in a list, and a third item if
//! only shared holders refuse it.
//!
//! The scripts of the [fair queues](super::fair) take the process and the length of its presence in microseconds as the
//! first arguments. The further arguments of `fair/enter` are pairs of a ticket and the microseconds that its caller has
//! waited, those of `fair/leave` are tickets. Each replies the time of the server in microseconds as text, 1 if the
//! process was present and otherwise 0, the first ticket or an empty text, and for how many microseconds the process of
//! that ticket is still present.
//!
//! A time to live of -1 means that the key has none, -2 that there is no key, and -4 that the lock is shared. Every
//! script that compares the owner replies 0 if another owner holds the lock or the lock is free. Every script replies
//! -3 for a key that is not a lock of the dialect.

use std::fmt;

use crate::lock::{Dialect, Mode};
use crate::node::{Action, Op};

/// A script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Script {
    index: usize,
    name: &'static str,
    source: &'static str,
}

/// Defines the scripts, each by its name and its pieces.
macro_rules! scripts {
    ($($id:ident = $name:literal: $($piece:literal)+;)+) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Index { $($id),+ }

        $(
            pub(super) const $id: Script = Script {
                index: Index::$id as usize,
                name: $name,
                source: concat!($(include_str!(concat!($piece, ".lua"))),+),
            };
        )+

        impl Script {
            /// The number of scripts.
            pub(super) const COUNT: usize = [$($name),+].len();

            /// All scripts, each at its index.
            pub(super) const ALL: [Self; Self::COUNT] = [$($id),+];
        }
    };
}

scripts! {
    PLAIN_INSPECT = "plain/inspect": "plain/read" "plain/inspect";
    PLAIN_CONFIRM = "plain/confirm": "plain/read" "plain/owned" "fencing/read" "fencing/confirm";
    PLAIN_EXTEND = "plain/extend": "plain/read" "plain/owned" "extend";
    PLAIN_RELEASE = "plain/release":
        "plain/read" "plain/owned" "plain/turn" "plain/release" "subscribers";
    PLAIN_SHORTEN = "plain/shorten":
        "plain/read" "plain/owned" "shorten" "plain/publish" "subscribers";
    PLAIN_TAKE = "plain/take": "shared/read" "shared/write" "shared/take" "plain/ok";
    PLAIN_TAKE_FENCED = "plain/take_fenced":
        "shared/read" "shared/write" "shared/take" "fencing/read" "fencing/count" "plain/set";

    SHARED_ACQUIRE = "shared/acquire": "shared/read" "shared/write" "shared/acquire" "shared/enter";
    SHARED_EXTEND = "shared/extend":
        "shared/read" "shared/write" "shared/own" "shared/extend";
    SHARED_RELEASE = "shared/release":
        "shared/read" "shared/write" "shared/own" "plain/turn" "shared/release" "subscribers";
    SHARED_SHORTEN = "shared/shorten":
        "shared/read" "shared/write" "shared/own" "shared/shorten" "subscribers";
    SHARED_DOWNGRADE = "shared/downgrade":
        "shared/read" "shared/write" "shared/own" "shared/downgrade";
    SHARED_WITHDRAW = "shared/withdraw": "shared/read" "shared/write" "shared/withdraw";

    SEVERAL_ACQUIRE = "several/acquire":
        "several/counted" "several/read" "several/shared" "several/free" "several/set" "redisson/ok";
    SEVERAL_ACQUIRE_FENCED = "several/acquire_fenced":
        "several/counted" "several/read" "several/shared" "several/free" "several/counters"
        "several/count" "several/set" "redisson/number";
    SEVERAL_CONFIRM = "several/confirm":
        "several/counted" "several/read" "several/owned" "several/counters" "several/confirm";
    SEVERAL_EXTEND = "several/extend":
        "several/all" "several/read" "several/owned" "several/extend";
    SEVERAL_RELEASE = "several/release":
        "several/all" "several/read" "several/find" "plain/turn" "several/delete" "several/publish"
        "several/turns" "several/subscribers";
    SEVERAL_SHORTEN = "several/shorten":
        "several/all" "several/read" "several/find" "several/shorten" "several/publish"
        "several/subscribers";

    FAIR_ENTER = "fair/enter": "fair/begin" "fair/presence" "fair/enter" "fair/end";
    FAIR_REFRESH = "fair/refresh":
        "fair/begin" "fair/if_present" "fair/presence" "fair/end_if" "fair/end";
    FAIR_LEAVE = "fair/leave": "fair/begin" "fair/leave" "fair/end";
    FAIR_INSPECT = "fair/inspect": "fair/begin" "fair/end";

    REDISSON_ACQUIRE = "redisson/acquire":
        "redisson/read" "redisson/free" "redisson/set" "redisson/ok";
    REDISSON_ACQUIRE_FENCED = "redisson/acquire_fenced":
        "redisson/read" "redisson/free" "fencing/read" "fencing/count" "redisson/set"
        "redisson/number";
    REDISSON_CONFIRM = "redisson/confirm":
        "redisson/read" "redisson/owned" "fencing/read" "fencing/confirm";
    REDISSON_EXTEND = "redisson/extend": "redisson/read" "redisson/owned" "extend";
    REDISSON_RELEASE = "redisson/release":
        "redisson/read" "redisson/owned" "delete" "redisson/publish" "subscribers";
    REDISSON_SHORTEN = "redisson/shorten":
        "redisson/read" "redisson/owned" "shorten" "redisson/publish" "subscribers";
}

impl Script {
    /// Returns the script of an operation; `None` for a single command instead of a script, which acquires a plain
    /// lock.
    #[inline]
    pub(super) fn of(op: &Op) -> Option<Self> {
        Some(match (op.spec.dialect(), op.spec.mode(), op.action) {
            (_, _, Action::Downgrade) => SHARED_DOWNGRADE,
            (_, _, Action::Withdraw { .. }) => SHARED_WITHDRAW,

            // Locks of several keys are plain and exclusive.
            (_, _, action) if op.spec.has_several_keys() => match action {
                Action::Acquire { fenced: true, .. } => SEVERAL_ACQUIRE_FENCED,
                Action::Extend { .. } => SEVERAL_EXTEND,
                Action::Confirm { .. } => SEVERAL_CONFIRM,
                Action::Release { min_hold: None } => SEVERAL_RELEASE,
                Action::Release { min_hold: Some(_) } => SEVERAL_SHORTEN,
                _ => SEVERAL_ACQUIRE,
            },
            (Dialect::Plain, Mode::Exclusive, action) => match action {
                Action::Acquire { fenced: true, .. } => PLAIN_TAKE_FENCED,
                Action::Acquire { met_shared: true, .. } => PLAIN_TAKE,
                Action::Extend { .. } => PLAIN_EXTEND,
                Action::Confirm { .. } => PLAIN_CONFIRM,
                Action::Release { min_hold: None } => PLAIN_RELEASE,
                Action::Release { min_hold: Some(_) } => PLAIN_SHORTEN,
                _ => return None,
            },
            (Dialect::Plain, Mode::Shared { .. }, action) => match action {
                Action::Extend { .. } => SHARED_EXTEND,
                Action::Release { min_hold: None } => SHARED_RELEASE,
                Action::Release { min_hold: Some(_) } => SHARED_SHORTEN,
                _ => SHARED_ACQUIRE,
            },
            (Dialect::Redisson, _, action) => match action {
                Action::Acquire { fenced: true, .. } => REDISSON_ACQUIRE_FENCED,
                Action::Extend { .. } => REDISSON_EXTEND,
                Action::Confirm { .. } => REDISSON_CONFIRM,
                Action::Release { min_hold: None } => REDISSON_RELEASE,
                Action::Release { min_hold: Some(_) } => REDISSON_SHORTEN,
                _ => REDISSON_ACQUIRE,
            },
        })
    }

    /// Returns the index of the script in [`ALL`](Self::ALL).
    pub(super) const fn index(self) -> usize {
        self.index
    }

    /// Returns the kind of the lock and the operation, such as `plain/release`.
    #[cfg(any(test, feature = "unstable-simulation"))]
    pub(super) const fn name(self) -> &'static str {
        self.name
    }

    pub(super) const fn source(self) -> &'static str {
        self.source
    }

    /// Returns the commands that the script calls, in lower case.
    pub(super) fn commands(self) -> Vec<String> {
        let calls = self.source.split("call('").skip(1);
        let names = calls.filter_map(|call| call.split_once('\'')).map(|(name, _)| name);
        let mut commands = Vec::new();
        for name in names.map(str::to_ascii_lowercase) {
            if !commands.contains(&name) {
                commands.push(name);
            }
        }
        commands
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_script_is_at_its_index() {
        for (index, script) in Script::ALL.into_iter().enumerate() {
            assert_eq!(script.index(), index, "{script:?}");
        }
        let names: HashSet<_> = Script::ALL.into_iter().map(Script::name).collect();
        assert_eq!(names.len(), Script::COUNT);
    }

    #[test]
    fn a_script_knows_the_commands_that_it_calls() {
        assert_eq!(PLAIN_EXTEND.commands(), ["get", "hget", "pttl", "pexpire"]);
        let acquire = ["hexists", "exists", "pttl", "pexpire", "hset", "del"];
        assert_eq!(REDISSON_ACQUIRE.commands(), acquire);
    }

    /// Only the owner releases: no script deletes or extends a key without comparing the token.
    #[test]
    fn every_script_that_changes_a_key_compares_the_token_first() {
        let comparisons = [
            (
                "if value ~= ARGV[1] then return 0",
                vec![PLAIN_CONFIRM, PLAIN_EXTEND, PLAIN_RELEASE, PLAIN_SHORTEN],
            ),
            (
                "if owned ~= 1 then return 0",
                vec![REDISSON_CONFIRM, REDISSON_EXTEND, REDISSON_RELEASE, REDISSON_SHORTEN],
            ),
        ];
        for (comparison, scripts) in comparisons {
            for script in scripts {
                let compare = script.source().find(comparison).unwrap();
                for change in ["'DEL'", "'PEXPIRE'", "'PUBLISH'", "'SET'"] {
                    let at = script.source().find(change);
                    assert!(at.is_none_or(|at| at > compare), "{script:?}");
                }
            }
        }
    }

    /// The scripts contain the duration of a turn as a number.
    #[test]
    fn the_scripts_and_the_nodes_agree_on_the_turn() {
        let turn = format!("/ 1000) + {})", crate::node::TURN.as_millis());
        for script in [PLAIN_RELEASE, SHARED_RELEASE, SEVERAL_RELEASE] {
            assert!(script.source().contains(&turn), "{script:?}");
        }
    }
}
