//! The Lua scripts of the operations that need more than one command.
//!
//! The server runs each script as one atomic step (Redis documentation, "Scripting with Lua"). The texts
//! are constant, and data is passed in KEYS and ARGV, so that the server compiles each script once. KEYS are the keys of
//! the lock, and behind them the fencing counters. The first line of each file names the arguments.
//!
//! | script | replies |
//! |---|---|
//! | `acquire`, `share`, `redisson/acquire` | OK, or the fencing number as text. If refused, a list of the index of the first key that is not free and the time to live of its lock in milliseconds, with a third item if only shared holders refuse the lock. `acquire` without a lease looks up a refusal, and grants nothing |
//! | `extend`, `confirm`, `downgrade`, `withdraw`, and those of Redisson | 1 |
//! | `release`, `redisson/release` | 1 + the number of notified subscribers |
//! | `fair` | the time of the server in microseconds as text, 1 if the process was present and otherwise 0, the first ticket or an empty text, and for how many microseconds the process of that ticket is still present |
//!
//! A time to live of -1 means that the key has none, and -2 that there is no key. Every script that compares the owner
//! replies 0 if another owner holds the lock or the lock is free. Every script replies -3 for a key that is not a lock of
//! the dialect.

use std::fmt;

use crate::lock::Dialect;
use crate::node::{Action, Op};

/// A script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Script {
    index: usize,
    name: &'static str,
    source: &'static str,
}

/// Defines the scripts, each by its name and its files.
macro_rules! scripts {
    ($($id:ident = $name:literal: $($file:literal)+;)+) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Index { $($id),+ }

        $(
            pub(super) const $id: Script = Script {
                index: Index::$id as usize,
                name: $name,
                source: concat!($(include_str!(concat!($file, ".lua"))),+),
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
    ACQUIRE = "acquire": "prelude" "counters" "acquire";
    SHARE = "share": "share_quick" "prelude" "share";
    EXTEND = "extend": "prelude" "extend";
    CONFIRM = "confirm": "prelude" "confirm";
    RELEASE = "release": "release_quick" "prelude" "release";
    DOWNGRADE = "downgrade": "prelude" "downgrade";
    WITHDRAW = "withdraw": "prelude" "withdraw";
    FAIR = "fair": "fair";
    REDISSON_ACQUIRE = "redisson/acquire": "counters" "redisson/acquire";
    REDISSON_EXTEND = "redisson/extend": "redisson/owned" "redisson/extend";
    REDISSON_CONFIRM = "redisson/confirm": "redisson/owned" "redisson/confirm";
    REDISSON_RELEASE = "redisson/release": "redisson/owned" "redisson/release";
}

impl Script {
    /// Returns the script of an operation; `None` for a single command instead of a script, which acquires a plain
    /// lock.
    #[inline]
    pub(super) fn of(op: &Op) -> Option<Self> {
        Some(match (op.spec.dialect(), op.action) {
            (Dialect::Plain, Action::Acquire { fenced, met_marks, .. }) => {
                if op.spec.mode().is_shared() {
                    SHARE
                } else if fenced || met_marks || op.spec.has_several_keys() {
                    ACQUIRE
                } else {
                    return None;
                }
            }
            (Dialect::Plain, Action::Extend { .. }) => EXTEND,
            (Dialect::Plain, Action::Confirm { .. }) => CONFIRM,
            (Dialect::Plain, Action::Release { .. }) => RELEASE,
            (_, Action::Downgrade) => DOWNGRADE,
            (_, Action::Withdraw { .. }) => WITHDRAW,
            (Dialect::Redisson, Action::Acquire { .. }) => REDISSON_ACQUIRE,
            (Dialect::Redisson, Action::Extend { .. }) => REDISSON_EXTEND,
            (Dialect::Redisson, Action::Confirm { .. }) => REDISSON_CONFIRM,
            (Dialect::Redisson, Action::Release { .. }) => REDISSON_RELEASE,
        })
    }

    /// Returns the index of the script in [`ALL`](Self::ALL).
    pub(super) const fn index(self) -> usize {
        self.index
    }

    /// Returns the name, such as `redisson/release`.
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
    use crate::lock::Mark;

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
        assert_eq!(REDISSON_EXTEND.commands(), ["hexists", "pttl", "pexpire"]);
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
        assert_eq!(FAIR.commands(), fair);
    }

    /// The scripts contain the life time of a mark and the duration of a turn as numbers.
    #[test]
    fn the_scripts_and_the_nodes_agree_on_marks_and_turns() {
        let (mark, turn) = (Mark::LIFE_TIME.as_millis(), crate::node::TURN.as_millis());
        let constants = format!("local MARK, TURN = {mark}, {turn}\n");
        assert!(RELEASE.source().contains(&constants));
    }
}
