//! The Lua scripts of the operations that need more than one command.
//!
//! The server runs each script as one atomic step (Redis documentation, "Scripting with Lua"). The texts
//! are constant, and data is passed in KEYS and ARGV, so that the server compiles each script once.
//!
//! A script is assembled from the pieces in this folder. Every script that compares the owner takes its
//! token as the first argument. It returns 0 if another owner holds the lock or the lock is free, and -3
//! for a key of another type.

use std::fmt;

use crate::lock::Dialect;
use crate::node::Action;

/// A script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Script {
    index: usize,
    name: &'static str,
    source: &'static str,
}

/// The scripts of a dialect.
#[derive(Debug)]
pub(super) struct Scripts {
    /// Sets the lock and returns OK. The second argument is the time to live in milliseconds. If the key
    /// exists, returns its time to live: -1 for none. `None` if the dialect uses a single command instead.
    pub(super) acquire: Option<Script>,
    /// Like `acquire`, but increments the fencing counter, which is the second key, and returns the number
    /// as text.
    pub(super) acquire_fenced: Script,
    /// Returns the time to live of the key: -1 for none, -2 for no key. The token of the holder does not
    /// leave the server. `None` if `acquire` returns the time to live.
    pub(super) inspect: Option<Script>,
    /// Raises the fencing counter to the second argument, and returns 1.
    pub(super) confirm: Script,
    /// Extends the time to live to the second argument, in milliseconds, and returns 1. Never shortens it.
    pub(super) extend: Script,
    /// Deletes the lock and publishes the release. The last argument is the channel, unless the channel has
    /// the name of the key. Returns 1 + the number of subscribers.
    pub(super) release: Script,
    /// Like `release`, but instead of deleting the lock shortens its time to live to the second argument.
    pub(super) shorten: Script,
}

/// Assembles a script from its pieces.
macro_rules! script {
    ($index:literal, $name:literal: $($piece:literal)+) => {
        Script {
            index: $index,
            name: $name,
            source: concat!($(include_str!(concat!($piece, ".lua"))),+),
        }
    };
}

const PLAIN: Scripts = Scripts {
    acquire: None,
    acquire_fenced: script!(0, "plain/acquire_fenced":
        "plain/read" "plain/free" "fencing/read" "fencing/count" "plain/set"),
    inspect: Some(script!(1, "plain/inspect": "plain/read" "plain/inspect")),
    confirm: script!(2, "plain/confirm":
        "plain/read" "plain/owned" "fencing/read" "fencing/confirm"),
    extend: script!(3, "plain/extend": "plain/read" "plain/owned" "extend"),
    release: script!(4, "plain/release":
        "plain/read" "plain/owned" "delete" "plain/publish" "subscribers"),
    shorten: script!(5, "plain/shorten":
        "plain/read" "plain/owned" "shorten" "plain/publish" "subscribers"),
};

const REDISSON: Scripts = Scripts {
    acquire: Some(script!(6, "redisson/acquire":
        "redisson/read" "redisson/free" "redisson/set" "redisson/ok")),
    acquire_fenced: script!(7, "redisson/acquire_fenced":
        "redisson/read" "redisson/free" "fencing/read" "fencing/count" "redisson/set"
        "redisson/number"),
    inspect: None,
    confirm: script!(8, "redisson/confirm":
        "redisson/read" "redisson/owned" "fencing/read" "fencing/confirm"),
    extend: script!(9, "redisson/extend": "redisson/read" "redisson/owned" "extend"),
    release: script!(10, "redisson/release":
        "redisson/read" "redisson/owned" "delete" "redisson/publish" "subscribers"),
    shorten: script!(11, "redisson/shorten":
        "redisson/read" "redisson/owned" "shorten" "redisson/publish" "subscribers"),
};

/// The scripts of the [fair queues](super::fair).
#[derive(Debug)]
pub(super) struct FairScripts {
    pub(super) enter: Script,
    pub(super) refresh: Script,
    pub(super) leave: Script,
    pub(super) inspect: Script,
}

