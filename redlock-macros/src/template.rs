//! Parses the text of a key template. A test of `redlock-axum` compares it with `KeyTemplate` of `redlock-core`.

/// The types of placeholders, with their variants of `PlaceholderKind` in `redlock-core`.
const KINDS: [(&str, &str); 4] =
    [("u64", "U64"), ("i64", "I64"), ("uuid", "Uuid"), ("lower", "Lower")];

/// A piece of a template.
pub(crate) enum Piece {
    Text(String),
    Placeholder {
        /// A name, a position, or nothing for the next position.
        name: String,
        /// The variant of `PlaceholderKind`.
        kind: &'static str,
    },
}

/// Parses a template. The error is the message.
pub(crate) fn parse(text: &str) -> Result<Vec<Piece>, String> {
    if text.is_empty() {
        return Err("the lock key is empty".to_owned());
    }
    if text.contains(char::is_control) {
        return Err("the lock key contains a control character".to_owned());
    }
    if text.starts_with("redlock:") {
        return Err("the lock key begins with `redlock:`, which is reserved".to_owned());
    }
    if is_spring(text) {
        return Err(format!(
            "`{text}` is an expression of Spring, and would be one key for all calls; write `{{id}}` for `#id`, as in \
             `key = \"order:{{id}}\"`"
        ));
    }
    let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after_escaped) = rest.strip_prefix(brace) {
            literal.push_str(brace);
            rest = after_escaped;
            continue;
        }
        if brace == "}" {
            return Err("a `}` of the lock key was never opened; write `}}` for a brace".to_owned());
        }
        let end = rest.find(['{', '}']).filter(|&end| rest[end..].starts_with('}'));
        let end = end.ok_or_else(|| {
            format!("the `{{` before `{rest}` is never closed; write `{{{{` for a brace")
        })?;
        if !literal.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut literal)));
        }
        pieces.push(placeholder(&rest[..end])?);
        rest = &rest[end + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    check_separated(&pieces)?;
    Ok(pieces)
}

fn placeholder(text: &str) -> Result<Piece, String> {
    if ["header(", "query(", "ext("].iter().any(|source| text.starts_with(source)) {
        return Err(format!(
            "`{{{text}}}` is a placeholder of a layer or a policy; a handler takes the value by an extractor, and the key \
             names that parameter: `key(\"user:{{}}\", user.id)`"
        ));
    }
    let (name, kind) = text.split_once(':').map_or((text, None), |(name, kind)| (name, Some(kind)));
    let kind = match kind {
        None => "Text",
        Some(kind) => KINDS.iter().find(|(known, _)| *known == kind).map(|(_, variant)| *variant).ok_or_else(|| {
            format!(
                "`{{{text}}}`: the types of a placeholder are `u64`, `i64`, `uuid` and `lower`, and it has no format \
                 specification; for a formatted key write `key = format!(..)`, which escapes nothing"
            )
        })?,
    };
    if name == "self" {
        return Err("`{self}` cannot stand in a lock key; name what identifies it: `key(\"stock:{}\", self.id)`".to_owned());
    }
    if !is_position(name) && !is_name(name) {
        return Err(format!(
            "`{{{name}}}` is not a placeholder's name; a name is made of letters, digits and _, without blanks, and does \
             not start with a digit; give any other value after the text: `key(\"stock:{{}}\", order.sku)`"
        ));
    }
    Ok(Piece::Placeholder { name: name.to_owned(), kind })
}

/// Returns whether the name is a position, or empty: the next position.
pub(crate) fn is_position(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_digit())
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Checks that a separator is between any two placeholders, so that different values give different keys. A separator is
/// a character that no escaped value contains.
fn check_separated(pieces: &[Piece]) -> Result<(), String> {
    let is_separator =
        |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~' | '%'));
    let mut before = None;
    for piece in pieces {
        match piece {
            Piece::Text(text) if text.contains(is_separator) => before = None,
            Piece::Text(_) => {}
            Piece::Placeholder { name, .. } => {
                if let Some(first) = before.replace(name) {
                    return Err(format!(
                        "nothing separates `{{{first}}}` from `{{{name}}}`, so that different values could give one key; \
                         put a character between them that no value contains, such as `:`, but no letter, digit, `-`, \
                         `.`, `_`, `~` or `%`"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Returns whether the text is written in the expression language of Spring, such as `'order:' + #id`. As a template it
/// would be one constant key.
fn is_spring(text: &str) -> bool {
    let is_quoted = text.starts_with('\'') || text.ends_with('\'');
    let is_joined = text.contains("' +") || text.contains("+ '");
    let begins_name = |c: char| c.is_alphabetic() || c == '_';
    let has_reference = || text.split('#').skip(1).any(|after| after.starts_with(begins_name));
    is_quoted || is_joined || (!text.contains('{') && has_reference())
}
