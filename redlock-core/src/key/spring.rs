//! Recognizes templates that are written in the expression language of Spring, such as `'order:' + #id`. As
//! a template they would be one constant key for all requests.

/// Returns the template for an expression of Spring, or `None` if the text is not one.
///
/// A quote at an end, `' +` and `+ '` are signs of an expression. So is a `#` with a name, at the start or
/// after punctuation, in a text without placeholders. `issue#{n}` and `issue#tracker` are templates.
///
/// The attribute `#[redis_lock]` knows its parameters, and recognizes a `#` with the name of a parameter at
/// any place. A test of `redlock-axum` compares the two.
pub(super) fn template_for(text: &str) -> Option<String> {
    let is_quoted = text.starts_with('\'')
        || text.ends_with('\'')
        || text.contains("' +")
        || text.contains("+ '");
    if is_quoted || (!text.contains('{') && has_reference(text)) {
        return Some(translate(text).unwrap_or_else(|| "order:{id}".to_owned()));
    }
    None
}

/// Returns whether a `#` before a name is the first character or follows punctuation or a blank.
fn has_reference(text: &str) -> bool {
    let is_border = |c: char| c.is_ascii_punctuation() || c == ' ';
    text.match_indices('#').any(|(at, _)| {
        begins_as_name(&text[at + 1..]) && text[..at].chars().next_back().is_none_or(is_border)
    })
}

/// Translates texts and references, with or without `+` between them. Returns `None` for any other
/// expression.
fn translate(text: &str) -> Option<String> {
    if !text.contains('\'') {
        return translate_references(text);
    }
    let mut template = String::new();
    for part in text.split('+').map(str::trim) {
        if let Some(literal) = part.strip_prefix('\'').and_then(|part| part.strip_suffix('\'')) {
            template.push_str(&literal.replace('{', "{{").replace('}', "}}"));
        } else {
            template.push_str(&placeholder(part.strip_prefix('#')?)?);
        }
    }
    Some(template)
}

/// Translates `order:#id:paid`.
fn translate_references(text: &str) -> Option<String> {
    let mut pieces = text.split('#');
    let mut template = pieces.next()?.to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'));
        let (reference, after) = piece.split_at(end.unwrap_or(piece.len()));
        template.push_str(&placeholder(reference)?);
        template.push_str(after);
    }
    Some(template)
}

/// Returns the placeholder for a reference. A property such as `order.sku` becomes `{sku}`.
fn placeholder(reference: &str) -> Option<String> {
    let is_path = reference.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.')
        && reference.split('.').all(begins_as_name);
    let name = reference.rsplit('.').next()?;
    is_path.then(|| format!("{{{name}}}"))
}

fn begins_as_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_of_spring_is_translated() {
        for (text, template) in [
            ("'order:' + #id", "order:{id}"),
            ("'order:' + #id + ':paid'", "order:{id}:paid"),
            ("#id + ':order'", "{id}:order"),
            ("#shop + ':' + #id", "{shop}:{id}"),
            ("'order:'+#id", "order:{id}"),
            ("'orders'", "orders"),
            ("'{a}' + #user", "{{a}}{user}"),
            ("'stock:' + #item.sku", "stock:{sku}"),
            ("#id", "{id}"),
            ("order:#id", "order:{id}"),
            ("order:#id:paid", "order:{id}:paid"),
            ("order/#order.id", "order/{id}"),
            ("orders of #id", "orders of {id}"),
        ] {
            assert_eq!(template_for(text).as_deref(), Some(template), "{text}");
        }
        for text in [
            "'order:' + T(java.util.UUID).randomUUID()",
            "'a' + #id?.b",
            "'a' + #",
            "'",
            "#id:#4",
            "'a' + #.b",
        ] {
            assert_eq!(template_for(text).as_deref(), Some("order:{id}"), "{text}");
        }
    }

    #[test]
    fn a_template_with_a_number_sign_or_a_quote_inside_is_no_expression_of_spring() {
        for text in [
            "issue#{n}",
            "issue:#{n}",
            "#{n}",
            "issue#tracker",
            "заказ#номер",
            "shop:#berlin:{id}",
            "#",
            "a#",
            "a:#",
            "issue:#42",
            "it's:{n}",
            "order:{id}",
            "a+b",
            "{a}#{b}",
        ] {
            assert_eq!(template_for(text), None, "{text}");
        }
    }
}
