//! Recognizes keys that are written in the expression language of Spring, such as `'order:' + #id`. As a
//! template of this attribute they would be one constant key for all calls.

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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<String> {
        rust_form(text, |name| name == "id")
    }

    #[test]
    fn an_expression_of_spring_is_translated() {
        for (text, rust) in [
            ("'order:' + #id", "key = \"order:{id}\""),
            ("'order:' + #id + ':paid'", "key = \"order:{id}:paid\""),
            ("#id + ':order'", "key = \"{id}:order\""),
            ("'a'", "key = \"a\""),
            ("'{a}' + #user", "key = \"{{a}}{user}\""),
            ("'stock:' + #order.sku", "key(\"stock:{}\", order.sku)"),
            ("'x:' + #order.sku + ':' + #id", "key(\"x:{}:{}\", order.sku, id)"),
            ("#shop+ ':'+#id", "key = \"{shop}:{id}\""),
            ("#id", "key = \"{id}\""),
            ("order:#id", "key = \"order:{id}\""),
            ("order:#id:paid", "key = \"order:{id}:paid\""),
            ("no#id", "key = \"no{id}\""),
            ("#order.id", "key(\"{}\", order.id)"),
            ("order:#order.id:#shop", "key(\"order:{}:{}\", order.id, shop)"),
            ("#shop:#p0", "key = \"{shop}:{p0}\""),
            ("#identity", "key = \"{identity}\""),
            ("#root.args[0]", "key(\"{}[0]\", root.args)"),
            ("#shop:#4", "key = \"order:{id}\""),
        ] {
            assert_eq!(of(text).as_deref(), Some(rust), "{text}");
        }
        for text in ["'order:' + T(java.util.UUID).randomUUID()", "'a' + #id?.b", "'a' + #"] {
            assert_eq!(of(text).as_deref(), Some("key = \"order:{id}\""), "{text}");
        }
    }

    /// The attribute knows the parameters, so it recognizes more references than `KeyTemplate`.
    #[test]
    fn the_attribute_and_the_key_template_refuse_the_same_expressions_of_spring() {
        use proptest::prelude::*;
        use redlock_axum::{KeyTemplate, TemplateError};

        const PIECES: [&str; 14] = [
            "'", "#", "a", "id", ".", "+", " ", ":", "'a' + ", " + #id", " + '", "{id}", "{{", "4",
        ];
        let pieces = proptest::collection::vec(proptest::sample::select(&PIECES[..]), 1..7);
        let config =
            ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() };
        proptest!(config, |(pieces in pieces)| {
            let text = pieces.concat();
            let by_signs = rust_form(&text, |_| false);
            let by_any_name = rust_form(&text, |_| true);
            let by_template = match KeyTemplate::new(&text) {
                Err(TemplateError::Spring { rust, .. }) => Some(rust),
                _ => None,
            };
            prop_assert_eq!(by_signs.is_some(), by_template.is_some(), "{}", text);
            prop_assert!(by_template.is_none() || by_any_name.is_some(), "{}", text);
            // The key template writes `#item.sku` as `{sku}`, and does not translate `#4`.
            if let (Some(form), Some(template)) = (by_signs, by_template)
                && form.starts_with("key = ")
                && template != "order:{id}"
            {
                prop_assert_eq!(form, format!("key = \"{}\"", template), "{}", text);
            }
        });
    }

    #[test]
    fn a_template_with_a_number_sign_or_a_quote_inside_is_no_expression_of_spring() {
        for text in [
            "issue#{n}",
            "issue#n",
            "#",
            "a#",
            "it's:{n}",
            "order:{id}",
            "a+b",
            "a:#42",
            "a:#b:{c}",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
