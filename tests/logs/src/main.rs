//! Searches standard input, the output of a whole test run, for passwords and tokens. Fails if it finds
//! any.

use std::io::{self, Read};
use std::process::ExitCode;

fn main() -> io::Result<ExitCode> {
    let mut output = Vec::new();
    io::stdin().read_to_end(&mut output)?;
    let output = String::from_utf8_lossy(&output);
    let found = output.lines().filter(|line| redlock_logs::find_secret(line).is_some());
    let count = found.inspect(|line| eprintln!("a secret was printed: {line}")).count();
    Ok(if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
