//! The events of a history, one line each.

use std::fmt;
use std::time::Duration;

/// One event of a history.
///
/// A line consists of `at`, `process`, `number`, a word for the kind of event, and the fields of that kind,
/// separated by tabs. A field that may contain tabs comes last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The time of the event, on the clock of [`monotonic_nanos`](super::monotonic_nanos).
    pub at: u64,
    /// The id of the process.
    pub process: u32,
    /// The number of the process's attempt that the event belongs to; zero for none.
    pub number: u64,
    /// The kind of event.
    pub what: What,
}

/// With whom a holder shares its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// With nobody.
    Exclusive,
    /// With any number of readers.
    Readers,
    /// With other holders of permits, so that there are at most this many in all.
    Permits(u32),
}

impl Sharing {
    /// Returns whether two holders may have the lock at the same time.
    pub fn allows(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Readers, Self::Readers) | (Self::Permits(_), Self::Permits(_))
        )
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "exclusive" => Some(Self::Exclusive),
            "readers" => Some(Self::Readers),
            permits => permits.parse().ok().map(Self::Permits),
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Readers => f.write_str("readers"),
            Self::Permits(permits) => permits.fmt(f),
        }
    }
}

/// The kind of an event, with its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The caller requested a lock.
    Asked {
        /// The longest time for the attempt: the wait time, and the nodes' timeout for the last reply.
        within: Duration,
        /// The key of the lock.
        key: String,
    },
    /// The library granted the lock to the caller.
    Granted {
        /// The time until which the holder may rely on the lock; [`u64::MAX`] for a holder that relies on it
        /// until it releases it.
        believed_until: u64,
        /// The number of the fencing token; `None` without fencing.
        fencing: Option<i64>,
        /// With whom the holder shares the lock.
        sharing: Sharing,
        /// The key of the lock.
        key: String,
    },
    /// The holder turned an exclusive lock into a shared one, or back.
    Changed {
        /// With whom the holder shares the lock from now on.
        sharing: Sharing,
    },
    /// The holder checked its guard again, and the time until which it may rely on the lock has changed: a
    /// renewal moves it later, a loss earlier.
    Believed {
        /// The new time.
        until: u64,
    },
    /// The holder began to release the lock, and no longer relies on it.
    Released,
    /// The acquisition failed.
    Refused {
        /// The reason.
        reason: String,
    },
    /// The caller dropped its request.
    Abandoned,
    /// The tasks of the process did not run: the process was stopped, or had to wait for a processor.
    HeldUp {
        /// The beginning of the pause; the event's time is its end.
        since: u64,
    },
    /// A fault is over.
    Fault {
        /// The beginning of the fault; the event's time is its end.
        since: u64,
        /// The name of the fault.
        name: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, process, number, what } = self;
        write!(f, "{at}\t{process}\t{number}\t")?;
        match what {
            What::Asked { within, key } => write!(f, "asked\t{}\t{key}", within.as_micros()),
            What::Granted { believed_until, fencing, sharing, key } => {
                let fencing = fencing.map_or("-".to_owned(), |fencing| fencing.to_string());
                write!(f, "granted\t{believed_until}\t{fencing}\t{sharing}\t{key}")
            }
            What::Changed { sharing } => write!(f, "changed\t{sharing}"),
            What::Believed { until } => write!(f, "believed\t{until}"),
            What::Released => f.write_str("released"),
            What::Refused { reason } => write!(f, "refused\t{reason}"),
            What::Abandoned => f.write_str("abandoned"),
            What::HeldUp { since } => write!(f, "held-up\t{since}"),
            What::Fault { since, name } => write!(f, "fault\t{since}\t{name}"),
        }
    }
}

impl Event {
    /// Parses a line; `None` if it is not an event.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(5, '\t');
        let mut field = || fields.next();
        let (at, process) = (field()?.parse().ok()?, field()?.parse().ok()?);
        let (number, word) = (field()?.parse().ok()?, field()?);
        let rest = field().unwrap_or_default();
        let what = match word {
            "asked" => {
                let (within, key) = rest.split_once('\t')?;
                let within = Duration::from_micros(within.parse().ok()?);
                What::Asked { within, key: key.to_owned() }
            }
            "granted" => {
                let (believed_until, rest) = rest.split_once('\t')?;
                let (fencing, rest) = rest.split_once('\t')?;
                let (sharing, key) = rest.split_once('\t')?;
                let sharing = Sharing::parse(sharing)?;
                let fencing = if fencing == "-" { None } else { Some(fencing.parse().ok()?) };
                let believed_until = believed_until.parse().ok()?;
                What::Granted { believed_until, fencing, sharing, key: key.to_owned() }
            }
            "changed" => What::Changed { sharing: Sharing::parse(rest)? },
            "believed" => What::Believed { until: rest.parse().ok()? },
            "released" => What::Released,
            "refused" => What::Refused { reason: rest.to_owned() },
            "abandoned" => What::Abandoned,
            "held-up" => What::HeldUp { since: rest.parse().ok()? },
            "fault" => {
                let (since, name) = rest.split_once('\t')?;
                What::Fault { since: since.parse().ok()?, name: name.to_owned() }
            }
            _ => return None,
        };
        Some(Self { at, process, number, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_survives_writing_and_parsing() {
        let key = || "a key with\ttab".to_owned();
        for what in [
            What::Asked { within: Duration::from_micros(1500), key: key() },
            What::Granted {
                believed_until: u64::MAX,
                fencing: None,
                sharing: Sharing::Permits(3),
                key: key(),
            },
            What::Granted {
                believed_until: 7,
                fencing: Some(42),
                sharing: Sharing::Exclusive,
                key: key(),
            },
            What::Changed { sharing: Sharing::Readers },
            What::Believed { until: 9 },
            What::Released,
            What::Refused { reason: "held by another holder".to_owned() },
            What::Abandoned,
            What::HeldUp { since: 3 },
            What::Fault { since: 3, name: "freeze of 2".to_owned() },
        ] {
            let event = Event { at: 1, process: 2, number: 3, what };
            assert_eq!(Event::parse(&event.to_string()), Some(event));
        }
    }

    #[test]
    fn other_lines_are_not_parsed() {
        for line in
            ["", "1\t2\t3", "1\t2\t3\tstolen", "1\t2\t3\tgranted\t5\t-", "x\t2\t3\treleased"]
        {
            assert_eq!(Event::parse(line), None, "{line}");
        }
    }
}
