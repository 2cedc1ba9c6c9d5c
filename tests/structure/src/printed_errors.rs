//! The programs in the READMEs print an error by `Display`.
//!
//! A `main` that returns a `Result` prints the error by `Debug`, which is not made for readers. The first error of a
//! newcomer is that no Redis is running.

use std::fs;

const READMES: [&str; 4] =
    ["README.md", "redlock-axum/README.md", "redlock-core/README.md", "redlock-macros/README.md"];

/// Finds each `main` in a README that returns a value.
pub(crate) fn check() -> Vec<String> {
    let of_file = |path| match fs::read_to_string(path) {
        Ok(text) => mains(path, &text),
        Err(error) => vec![format!("{path}: {error}")],
    };
    READMES.into_iter().flat_map(of_file).collect()
}

fn mains(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let mains = lines.filter(|(_, line)| line.contains("fn main() ->"));
    let finding = |(index, _)| {
        format!(
            "{path}:{}: `main` returns a value, so that an error is printed by `Debug`",
            index + 1
        )
    };
    mains.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_main_that_returns_a_result_is_found() {
        let text = "```rust\n#[tokio::main]\nasync fn main() -> Result<(), Error> {\n}\n```\n";
        let finding = "a.md:3: `main` returns a value, so that an error is printed by `Debug`";
        assert_eq!(mains("a.md", text), [finding]);
    }

    #[test]
    fn a_main_that_returns_nothing_is_no_finding() {
        assert_eq!(
            mains("a.md", "async fn main() {\n}\nasync fn serve() -> Result<(), Error> {"),
            [""; 0]
        );
    }
}
