//! What happened, a line for each event.

use std::fmt;
use std::time::Duration;

/// Something that happened, as it is written to a history.
///
/// A line is `at`, `process`, `number`, a word, and what belongs to the word, separated by tabs. What
/// may contain anything comes last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When, by [`monotonic_nanos`](super::monotonic_nanos).
    pub at: u64,
    /// The process that it happened to.
    pub process: u32,
    /// Which attempt of the process it belongs to; zero for none.
    pub number: u64,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A lock was asked for.
    Asked {
        /// How long that may take: the time that the caller is willing to wait, and that the nodes
        /// have for their last answer.
        within: Duration,
        /// What is to be locked.
        key: String,
    },
    /// The caller was told that it holds the lock.
    Granted {
        /// Until when it may believe that; the end of time for those who believe until they leave.
        believed_until: u64,
        /// The number to show to what the lock guards, where there is one.
        fencing: Option<i64>,
        /// What is locked.
        key: String,
    },
    /// The holder looked again, and may believe until another time: later by renewal, earlier where
    /// the lock was lost.
    Believed {
        /// Until when.
        until: u64,
    },
    /// The holder began to release the lock, and believes no longer.
    Released,
    /// The lock was not granted.
    Refused {
        /// Why.
        reason: String,
    },
    /// The caller dropped its request.
    Abandoned,
    /// The tasks of the process did not run: it was stopped, or had to wait for a processor.
    HeldUp {
        /// Since when.
        since: u64,
    },
    /// A fault was made, and is over.
    Fault {
        /// Since when.
        since: u64,
        /// Which.
        name: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, process, number, what } = self;
        write!(f, "{at}\t{process}\t{number}\t")?;
        match what {
            What::Asked { within, key } => write!(f, "asked\t{}\t{key}", within.as_micros()),
            What::Granted { believed_until, fencing: Some(fencing), key } => {
                write!(f, "granted\t{believed_until}\t{fencing}\t{key}")
            }
            What::Granted { believed_until, fencing: None, key } => {
                write!(f, "granted\t{believed_until}\t-\t{key}")
            }
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
    /// Reads a line; `None` if it is none.
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
                let (fencing, key) = rest.split_once('\t')?;
                let fencing = if fencing == "-" { None } else { Some(fencing.parse().ok()?) };
                let believed_until = believed_until.parse().ok()?;
                What::Granted { believed_until, fencing, key: key.to_owned() }
            }
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
    fn what_is_written_is_read() {
        let key = || "a key with\ttab".to_owned();
        for what in [
            What::Asked { within: Duration::from_micros(1500), key: key() },
            What::Granted { believed_until: u64::MAX, fencing: None, key: key() },
            What::Granted { believed_until: 7, fencing: Some(42), key: key() },
            What::Believed { until: 9 },
            What::Released,
            What::Refused { reason: "held by another".to_owned() },
            What::Abandoned,
            What::HeldUp { since: 3 },
            What::Fault { since: 3, name: "freeze of 2".to_owned() },
        ] {
            let event = Event { at: 1, process: 2, number: 3, what };
            assert_eq!(Event::parse(&event.to_string()), Some(event));
        }
    }

    #[test]
    fn what_is_no_event_is_not_read() {
        for line in
            ["", "1\t2\t3", "1\t2\t3\tstolen", "1\t2\t3\tgranted\t5\t-", "x\t2\t3\treleased"]
        {
            assert_eq!(Event::parse(line), None, "{line}");
        }
    }
}
