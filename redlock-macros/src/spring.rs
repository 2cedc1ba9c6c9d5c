//! Recognizes keys that are written in the expression language of Spring, such as `'order:' + #id`. As a
//! template of this attribute they would be one constant key for all calls.
//!
//! A test of `redlock-axum` compares these rules with those of `KeyTemplate`.

/// Returns the Rust form of a template that is an expression of Spring, or `None` if the template is not one.
/// `is_parameter` returns whether the function has a parameter with this name.
///
/// The signs of an expression are those of `KeyTemplate` in `redlock-core`, so that the attribute accepts the same
/// templates. A `#` with the name of a parameter is a sign at any place.
pub(crate) fn rust_form(text: &str, is_parameter: impl Fn(&str) -> bool) -> Option<String> {
    let is_quoted = text.starts_with('\'')
        || text.ends_with('\'')
        || text.contains("' +")
        || text.contains("+ '");
    if is_quoted {
        return Some(translate(text).unwrap_or_else(|| "key = \"order:{id}\"".to_owned()));
    }
    if let Some((before, name)) = references(text).find(|(_, name)| is_parameter(name)) {
        let after = &text[before.len() + 1 + name.len()..];
        return Some(format!("key = \"{before}{{{name}}}{after}\""));
    }
    let has_reference = !text.contains('{')
        && references(text).any(|(before, name)| begins_as_name(name) && ends_at_border(before));
    has_reference.then(|| translate_references(text))
}

fn begins_as_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Returns whether a `#` after this text begins a word.
fn ends_at_border(before: &str) -> bool {
    before.chars().next_back().is_none_or(|c| c.is_ascii_punctuation() || c == ' ')
}

/// Translates `order:#order.sku:paid`, which has no quotes. Names that are no parameters have a message of their own.
fn translate_references(text: &str) -> String {
    let mut pieces = text.split('#');
    let mut template = pieces.next().unwrap_or_default().to_owned();
    let mut values = Vec::new();
    for piece in pieces {
        let end = piece.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'));
        let (reference, after) = piece.split_at(end.unwrap_or(piece.len()));
        template.push_str("{}");
        template.push_str(after);
        values.push(reference);
    }
    if !values.iter().all(|value| value.split('.').all(begins_as_name)) {
        return "key = \"order:{id}\"".to_owned();
    }
    if values.iter().any(|value| value.contains('.')) {
        return format!("key(\"{template}\", {})", values.join(", "));
    }
    for name in values {
        template = template.replacen("{}", &format!("{{{name}}}"), 1);
    }
    format!("key = \"{template}\"")
}

/// Returns each name after a `#`, with the text before the `#`.
fn references(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices('#').map(|(at, _)| (&text[..at], leading_name(&text[at + 1..])))
}

fn leading_name(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// Translates texts and references that are joined by `+`. Returns `None` for any other expression.
fn translate(text: &str) -> Option<String> {
    let (mut template, mut values) = (String::new(), Vec::new());
    for part in text.split('+').map(str::trim) {
        if let Some(literal) = part.strip_prefix('\'').and_then(|part| part.strip_suffix('\'')) {
            template.push_str(&literal.replace('{', "{{").replace('}', "}}"));
            continue;
        }
        let reference = part.strip_prefix('#')?;
        let name = leading_name(reference);
        if name.is_empty() {
            return None;
        }
        if name == reference && values.is_empty() {
            template.extend(["{", name, "}"]);
        } else if reference.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.') {
            template.push_str("{}");
            values.push(reference);
        } else {
            return None;
        }
    }
    Some(match &values[..] {
        [] => format!("key = \"{template}\""),
        values => format!("key(\"{template}\", {})", values.join(", ")),
    })
}
