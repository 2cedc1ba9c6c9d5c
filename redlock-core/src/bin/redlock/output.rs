//! Tables, colours and times.

use std::fmt::{self, Display, Write as _};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::failure::Failure;

/// A colour of a terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
}

/// Whether colours are printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    /// Colours are for a terminal, unless the environment variable `NO_COLOR` has a value.
    pub(crate) fn of_stdout() -> Self {
        let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self(io::stdout().is_terminal() && !is_unwanted)
    }

    pub(crate) fn text(self, colour: Colour, text: impl Display) -> String {
        let number = match colour {
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
        };
        if self.0 { format!("\x1b[{number}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// Prints a text on standard output. A reader that has gone away, as that of `redlock status a | true`, is no error: the exit
/// status is an answer, too.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Returns whether nobody can read the standard output any more: the other end of its pipe is closed.
pub(crate) fn has_no_reader() -> bool {
    let output = io::stdout();
    let mut pipe = [PollFd::new(&output, PollFlags::empty())];
    // The kernel reports the end of the other side although no event is asked for. A time-out of zero does not wait.
    let is_polled = poll(&mut pipe, Some(&Timespec::default())).is_ok();
    is_polled && pipe[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&format!("{value}\n"))
}

/// Rows with columns that are as wide as their longest cell. The first row has the titles.
#[derive(Debug)]
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new<const N: usize>(titles: [&str; N]) -> Self {
        Self(vec![titles.map(str::to_owned).to_vec()])
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.push(Vec::from(cells));
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        for row in &self.0 {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                write!(line, "{cell:width$}  ")?;
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Returns a cell; `-` for a value that is not known.
pub(crate) fn cell(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns a time as people read it: with one unit, and one digit behind the point up to 10.
pub(crate) fn short(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        _ if seconds < 0.000_999_5 => (seconds * 1e6, "us"),
        _ if seconds < 0.9995 => (seconds * 1e3, "ms"),
        _ if seconds < 120.0 => (seconds, "s"),
        _ if seconds < 7200.0 => (seconds / 60.0, "m"),
        _ if seconds < 172_800.0 => (seconds / 3600.0, "h"),
        _ => (seconds / 86_400.0, "d"),
    };
    if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// Returns the age of an event whose time is known to the second.
pub(crate) fn age(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds}s"),
        _ => short(time),
    }
}

/// Returns a time of the wall clock in UTC, to the second: `2026-11-29T08:30:00Z`.
pub(crate) fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of the year 0, in eras of 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns a time of the wall clock in seconds since 1970, for JSON.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_one_unit() {
        for (micros, text) in [
            (0, "0.0us"),
            (87, "87us"),
            (1_000, "1.0ms"),
            (21_400, "21ms"),
            (999_400, "999ms"),
            (21_400_000, "21s"),
            (119_000_000, "119s"),
            (121_000_000, "2.0m"),
            (7_300_000_000, "2.0h"),
            (200_000_000_000, "2.3d"),
        ] {
            assert_eq!(short(Duration::from_micros(micros)), text);
        }
    }

    /// A tenth of a second would say more than is known.
    #[test]
    fn an_age_has_whole_seconds() {
        for (millis, text) in
            [(0, "0s"), (999, "0s"), (3_400, "3s"), (119_999, "119s"), (130_000, "2.2m")]
        {
            assert_eq!(age(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_time_is_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_796_000_000, "2026-11-30T00:53:20Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn the_columns_of_a_table_are_aligned() {
        let mut table = Table::new(["A", "LONG", "B"]);
        table.row(["1".into(), "2".into(), "3".into()]);
        table.row(["wide".into(), "x".into(), String::new()]);
        assert_eq!(table.to_string(), "A     LONG  B\n1     2     3\nwide  x\n");
    }
}
