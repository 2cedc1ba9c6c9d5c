//! The sides of a comparison and their measurements.

use crate::rounds::{Contender, interleave};
use crate::statistics::{Summary, figure, micros};
use crate::table::Row;
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
    /// The measure of a row that has no floor. The row describes it.
    Reference,
}

impl Side {
    /// The sides with a column of their own, in the order of the columns.
    pub(crate) const ALL: [Self; 4] = [Self::Plain, Self::Batched, Self::Ours, Self::Rslock];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Batched => "batched",
            Self::Ours => "ours",
            Self::Rslock => "rslock",
            Self::Reference => "reference",
        }
    }
}

/// A measurement with the resources that it used.
pub(crate) trait Costs {
    fn usage(&self) -> Usage;

    /// Returns the number of pairs or of turns, by which the usage is divided.
    fn count(&self) -> usize;

    fn failures(&self) -> usize;

    /// Returns the processor time of the client, in microseconds for each pair.
    fn client(&self) -> f64 {
        micros(self.usage().client) / self.count() as f64
    }

    /// Returns the processor time of the servers, in microseconds for each pair.
    fn servers(&self) -> f64 {
        micros(self.usage().servers) / self.count() as f64
    }

    /// Returns the number of commands for each pair.
    fn commands(&self) -> f64 {
        self.usage().commands as f64 / self.count() as f64
    }
}

/// The measurements of each side, by round.
pub(crate) struct Comparison<T>(Vec<(Side, Vec<T>)>);

/// Measures all sides in alternation.
pub(crate) async fn compare<T>(
    rounds: usize,
    sides: Vec<(Side, Contender<'_, T>)>,
) -> Comparison<T> {
    let (sides, contenders): (Vec<_>, Vec<_>) = sides.into_iter().unzip();
    let measured = interleave(rounds, contenders).await;
    Comparison(sides.into_iter().zip(measured).collect())
}

impl<T> Comparison<T> {
    pub(crate) fn new(sides: Vec<(Side, Vec<T>)>) -> Self {
        Self(sides)
    }

    /// Returns the measurements of a side; none if it does not take part.
    fn of(&self, side: Side) -> &[T] {
        let found = self.0.iter().find(|(this, _)| *this == side);
        found.map_or(&[], |(_, measured)| measured)
    }

    pub(crate) fn summary(&self, side: Side, figure: impl Fn(&T) -> f64) -> Summary {
        Summary::of(self.of(side).iter().map(figure))
    }

    /// Returns the ratio of ours to another side, computed for each round.
    pub(crate) fn ours_to(&self, base: Side, figure: impl Fn(&T) -> f64) -> Summary {
        let rounds = self.of(Side::Ours).iter().zip(self.of(base));
        Summary::of(rounds.map(|(ours, base)| figure(ours) / figure(base)))
    }

    /// Makes a row with one figure of each side, and the ratios.
    pub(crate) fn bare_row(&self, work: impl Into<String>, figure: impl Fn(&T) -> f64) -> Row {
        let figures = Side::ALL.map(|side| self.summary(side, &figure).to_string());
        let ratios = Side::ALL.map(|side| self.ours_to(side, &figure));
        Row::new(work, figures, ratios)
    }
}

impl<T: Costs> Comparison<T> {
    /// Makes a row with one figure of each side, the ratios and the costs.
    pub(crate) fn row(&self, work: impl Into<String>, figure: impl Fn(&T) -> f64) -> Row {
        let mut row = self.bare_row(work, figure);
        row.client = self.costs(T::client);
        row.servers = self.costs(T::servers);
        row.commands = self.costs(T::commands);
        for (side, measured) in &self.0 {
            let failures: usize = measured.iter().map(T::failures).sum();
            if failures > 0 {
                row.work = format!("{} ({failures} failed: {})", row.work, side.name());
            }
        }
        row
    }

    fn costs(&self, cost: impl Fn(&T) -> f64) -> String {
        let medians = Side::ALL.map(|side| match self.of(side) {
            [] => "-".to_owned(),
            _ => figure(self.summary(side, &cost).median),
        });
        medians.join(", ")
    }
}
