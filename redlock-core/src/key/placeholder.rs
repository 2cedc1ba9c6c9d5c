//! The names of placeholders: `id`, or a source of values with an argument, as `header(x-user)`.

/// A source of values that a placeholder can name.
struct PlaceholderSource {
    name: &'static str,
    accepts: fn(&str) -> bool,
    /// Describes the arguments that the source accepts.
    expected: &'static str,
}

const SOURCES: [PlaceholderSource; 3] = [
    PlaceholderSource {
        name: "header",
        accepts: is_header_name,
        expected: "the name of a header, such as x-user",
    },
    PlaceholderSource {
        name: "query",
        accepts: is_query_name,
        expected: "the name of a query parameter, without braces and parentheses",
    },
    PlaceholderSource {
        name: "ext",
        accepts: is_name,
        expected: "a name of letters, digits and _ that does not start with a digit",
    },
];

/// Splits the text between the braces into the name and the type.
///
/// The argument of a source may contain a colon.
pub(super) fn split(inner: &str) -> (&str, Option<&str>) {
    let opened = inner.find(['(', ':']).filter(|&at| inner[at..].starts_with('('));
    let end_of_name = opened.and_then(|open| Some(open + inner[open..].find(')')? + 1));
    let from = end_of_name.unwrap_or(0);
    match inner[from..].split_once(':') {
        None => (inner, None),
        Some((rest, kind)) => (&inner[..from + rest.len()], Some(kind)),
    }
}

/// Checks the text before the type: a name, or a source with an argument. The error is the message.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    let call = name.strip_suffix(')').and_then(|call| call.split_once('('));
    let Some((source, argument)) = call.filter(|(source, _)| is_name(source)) else {
        return Err(format!(
            "`{name}` is not a placeholder's name; a name is made of letters, digits and _ and does not start with a digit"
        ));
    };
    match SOURCES.iter().find(|known| known.name == source) {
        None => Err(format!(
            "{{{name}}} has no known source of values; the sources are {}",
            SOURCES.map(|source| source.name).join(", ")
        )),
        Some(source) if (source.accepts)(argument) => Ok(()),
        Some(PlaceholderSource { expected, .. }) => {
            Err(format!("the argument of {{{name}}} cannot be used; write {expected}"))
        }
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Returns whether the name is a token of RFC 9110, section 5.6.2.
fn is_header_name(name: &str) -> bool {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(is_token)
}

fn is_query_name(name: &str) -> bool {
    // Braces end a placeholder before its name is checked.
    !name.is_empty() && !name.contains(['(', ')']) && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_in_an_argument_begins_no_type() {
        for (inner, name, kind) in [
            ("id", "id", None),
            ("id:u64", "id", Some("u64")),
            ("query(a:b)", "query(a:b)", None),
            ("query(a:b):u64", "query(a:b)", Some("u64")),
            ("header(x-user):lower", "header(x-user)", Some("lower")),
            ("header(x-user)lower", "header(x-user)lower", None),
            ("header(x-user", "header(x-user", None),
            ("id:u64(1:2)", "id", Some("u64(1:2)")),
            ("", "", None),
        ] {
            assert_eq!(split(inner), (name, kind), "{inner}");
        }
    }

    #[test]
    fn a_source_takes_an_argument_of_its_form() {
        for name in [
            "header(x-user)",
            "header(X-User)",
            "header(!#$%&'*+-.^_`|~9)",
            "query(tenant)",
            "query(filter[a b]:é)",
            "ext(claims)",
            "ext(_1)",
        ] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in [
            "header()",
            "header(x user)",
            "header(é)",
            "header(x:y)",
            "query()",
            "query(a(b)",
            "query(a\u{7f})",
            "ext()",
            "ext(1)",
            "ext(a-b)",
            "ext(a.b)",
        ] {
            let mistake = check_name(name).unwrap_err();
            assert!(mistake.starts_with("the argument of {"), "{name}: {mistake}");
        }
        for name in ["cookie(a)", "Header(a)", "id()"] {
            let mistake = check_name(name).unwrap_err();
            assert!(mistake.ends_with("the sources are header, query, ext"), "{name}: {mistake}");
        }
        for name in ["header(a", "header a)", "(a)", " header(a)", "header(a)b", "header (a)"] {
            let mistake = check_name(name).unwrap_err();
            assert!(mistake.contains("is not a placeholder's name"), "{name}: {mistake}");
        }
    }
}