/// Each takes the process and the length of its presence in microseconds as the first arguments. Returns the time of
/// the server in microseconds as text, 1 if the process was present and otherwise 0, the first ticket or an empty
/// text, and for how many microseconds the process of that ticket is still present.
pub(super) const FAIR: FairScripts = FairScripts {
    // The further arguments are pairs of a ticket and the microseconds that its caller has waited.
    enter: script!(12, "fair/enter":
        "fair/begin" "fair/presence" "fair/enter" "fair/end"),
    refresh: script!(13, "fair/refresh":
        "fair/begin" "fair/if_present" "fair/presence" "fair/end_if" "fair/end"),
    // The further arguments are tickets.
    leave: script!(14, "fair/leave": "fair/begin" "fair/leave" "fair/end"),
    inspect: script!(15, "fair/inspect": "fair/begin" "fair/end"),
};

impl Scripts {
    /// Returns the scripts of a dialect.
    pub(super) const fn of(dialect: Dialect) -> &'static Self {
        match dialect {
            Dialect::Plain => &PLAIN,
            Dialect::Redisson => &REDISSON,
        }
    }

    /// Returns the script of an action; `None` if the dialect uses a single command instead.
    pub(super) const fn of_action(&self, action: &Action) -> Option<Script> {
        match action {
            Action::Acquire { fenced: false, .. } => self.acquire,
            Action::Acquire { fenced: true, .. } => Some(self.acquire_fenced),
            Action::Extend { .. } => Some(self.extend),
            Action::Confirm { .. } => Some(self.confirm),
            Action::Release { min_hold: None } => Some(self.release),
            Action::Release { min_hold: Some(_) } => Some(self.shorten),
        }
    }

    const fn all(&self) -> [Option<Script>; 7] {
        let Self { acquire, acquire_fenced, inspect, confirm, extend, release, shorten } = self;
        [
            *acquire,
            Some(*acquire_fenced),
            *inspect,
            Some(*confirm),
            Some(*extend),
            Some(*release),
            Some(*shorten),
        ]
    }
}

impl Script {
    /// The number of scripts.
    pub(super) const COUNT: usize = 16;

    /// The scripts of all dialects and of the fair queues, each at its index.
    pub(super) const ALL: [Self; Self::COUNT] = {
        let mut all = [PLAIN.extend; Self::COUNT];
        let (mut dialect, dialects) = (0, [PLAIN.all(), REDISSON.all()]);
        while dialect < dialects.len() {
            let (mut script, scripts) = (0, dialects[dialect]);
            while script < scripts.len() {
                if let Some(script) = scripts[script] {
                    all[script.index] = script;
                }
                script += 1;
            }
            dialect += 1;
        }
        let FairScripts { enter, refresh, leave, inspect } = FAIR;
        let (mut script, fair) = (0, [enter, refresh, leave, inspect]);
        while script < fair.len() {
            all[fair[script].index] = fair[script];
            script += 1;
        }
        all
    };

    /// Returns the index of the script in [`ALL`](Self::ALL).
    pub(super) const fn index(self) -> usize {
        self.index
    }

    /// Returns the dialect and the operation, such as `plain/release`.
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
        assert_eq!(PLAIN.extend.commands(), ["get", "pttl", "pexpire"]);
        assert_eq!(PLAIN.release.commands(), ["get", "del", "publish"]);
        let acquire = ["hexists", "exists", "pttl", "pexpire", "hset", "del"];
        assert_eq!(REDISSON.acquire.unwrap().commands(), acquire);
    }

    /// Only the owner releases: no script deletes or extends a key without comparing the token.
    #[test]
    fn every_script_that_changes_a_key_compares_the_token_first() {
        let comparisons = [
            ("if value ~= ARGV[1] then return 0", PLAIN),
            ("if owned ~= 1 then return 0", REDISSON),
        ];
        for (comparison, Scripts { confirm, extend, release, shorten, .. }) in comparisons {
            for script in [confirm, extend, release, shorten] {
                let compare = script.source().find(comparison).unwrap();
                for change in ["'DEL'", "'PEXPIRE'", "'PUBLISH'", "'SET'"] {
                    let at = script.source().find(change);
                    assert!(at.is_none_or(|at| at > compare), "{script:?}");
                }
            }
        }
    }
}
