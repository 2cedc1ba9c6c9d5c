//! Medians and percentiles.

use std::fmt;
use std::time::Duration;

/// The median, the smallest and the largest of some figures. Of no figures, all three are NaN, and the text
/// is empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Summary {
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (figures.first(), figures.last()) else {
            return Self::default();
        };
        Self { median: figures[figures.len() / 2], least: *least, most: *most }
    }
}

impl Default for Summary {
    fn default() -> Self {
        Self { median: f64::NAN, least: f64::NAN, most: f64::NAN }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, least, most } = *self;
        if median.is_nan() {
            return Ok(());
        }
        write!(f, "{} ({}-{})", figure(median), figure(least), figure(most))
    }
}

/// Formats a figure with about three digits.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        1_000_000.0.. => format!("{:.2} M", value / 1e6),
        10_000.0.. => format!("{:.1} k", value / 1000.0),
        1000.0.. => format!("{:.2} k", value / 1000.0),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        small if small > 0.0 && small < 0.005 => format!("{value:.4}"),
        _ => format!("{value:.2}"),
    }
}

/// Returns the percentile of sorted values: `part` is 0.5 for the median.
pub(crate) fn percentile(sorted: &[Duration], part: f64) -> Duration {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let index = (sorted.len().saturating_sub(1) as f64 * part) as usize;
    sorted.get(index).copied().unwrap_or_default()
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
