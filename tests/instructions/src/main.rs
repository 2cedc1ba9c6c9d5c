//! Counts the instructions and the allocations of an acquisition with its release, and compares them with the
//! floor: the same commands, sent by the redis crate alone.
//!
//! ```text
//! cargo bench -p redlock-instructions
//! cargo bench -p redlock-instructions --features metrics
//! ```
//!
//! It also counts what a pair costs besides: the spans that no subscriber wants, and the order of locks. With the feature `metrics`,
//! all rows have it, and one has a recorder.
//!
//! Time depends on the machine and on its other work; the number of instructions hardly does. Both sides run in
//! a current-thread runtime, over a [stream in memory](server) whose server replies at once. So the numbers contain
//! no kernel, and the work of the server on both sides.
//!
//! The program runs each side twice under callgrind and DHAT (package `valgrind`), with different numbers of
//! pairs. The difference between the two runs contains neither the start of the program nor the connection. The
//! program fails if a ceiling of [`CEILINGS`] is exceeded.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a benchmark")]

mod server;
mod sides;

use std::process::{Command, ExitCode, Stdio};

/// The numbers of pairs of the two runs.
const FEW: u64 = 300;
const MANY: u64 = 1300;

/// The highest ratio of the instructions to the floor's, and the highest number of allocations per pair.
struct Ceiling {
    nodes: usize,
    ratio: f64,
    allocations: u64,
}

/// Metrics add the gauges of held locks and of waiting callers.
const CEILINGS: [Ceiling; 2] = [
    Ceiling { nodes: 1, ratio: if cfg!(feature = "metrics") { 1.32 } else { 1.3 }, allocations: 8 },
    Ceiling { nodes: 5, ratio: 1.0, allocations: 30 },
];

/// What is counted beside a pair, with the highest number of instructions for it.
struct Extra {
    name: &'static str,
    /// The side with the addition, and the side without it.
    with: &'static str,
    without: Option<&'static str>,
    most: f64,
    /// The greater number of pairs.
    pairs: u64,
}

const EXTRAS: &[Extra] = &[
    // Its clock is that of the machine: the feature `use-libc-auxv` of rustix keeps it from crashing under valgrind.
    Extra { name: "a pair in memory", with: "memory", without: None, most: 15_000.0, pairs: MANY },
    Extra {
        name: "spans that no subscriber wants",
        with: "spans",
        without: None,
        most: 60.0,
        pairs: MANY,
    },
    Extra {
        name: "the order of locks, for a request with one lock that may wait",
        with: "ordered",
        without: Some("unordered"),
        most: 100.0,
        pairs: MANY,
    },
    #[cfg(feature = "metrics")]
    Extra {
        name: "a recorder of metrics",
        with: "recorder",
        without: Some("ours"),
        most: 500.0,
        // The recorder measures its clock when it starts, which needs more instructions on a busy machine.
        pairs: 20 * MANY,
    },
];

/// The counts of one side, per pair.
#[derive(Clone, Copy)]
struct Counts {
    instructions: f64,
    allocations: f64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, side, nodes, pairs] = &arguments[..]
        && command == "run"
    {
        let (nodes, pairs) = (nodes.parse().expect("nodes"), pairs.parse().expect("pairs"));
        sides::run(side, nodes, pairs);
        return ExitCode::SUCCESS;
    }
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: valgrind is not installed");
        return ExitCode::SUCCESS;
    }
    println!("| nodes | side | instructions per pair | ratio | allocations per pair |");
    println!("|---|---|---|---|---|");
    let mut exceeded = false;
    for Ceiling { nodes, ratio: highest_ratio, allocations: most } in CEILINGS {
        let [floor, ours] = ["floor", "ours"].map(|side| count(side, nodes, MANY));
        let ratio = ours.instructions / floor.instructions;
        for (side, counts, ratio) in [("floor", floor, 1.0), ("ours", ours, ratio)] {
            println!(
                "| {nodes} | {side} | {:.0} | {ratio:.2} | {:.1} |",
                counts.instructions, counts.allocations
            );
        }
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let too_many = ours.allocations > most as f64 + 0.5;
        if ratio > highest_ratio || too_many {
            println!("{nodes} nodes: the ceilings are {highest_ratio} and {most} allocations");
            exceeded = true;
        }
    }
    exceeded |= !print_extras();
    if exceeded { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Prints the cost of each [`Extra`]. Returns whether none exceeds its limit.
fn print_extras() -> bool {
    println!("\n| beside a pair on one node | instructions | limit | allocations |");
    println!("|---|---|---|---|");
    let mut is_within = true;
    for Extra { name, with, without, most, pairs } in EXTRAS {
        let with = count(with, 1, *pairs);
        let zero = Counts { instructions: 0.0, allocations: 0.0 };
        let without = without.map_or(zero, |side| count(side, 1, *pairs));
        let instructions = with.instructions - without.instructions;
        let allocations = with.allocations - without.allocations;
        println!("| {name} | {instructions:.0} | {most:.0} | {allocations:.1} |");
        is_within &= instructions <= *most;
    }
    is_within
}

/// Counts what `many` pairs need more than few.
fn count(side: &str, nodes: usize, many: u64) -> Counts {
    let per_pair = |count: fn(&str, usize, u64) -> u64| {
        let [less, more] = [FEW, many].map(|pairs| count(side, nodes, pairs));
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let per_pair = more.saturating_sub(less) as f64 / (many - FEW) as f64;
        per_pair
    };
    Counts { instructions: per_pair(instructions), allocations: per_pair(allocations) }
}

/// Returns the number of instructions of a whole run.
fn instructions(side: &str, nodes: usize, pairs: u64) -> u64 {
    let options = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
    number_after("Collected : ", &under_valgrind(&options, side, nodes, pairs))
}

/// Returns the number of allocations of a whole run.
fn allocations(side: &str, nodes: usize, pairs: u64) -> u64 {
    let options = ["--tool=dhat", "--dhat-out-file=/dev/null"];
    number_after(" bytes in ", &under_valgrind(&options, side, nodes, pairs))
}

/// Returns the number after a text. It may have commas between its digits.
fn number_after(text: &str, output: &str) -> u64 {
    let number = output.lines().find_map(|line| line.split_once(text)).map(|(_, after)| {
        let digits = after.chars().take_while(|c| c.is_ascii_digit() || *c == ',');
        digits.filter(char::is_ascii_digit).collect::<String>()
    });
    let number = number.and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no number after {text:?} in:\n{output}"))
}

/// Runs the program, and returns everything that it and valgrind printed.
fn under_valgrind(options: &[&str], side: &str, nodes: usize, pairs: u64) -> String {
    let mut run = Command::new("valgrind");
    run.args(options).arg(std::env::current_exe().expect("the path of this program"));
    run.args(["run", side, &nodes.to_string(), &pairs.to_string()]);
    let output = run.output().expect("a started program");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{text}");
    text
}
