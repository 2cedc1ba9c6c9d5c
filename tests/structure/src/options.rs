//! Checks that only a few files name an option of a lock, so that the next option needs changes in a few
//! files only.
//!
//! Every front end takes the options as one type. The check counts the files that name `max_hold`, because
//! nothing else has this name: `min_hold` is also a part of the node protocol, and the other options are
//! common words.

use crate::tokens::tokens;
use crate::tree::SourceFile;

const OPTION: &str = "max_hold";
/// The number of files that name an option: the options, their rules, their names for serde, and the
/// arguments of the attribute.
const FILES: usize = 4;

/// Counts the files that name the option, in code or in a string.
pub(crate) fn check(files: &[SourceFile]) -> Vec<String> {
    let naming: Vec<_> =
        files.iter().filter(|file| names(&file.text)).map(|file| file.path.as_str()).collect();
    match naming.len() {
        0 => vec![format!("no file names the option {OPTION}, which is to be counted")],
        1..=FILES => Vec::new(),
        count => {
            let naming = naming.join(", ");
            vec![format!("{count} files name the option {OPTION}, instead of {FILES}: {naming}")]
        }
    }
}

fn names(text: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let is_option =
        |text: &str| text.split(|character| !is_part(character)).any(|word| word == OPTION);
    tokens(text).iter().any(|token| is_option(&token.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(texts: &[&str]) -> Vec<String> {
        let file = |(index, text): (usize, &&str)| SourceFile {
            path: format!("{index}.rs"),
            text: (*text).to_owned(),
        };
        check(&texts.iter().enumerate().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn an_option_in_too_many_files_is_found() {
        let texts = [
            "struct A { max_hold: B }",
            "fn f() { self.max_hold() }",
            "const A: &str = \"max_hold requires renew\";",
            "fn f() {}",
            "m! { max_hold = 1 }",
        ];
        assert_eq!(findings(&texts), [""; 0]);
        let texts = [&texts[..], &["#[error(\"max_hold\")] struct A;"]].concat();
        assert_eq!(
            findings(&texts),
            ["5 files name the option max_hold, instead of 4: 0.rs, 1.rs, 2.rs, 4.rs, 5.rs"]
        );
    }

    #[test]
    fn comments_tests_and_other_words_do_not_count() {
        let other =
            "/// max_hold\nfn max_hold_2() {} // max_hold\n#[cfg(test)] mod t { fn max_hold() {} }";
        assert_eq!(findings(&["fn max_hold() {}", other, other, other, other]), [""; 0]);
    }

    #[test]
    fn an_option_that_has_another_name_is_noticed() {
        let finding = "no file names the option max_hold, which is to be counted";
        assert_eq!(findings(&["fn longest_hold() {}"]), [finding]);
    }
}
