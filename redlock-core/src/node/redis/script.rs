//! The operations that are more than one command.

#[cfg(doc)]
use super::fencing;
use super::{plain, redisson};
use crate::node::Dialect;

/// What a server runs as one: nothing comes in between (Redis documentation, "Scripting with Lua").
/// The texts are constant, data travels in KEYS and ARGV, so that each is compiled once.
///
/// All that answer for an owner take its token first, and answer a whole number: 0 if the lock is
/// not its own, -3 for a key of another type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// Who holds the lock that was refused? See [`plain::INSPECT`].
    PlainInspect,
    /// Number it and set it, or say who holds it. See [`plain::FENCED`].
    PlainFenced,
    /// Write a number back, if it is ours. See [`fencing`].
    PlainConfirm,
    PlainExtend,
    /// Remove it, if it is ours, and tell those who wait: one more than those who listened. That
    /// nobody may be told (ACL) does not undo the release.
    PlainRelease,
    /// As release, but instead of removing it let it run out after the milliseconds that are the
    /// second argument, if that is sooner.
    PlainShorten,
    /// Set it, or say who holds it. See [`redisson::ACQUIRE`].
    RedissonAcquire,
    RedissonFenced,
    RedissonConfirm,
    RedissonExtend,
    /// As the plain one; the last argument is the channel to announce it on.
    RedissonRelease,
    RedissonShorten,
}

impl Script {
    pub(super) const ALL: [Self; 12] = [
        Self::PlainInspect,
        Self::PlainFenced,
        Self::PlainConfirm,
        Self::PlainExtend,
        Self::PlainRelease,
        Self::PlainShorten,
        Self::RedissonAcquire,
        Self::RedissonFenced,
        Self::RedissonConfirm,
        Self::RedissonExtend,
        Self::RedissonRelease,
        Self::RedissonShorten,
    ];

    /// Lengthens, to the milliseconds that are the second argument, if it is ours: 1.
    pub(super) const fn extend(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Plain => Self::PlainExtend,
            Dialect::Redisson => Self::RedissonExtend,
        }
    }

    /// Writes the number that is the second argument back to the second key, if it is ours: 1.
    pub(super) const fn confirm(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Plain => Self::PlainConfirm,
            Dialect::Redisson => Self::RedissonConfirm,
        }
    }

    pub(super) const fn source(self) -> &'static str {
        match self {
            Self::PlainInspect => plain::INSPECT,
            Self::PlainFenced => plain::FENCED,
            Self::PlainConfirm => plain::CONFIRM,
            Self::PlainExtend => plain::EXTEND,
            Self::PlainRelease => plain::RELEASE,
            Self::PlainShorten => plain::SHORTEN,
            Self::RedissonAcquire => redisson::ACQUIRE,
            Self::RedissonFenced => redisson::FENCED,
            Self::RedissonConfirm => redisson::CONFIRM,
            Self::RedissonExtend => redisson::EXTEND,
            Self::RedissonRelease => redisson::RELEASE,
            Self::RedissonShorten => redisson::SHORTEN,
        }
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// The commands that it calls, in lower case.
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

/// The end of a release: tells those who wait on a channel.
macro_rules! announce {
    ($channel:literal) => {
        concat!(
            "local listeners = redis.pcall('PUBLISH', ",
            $channel,
            ", '0')
if type(listeners) ~= 'number' then return 1 end
return 1 + listeners"
        )
    };
}
pub(super) use announce;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_stands_at_its_index() {
        for (index, script) in Script::ALL.into_iter().enumerate() {
            assert_eq!(script.index(), index);
        }
    }

    #[test]
    fn a_script_knows_what_it_calls() {
        assert_eq!(Script::PlainExtend.commands(), ["get", "pttl", "pexpire"]);
        assert_eq!(Script::PlainRelease.commands(), ["get", "del", "publish"]);
        let acquire = ["hexists", "exists", "pttl", "pexpire", "hset", "del"];
        assert_eq!(Script::RedissonAcquire.commands(), acquire);
    }

    /// Invariant 2: no script removes or lengthens anything without the comparison.
    #[test]
    fn every_script_that_changes_something_compares_first() {
        use Script::{
            PlainConfirm, PlainExtend, PlainRelease, PlainShorten, RedissonConfirm, RedissonExtend,
            RedissonRelease, RedissonShorten,
        };

        for (comparison, scripts) in [
            (
                "if value ~= ARGV[1] then return 0",
                [PlainConfirm, PlainExtend, PlainRelease, PlainShorten],
            ),
            (
                "if owned ~= 1 then return 0",
                [RedissonConfirm, RedissonExtend, RedissonRelease, RedissonShorten],
            ),
        ] {
            for script in scripts {
                let source = script.source();
                let compare = source.find(comparison).unwrap();
                for change in ["'DEL'", "'PEXPIRE'", "'PUBLISH'", "'SET'"] {
                    assert!(source.find(change).is_none_or(|at| at > compare), "{script:?}");
                }
            }
        }
    }
}
