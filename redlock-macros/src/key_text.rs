//! Reads the text of a key template. A test of `redlock-axum` compares these rules with those of `KeyTemplate`.

/// The types of placeholders, as in `KeyTemplate`, with their variants of `PlaceholderKind`.
pub(crate) const KINDS: [(&str, &str); 4] =
    [("u64", "U64"), ("i64", "I64"), ("uuid", "Uuid"), ("lower", "Lower")];

/// Returns the position of a slice of the text in the text, in bytes.
pub(crate) fn offset(text: &str, slice: &str) -> usize {
    slice.as_ptr().addr() - text.as_ptr().addr()
}

/// Returns the texts between the braces of a format string. A brace that is never closed ends the list:
/// `format!` reports it, at its position in the literal.
pub(crate) fn placeholders(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        rest = &rest[open + 1..];
        if let Some(after_escaped) = rest.strip_prefix('{') {
            rest = after_escaped;
            continue;
        }
        let Some(close) = rest.find('}') else { break };
        found.push(&rest[..close]);
        rest = &rest[close + 1..];
    }
    found
}

/// Returns the first two neighbouring placeholders without a separator between them. A separator is
/// a character that no escaped value contains.
pub(crate) fn unseparated(text: &str) -> Option<(&str, &str)> {
    let is_separator =
        |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~' | '%'));
    let all = placeholders(text);
    all.windows(2).map(|pair| (pair[0], pair[1])).find(|(first, second)| {
        let (end, start) = (offset(text, first) + first.len(), offset(text, second));
        let between = text[end..start].trim_start_matches('}').trim_end_matches('{');
        let escaped_braces = text[end..start].len() - between.len() > 2;
        !(escaped_braces || between.contains(is_separator))
    })
}
