//! A page of documentation is visible whatever the features are, also if it describes what needs a feature.
//!
//! `cargo doc` of an application shows a dependency with the features that the application has enabled. A
//! reader who has not enabled a feature learns about it only from a page that is always there.

use crate::tokens::tokens;
use crate::tree::SourceFile;

/// Finds each `cfg_attr(feature = .., doc = include_str!(..))`.
pub(crate) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut findings = Vec::new();
    for SourceFile { path, text } in files {
        let tokens = tokens(text);
        for (index, start) in tokens.iter().enumerate() {
            if start.text != "cfg_attr" {
                continue;
            }
            let mut open = 0_usize;
            let inside = tokens[index + 1..].iter().take_while(|token| {
                match token.text.as_str() {
                    "(" => open += 1,
                    ")" => open = open.saturating_sub(1),
                    _ => {}
                }
                open > 0
            });
            let words: Vec<_> = inside.map(|token| token.text.as_str()).collect();
            if words.contains(&"feature") && words.contains(&"include_str") {
                findings.push(format!("{path}:{}: a page that only a feature shows", start.line));
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
    fn a_page_that_only_a_feature_shows_is_found() {
        let hidden =
            "struct A;\n#[cfg_attr(feature = \"b\", doc = include_str!(\"b.md\"))]\nstruct B;";
        assert_eq!(findings(hidden), ["a.rs:2: a page that only a feature shows"]);
        let several =
            "#[cfg_attr(all(unix, feature = \"b\"), doc = include_str!(\"b.md\"))] struct B;";
        assert_eq!(findings(several).len(), 1);
    }

    #[test]
    fn a_page_that_is_always_shown_and_other_attributes_are_no_findings() {
        for text in [
            "#[doc = include_str!(\"b.md\")] struct B;",
            "#[cfg_attr(feature = \"b\", derive(C))] #[doc = include_str!(\"b.md\")] struct B;",
            "#[cfg_attr(feature = \"b\", doc = \"one line\")] struct B;",
            "#[cfg_attr(unix, doc = include_str!(\"b.md\"))] struct B;",
            "#[cfg_attr(feature = \"b\", derive(C))] struct B(&str); const A: &str = include_str!(\"b.md\");",
        ] {
            assert_eq!(findings(text), [""; 0], "{text}");
        }
    }
}
