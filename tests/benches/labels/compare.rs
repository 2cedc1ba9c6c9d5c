//! Ratios of two sides.

use super::work::Figures;

/// Measures both sides in the order A B B A, and returns the means of each, so many times.
pub(crate) async fn compare(
    ratios: usize,
    one: impl AsyncFn() -> Figures,
    other: impl AsyncFn() -> Figures,
) -> Vec<[Figures; 2]> {
    let mut compared = Vec::with_capacity(ratios);
    // The first one is not counted.
    for _ in 0..=ratios {
        let first = one().await;
        let between = other().await.mean(other().await);
        compared.push([first.mean(one().await), between]);
    }
    compared.split_off(1)
}

/// Prints the ratio of a figure: the median of all, and the interval in which the true median is with a probability of 95 %.
pub(crate) fn row(
    work: &str,
    reference: &str,
    compared: &[[Figures; 2]],
    figure: fn(&Figures) -> f64,
    limit: &str,
) {
    let mut ratios: Vec<_> =
        compared.iter().map(|[one, other]| figure(one) / figure(other)).collect();
    ratios.sort_by(f64::total_cmp);
    let last = ratios.len() - 1;
    // The ranks of the interval follow from the binomial distribution.
    let half = 1.96 * (ratios.len() as f64).sqrt() / 2.0;
    let middle = last as f64 / 2.0;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and last"
    )]
    let at = |rank: f64| ratios[(rank.round().max(0.0) as usize).min(last)];
    let (median, low, high) = (at(middle), at(middle - half), at(middle + half));
    println!("| {work} | {reference} | {median:.3} ({low:.3}-{high:.3}) | {limit} |");
}
