//! The table of results.

use crate::comparison::Side;
use crate::statistics::Summary;

/// One row: a kind of work, its figures, and whether they meet the targets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub(crate) work: String,
    /// The figure of each side, in the order of [`Side::ALL`].
    pub(crate) figures: [String; 4],
    /// The ratio of ours to each side, in the same order.
    ratios: [Summary; 4],
    pub(crate) client: String,
    pub(crate) servers: String,
    pub(crate) commands: String,
    targets: Vec<(String, bool)>,
}

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
    print_line(&HEAD.map(str::to_owned));
    println!("|{}", "---|".repeat(HEAD.len()));
}

fn print_line(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}

impl Row {
    pub(crate) fn new(work: impl Into<String>, figures: [String; 4], ratios: [Summary; 4]) -> Self {
        Self { work: work.into(), figures, ratios, ..Self::default() }
    }

    /// Makes a row that has a figure only for this library.
    pub(crate) fn ours(work: impl Into<String>, figure: impl Into<String>) -> Self {
        let mut row = Self { work: work.into(), ..Self::default() };
        row.add_to_ours(figure);
        row
    }

    /// Appends a text to the figure of this library.
    pub(crate) fn add_to_ours(&mut self, text: impl Into<String>) {
        let cell = &mut self.figures[Side::Ours as usize];
        if !cell.is_empty() {
            cell.push_str("; ");
        }
        cell.push_str(&text.into());
    }

    /// Adds the target that the ratio of ours to another side is at least `limit`.
    pub(crate) fn at_least(self, limit: f64, side: Side) -> Self {
        let ratio = self.ratios[side as usize].median;
        self.target(format!(">= {limit}x {}", side.name()), ratio >= limit)
    }

    /// Adds the target that the ratio of ours to another side is at most `limit`.
    pub(crate) fn at_most(self, limit: f64, side: Side) -> Self {
        let ratio = self.ratios[side as usize].median;
        self.target(format!("<= {limit}x {}", side.name()), ratio <= limit)
    }

    /// Adds the target that a value of ours is at most `limit`. `name` explains the value.
    pub(crate) fn limit(self, name: &str, value: f64, limit: f64) -> Self {
        self.target(format!("{name} <= {limit}"), value <= limit)
    }

    /// Adds a target.
    pub(crate) fn target(mut self, target: impl Into<String>, met: bool) -> Self {
        self.targets.push((target.into(), met));
        self
    }

    pub(crate) fn print(self) {
        let [plain, batched, ours, rslock] = self.figures;
        let [to_plain, to_batched, _, to_rslock] = self.ratios.map(|ratio| ratio.to_string());
        let targets = |wanted: &dyn Fn(bool) -> bool| {
            let targets = self.targets.iter().filter(|(_, met)| wanted(*met));
            targets.map(|(target, _)| &**target).collect::<Vec<_>>().join(", ")
        };
        let (all, missed) = (targets(&|_| true), targets(&|met| !met));
        let met = match (all.is_empty(), missed.is_empty()) {
            (true, _) => String::new(),
            (false, true) => "yes".to_owned(),
            (false, false) => format!("**no**: {missed}"),
        };
        let Self { work, client, servers, commands, .. } = self;
        print_line(&[
            work, plain, batched, ours, to_plain, to_batched, rslock, to_rslock, client, servers,
            commands, all, met,
        ]);
    }
}
