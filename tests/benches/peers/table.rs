//! The table of results.

use crate::load::Measured;
use crate::statistics::{Summary, figure};

/// One row: a kind of work, its measurements, and whether they meet the target.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub(crate) work: String,
    pub(crate) floor: String,
    pub(crate) ours: String,
    pub(crate) ratio: String,
    pub(crate) rslock: String,
    pub(crate) rslock_ratio: String,
    pub(crate) client: String,
    pub(crate) servers: String,
    pub(crate) commands: String,
    pub(crate) target: &'static str,
    pub(crate) met: bool,
}

const HEAD: [&str; 11] = [
    "work",
    "floor",
    "ours",
    "ours / floor",
    "rslock",
    "rslock / floor",
    "client CPU us: floor, ours, rslock",
    "server CPU us",
    "commands",
    "target",
    "met",
];

/// Prints the head of the table.
pub(crate) fn print_head() {
    println!("| {} |", HEAD.join(" | "));
    println!("|{}", "---|".repeat(HEAD.len()));
}

impl Row {
    pub(crate) fn print(&self) {
        let Self { work, floor, ours, ratio, rslock, rslock_ratio, .. } = self;
        let Self { client, servers, commands, target, met, .. } = self;
        let met = if *met { "yes" } else { "**no**" };
        println!(
            "| {work} | {floor} | {ours} | {ratio} | {rslock} | {rslock_ratio} | {client} | \
             {servers} | {commands} | {target} | {met} |"
        );
    }

    /// Fills in the processor time and the commands per pair, for the floor, ours and rslock.
    pub(crate) fn used(mut self, measured: &[Vec<Measured>]) -> Self {
        let each = |per_pair: &dyn Fn(&Measured) -> f64| {
            let medians = measured
                .iter()
                .map(|rounds| figure(Summary::of(rounds.iter().map(per_pair)).median));
            medians.collect::<Vec<_>>().join(", ")
        };
        self.client = each(&|measured| measured.per_pair(measured.usage.client));
        self.servers = each(&|measured| measured.per_pair(measured.usage.servers));
        self.commands = each(&Measured::commands_per_pair);
        let failures =
            |rounds: &Vec<Measured>| rounds.iter().map(|one| one.failures).sum::<usize>();
        let failed: Vec<usize> = measured.iter().map(failures).collect();
        if failed.iter().any(|count| *count > 0) {
            let failed: Vec<_> = failed.iter().map(ToString::to_string).collect();
            self.work = format!("{} (failed: {})", self.work, failed.join(", "));
        }
        self
    }
}

/// Returns the ratio of two contenders, computed for each round.
pub(crate) fn ratio<T>(rounds: &[T], base: &[T], value: impl Fn(&T) -> f64) -> Summary {
    Summary::of(rounds.iter().zip(base).map(|(this, base)| value(this) / value(base)))
}
