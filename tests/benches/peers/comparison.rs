//! The sides of a comparison and their measurements.

use std::fmt::Display;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;

use crate::statistics::{Summary, figure, micros};
use crate::usage::Usage;

/// A side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The plain [floor](crate::floor).
    Plain,
    /// The batched [floor](crate::floor).
    Batched,
    /// This library.
    Ours,
    /// The crate rslock.
    Rslock,
    /// A side without a column of its own.
    Other(&'static str),
}

impl Side {
    /// The sides with a column of their own, in the order of the columns.
    pub(crate) const COLUMNS: [Self; 4] = [Self::Plain, Self::Batched, Self::Ours, Self::Rslock];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Batched => "batched",
            Self::Ours => "ours",
            Self::Rslock => "rslock",
            Self::Other(name) => name,
        }
    }
}

/// The result of one measurement.
pub(crate) trait Measurement {
    /// Returns the resources that were used.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    /// Returns the number by which the usage is divided; zero if the usage was not measured.
    fn count(&self) -> usize {
        0
    }

    fn failures(&self) -> usize {
        0
    }

    /// Returns the processor time of the client, in microseconds for each pair.
    fn client(&self) -> f64 {
        micros(self.usage().client) / self.count() as f64
    }

    /// Returns the processor time of the servers, in microseconds for each pair.
    fn server(&self) -> f64 {
        micros(self.usage().servers) / self.count() as f64
    }
}

/// Figures without a usage.
impl<const N: usize> Measurement for [f64; N] {}

const HEAD: [&str; 13] = [
    "work",
    "plain floor",
    "batched floor",
    "ours",
    "ours / plain",
    "ours / batched",
    "rslock",
    "ours / rslock",
    "client CPU us: plain, batched, ours, rslock",
    "server CPU us",
    "commands",
    "target",
    "met",
];

/// Prints the head of the table.
pub(crate) fn print_head() {
    println!("| {} |\n|{}", HEAD.join(" | "), "---|".repeat(HEAD.len()));
}

