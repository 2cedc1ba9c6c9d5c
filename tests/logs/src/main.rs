//! Searches standard input, the output of a whole test run, for passwords, tokens, and warnings of the order of locks. Fails if
//! it finds any.

use std::io::{self, Read};
use std::process::ExitCode;

fn main() -> io::Result<ExitCode> {
    let mut output = Vec::new();
    io::stdin().read_to_end(&mut output)?;
    let output = String::from_utf8_lossy(&output);
    let mut found = false;
    for line in output.lines() {
        if redlock_logs::find_secret(line).is_some() {
            eprintln!("a secret was printed: {line}");
            found = true;
        } else if redlock_logs::is_lock_order_warning(line) {
            eprintln!("a warning that no test expects was printed: {line}");
            found = true;
        }
    }
    Ok(if found { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
