//! Checks that a crate names each item that it exports.
//!
//! With `pub use ..::*`, a new item of another module or crate would become public without a decision.

use crate::tokens::tokens;
use crate::tree::SourceFile;

/// Finds each `pub use ..::*`.
pub(crate) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut findings = Vec::new();
    for SourceFile { path, text } in files {
        let tokens = tokens(text);
        for (index, pair) in tokens.windows(2).enumerate() {
            if pair[0].text != "pub" || pair[1].text != "use" {
                continue;
            }
            let mut names = tokens[index..].iter().take_while(|token| token.text != ";");
            if let Some(star) = names.find(|token| token.text == "*") {
                findings.push(format!("{path}:{}: `pub use` of everything (`*`)", star.line));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        check(&[SourceFile { path: "a.rs".to_owned(), text: text.to_owned() }])
    }

    #[test]
    fn a_public_glob_is_found() {
        assert_eq!(
            findings("use a::*;\n\npub use b::*;"),
            ["a.rs:3: `pub use` of everything (`*`)"]
        );
        assert_eq!(findings("mod a { pub use b::{self,\n c::{D, *}}; }").len(), 1);
    }

    #[test]
    fn names_and_private_globs_are_no_findings() {
        for text in
            ["pub use a::{B, C};", "use a::*;", "pub(crate) use a::*;", "pub use a; use b::*;"]
        {
            assert_eq!(findings(text), [""; 0], "{text}");
        }
    }
}