/// A target of a row.
pub(crate) enum Target<T> {
    /// The ratio of ours to a side is at least this.
    AtLeast(f64, Side),
    /// The ratio of ours to a side is at most this.
    AtMost(f64, Side),
    /// A figure of ours, which the text explains, is at most this.
    Limit(&'static str, fn(&T) -> f64, f64),
    NobodyFails,
}

/// A function that makes one measurement of one side.
pub(crate) type Contender<'a, T> = Box<dyn FnMut() -> LocalBoxFuture<'a, T> + 'a>;

/// The pause between two measurements, for background work of the first one to finish.
const SETTLE: Duration = Duration::from_millis(10);

/// The measurements of each side, by round.
pub(crate) struct Comparison<T>(pub(crate) Vec<(Side, Vec<T>)>);

/// Measures all sides in every round, so that other load on the machine affects all of them alike. Each round begins
/// with the next side. An additional first round is a warm-up and is discarded.
pub(crate) async fn compare<T>(
    rounds: usize,
    sides: Vec<(Side, Contender<'_, T>)>,
) -> Comparison<T> {
    let (sides, mut contenders): (Vec<_>, Vec<_>) = sides.into_iter().unzip();
    let mut measured: Vec<_> = sides.into_iter().map(|side| (side, Vec::new())).collect();
    for round in 0..=rounds {
        for turn in 0..contenders.len() {
            let side = (round + turn) % contenders.len();
            let figures = contenders[side]().await;
            if round > 0 {
                measured[side].1.push(figures);
            }
            tokio::time::sleep(SETTLE).await;
        }
    }
    Comparison(measured)
}

impl<T: Measurement> Comparison<T> {
    /// Returns the measurements of a side; none if it does not take part.
    fn of(&self, side: Side) -> &[T] {
        let found = self.0.iter().find(|(this, _)| *this == side);
        found.map_or(&[], |(_, measured)| measured)
    }

    pub(crate) fn summary(&self, side: Side, figure: impl Fn(&T) -> f64) -> Summary {
        Summary::of(self.of(side).iter().map(figure))
    }

    /// Returns the ratio of one side to another, computed for each round.
    pub(crate) fn ratio(&self, side: Side, base: Side, figure: impl Fn(&T) -> f64) -> Summary {
        let rounds = self.of(side).iter().zip(self.of(base));
        Summary::of(rounds.map(|(this, base)| figure(this) / figure(base)))
    }

    /// Describes the ratio of ours to a side without a column.
    pub(crate) fn beside(&self, base: Side, figure: impl Fn(&T) -> f64) -> String {
        let ratio = self.ratio(Side::Ours, base, &figure);
        format!("{ratio} of {}: {}", base.name(), self.summary(base, &figure))
    }

    /// Prints a row with one figure of each side, the ratios and the costs. The notes follow the figure of ours.
    pub(crate) fn print(
        &self,
        work: impl Display,
        figure: fn(&T) -> f64,
        notes: &[String],
        targets: &[Target<T>],
    ) {
        let failed = self.0.iter().map(|(side, measured)| (side, failures(measured)));
        let failed = failed.filter(|(_, failures)| *failures > 0);
        let failed = failed.map(|(side, failures)| format!("({failures} failed: {})", side.name()));
        let work: Vec<_> = [work.to_string()].into_iter().chain(failed).collect();
        let mut row = vec![work.join(" ")];
        let figures = Side::COLUMNS.map(|side| self.summary(side, figure).to_string());
        let ratios = Side::COLUMNS.map(|side| self.ratio(Side::Ours, side, figure).to_string());
        let [plain, batched, ours, rslock] = figures;
        let [to_plain, to_batched, _, to_rslock] = ratios;
        let ours = [&[ours], notes].concat().join("; ");
        row.extend([plain, batched, ours, to_plain, to_batched, rslock, to_rslock]);
        row.push(self.costs(|usage| micros(usage.client)));
        row.push(self.costs(|usage| micros(usage.servers)));
        row.push(self.costs(|usage| usage.commands as f64));
        let (mut all, mut missed) = (Vec::new(), Vec::new());
        for (words, is_met) in targets.iter().map(|target| self.check(target, figure)) {
            missed.extend((!is_met).then(|| words.clone()));
            all.push(words);
        }
        row.push(all.join(", "));
        row.push(match (all.is_empty(), missed.is_empty()) {
            (true, _) => String::new(),
            (false, true) => "yes".to_owned(),
            (false, false) => format!("**no**: {}", missed.join(", ")),
        });
        println!("| {} |", row.join(" | "));
    }

    /// Returns a target in words, and whether it is met.
    fn check(&self, target: &Target<T>, figure: fn(&T) -> f64) -> (String, bool) {
        match target {
            Target::AtLeast(limit, side) => {
                let ratio = self.ratio(Side::Ours, *side, figure).median;
                (format!(">= {limit}x {}", side.name()), ratio >= *limit)
            }
            Target::AtMost(limit, side) => {
                let ratio = self.ratio(Side::Ours, *side, figure).median;
                (format!("<= {limit}x {}", side.name()), ratio <= *limit)
            }
            Target::Limit(name, figure, limit) => {
                let median = self.summary(Side::Ours, figure).median;
                (format!("{name} <= {limit}"), median <= *limit)
            }
            Target::NobodyFails => {
                let this_library = |side: &Side| matches!(side, Side::Ours | Side::Other(_));
                let mut sides = self.0.iter().filter(|(side, _)| this_library(side));
                ("nobody fails".to_owned(), sides.all(|(_, measured)| failures(measured) == 0))
            }
        }
    }

    /// Returns the median of a cost of each side; nothing if no usage was measured.
    fn costs(&self, cost: impl Fn(Usage) -> f64) -> String {
        let medians = Side::COLUMNS.map(|side| {
            let measured = self.of(side).iter().filter(|measured| measured.count() > 0);
            let costs = measured.map(|measured| cost(measured.usage()) / measured.count() as f64);
            let median = Summary::of(costs).median;
            if median.is_nan() { "-".to_owned() } else { figure(median) }
        });
        if medians.iter().all(|median| median == "-") { String::new() } else { medians.join(", ") }
    }
}

fn failures<T: Measurement>(measured: &[T]) -> usize {
    measured.iter().map(T::failures).sum()
}
