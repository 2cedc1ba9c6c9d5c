//! The texts of servers and files in errors.

/// The longest text of a server in bytes. Each error, vote and log line repeats it.
const MAX_TEXT: usize = 512;
/// Stands for the rest of a text that was cut.
const ELLIPSIS: char = '…';

/// Escapes control characters and other unprintable characters, so that the text of a server cannot forge
/// lines of a log, and cuts a long text. A second call changes nothing.
pub(crate) fn legible(text: &str) -> String {
    let mut legible = String::with_capacity(text.len().min(MAX_TEXT));
    for character in text.chars() {
        match character {
            '\\' | '"' | '\'' => legible.push(character),
            _ => legible.extend(character.escape_debug()),
        }
        if legible.len() > MAX_TEXT {
            let mut end = MAX_TEXT - ELLIPSIS.len_utf8();
            while !legible.is_char_boundary(end) {
                end -= 1;
            }
            legible.truncate(end);
            legible.push(ELLIPSIS);
            break;
        }
    }
    legible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        let longest = "a".repeat(MAX_TEXT);
        assert_eq!(legible(&longest), longest);
        for (text, kept) in [
            ("a".repeat(MAX_TEXT + 1), MAX_TEXT - 3),
            ("é".repeat(100_000), MAX_TEXT - 4),
            ("\n".repeat(100_000), MAX_TEXT - 3),
        ] {
            let cut = legible(&text);
            assert!(cut.len() == kept + 3 && cut.ends_with('…'), "{} {cut}", cut.len());
            assert_eq!(legible(&cut), cut);
        }
    }
}
