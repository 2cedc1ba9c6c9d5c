//! The Lua scripts of the operations that need more than one command.
//!
//! The server runs each script as one atomic step (Redis documentation, "Scripting with Lua"). The texts
//! are constant, and data is passed in KEYS and ARGV, so that the server compiles each script once. KEYS are the keys of
//! the lock, and behind them the fencing counters. The first line of each file names the arguments.
//!
//! | script | replies |
//! |---|---|
//! | `acquire`, `share`, `redisson/acquire` | OK, or the fencing number as text. If refused, a list of the index of the first key that is not free and the time to live of its lock in milliseconds. A third item is the [id](crate::HolderId) of the holder as text if one holder has the lock alone, a number if only shared holders refuse an exclusive lock, and otherwise an empty text. A fourth item is the [label](crate::OwnerLabel) of a holder, or an empty text. `acquire` without a lease looks up a refusal, and grants nothing |
//! | `extend`, `confirm`, `downgrade`, `withdraw`, and those of Redisson | 1 |
//! | `release`, `redisson/release` | 1 + the number of notified subscribers |
//! | `turn` | 1, or 0 if the lock is not free |
//! | `look`, `redisson/look` | a list that begins with 0 for a free lock; 1, and the id, the label, the seconds and the time to live of the holder; 2, the number of waiting writers, and a list with four items for each holder that shares the lock, in the order of their ends; or the code of a value that is no lock |
//! | `break`, `redisson/break` | a list that begins with 1, and the rest of the removed holder's lease in milliseconds; 0 if the key does not have the holder; or the code of a value that is no lock |
//! | `rights` | a list: the name of each command that the server refuses, and its error |
//! | `fair` | the time of the server in microseconds as text, 1 if the process was present and otherwise 0, the first ticket or an empty text, and for how many microseconds the process of that ticket is still present |
//!
//! A time to live of -1 means that the key has none, and -2 that there is no key. Every script that compares the owner
//! replies 0 if another owner holds the lock or the lock is free. Every script replies -3 for a key that is not a lock of
//! the dialect, and `look` and `break` reply -5 for a lock with more holders than they read.

use crate::lock::Dialect;
use crate::node::{Action, Op};

/// Defines the scripts, each by its name and its files.
macro_rules! scripts {
    ($($id:ident = $name:literal: $($file:literal)+;)+) => {
        /// A script.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Script { $($id),+ }

        impl Script {
            /// All scripts, each at its index.
            pub(super) const ALL: [Self; [$($name),+].len()] = [$(Self::$id),+];

            /// Returns the name, such as `redisson/release`.
            #[cfg(any(test, feature = "unstable-simulation"))]
            pub(super) const fn name(self) -> &'static str {
                match self { $(Self::$id => $name),+ }
            }

            pub(super) const fn source(self) -> &'static str {
                match self { $(Self::$id => concat!($(include_str!(concat!($file, ".lua"))),+)),+ }
            }
        }
    };
}

scripts! {
    Acquire = "acquire": "prelude" "counters" "acquire";
    Share = "share": "share_quick" "prelude" "share";
    Extend = "extend": "extend_quick" "prelude" "extend";
    Confirm = "confirm": "prelude" "confirm";
    Release = "release": "release_quick" "prelude" "turn" "release";
    Turn = "turn": "prelude" "turn" "give_turn";
    Downgrade = "downgrade": "prelude" "downgrade";
    Withdraw = "withdraw": "prelude" "withdraw";
    Look = "look": "prelude" "look";
    Break = "break": "prelude" "break";
    Fair = "fair": "fair";
    Rights = "rights": "rights";
    RedissonAcquire = "redisson/acquire": "counters" "redisson/acquire";
    RedissonExtend = "redisson/extend": "redisson/owned" "redisson/extend";
    RedissonConfirm = "redisson/confirm": "redisson/owned" "redisson/confirm";
    RedissonRelease = "redisson/release": "redisson/owned" "redisson/release";
    RedissonLook = "redisson/look": "redisson/only_owner" "redisson/look";
    RedissonBreak = "redisson/break": "redisson/only_owner" "redisson/break";
}

impl Script {
    /// Returns the script of an operation; `None` for a single command instead of a script, which acquires a plain
    /// lock.
    #[inline]
    pub(super) fn of(op: &Op) -> Option<Self> {
        Some(match (op.spec.dialect(), op.action) {
            (Dialect::Plain, Action::Acquire { fenced, ask, .. }) => {
                if op.spec.mode().is_shared() {
                    Self::Share
                } else if fenced || ask.met_marks || op.spec.has_several_keys() {
                    Self::Acquire
                } else {
                    return None;
                }
            }
            (Dialect::Plain, Action::Extend { .. }) => Self::Extend,
            (Dialect::Plain, Action::Confirm { .. }) => Self::Confirm,
            (Dialect::Plain, Action::Release { .. }) => Self::Release,
            (_, Action::Downgrade) => Self::Downgrade,
            (_, Action::Withdraw { .. }) => Self::Withdraw,
            (Dialect::Redisson, Action::Acquire { .. }) => Self::RedissonAcquire,
            (Dialect::Redisson, Action::Extend { .. }) => Self::RedissonExtend,
            (Dialect::Redisson, Action::Confirm { .. }) => Self::RedissonConfirm,
            (Dialect::Redisson, Action::Release { .. }) => Self::RedissonRelease,
        })
    }

    /// Returns the commands that the script calls, in lower case.
    pub(super) fn commands(self) -> Vec<String> {
        let calls = self.source().split("call('").skip(1);
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::lock::Mark;

    #[test]
    fn every_script_is_at_its_index() {
        for (index, script) in Script::ALL.into_iter().enumerate() {
            assert_eq!(script as usize, index, "{script:?}");
        }
        let names: HashSet<_> = Script::ALL.into_iter().map(Script::name).collect();
        assert_eq!(names.len(), Script::ALL.len());
    }

    #[test]
    fn a_script_knows_the_commands_that_it_calls() {
        assert_eq!(Script::RedissonExtend.commands(), ["hexists", "pttl", "pexpire"]);
        let fair = [
            "time",
            "zrangebyscore",
            "zrange",
            "zrem",
            "zscore",
            "pexpireat",
            "zadd",
            "del",
            "publish",
        ];
        assert_eq!(Script::Fair.commands(), fair);
    }

    /// The scripts contain the life time of a mark and the duration of a turn as numbers.
    #[test]
    fn the_scripts_and_the_nodes_agree_on_marks_and_turns() {
        let (mark, turn) = (Mark::LIFE_TIME.as_millis(), crate::node::TURN.as_millis());
        let constants = format!("local MARK, TURN = {mark}, {turn}\n");
        assert!(Script::Release.source().contains(&constants));
    }
}
