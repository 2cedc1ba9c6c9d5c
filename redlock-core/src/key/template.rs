//! Key templates: `order:{id:u64}`.

use std::fmt;
use std::str::FromStr;

use smallvec::SmallVec;

use super::builder::{KeyBuilder, PlaceholderKind};
use super::{KeyError, LockKey, RESERVED, part, placeholder};

/// A template of a key, with placeholders for values: `order:{id}`.
///
/// | placeholder | accepts | writes |
/// |---|---|---|
/// | `{name}` | any text that is not empty | the text, percent-encoded |
/// | `{name:u64}` | a whole number from 0 | the number in decimal, without sign and leading zeros |
/// | `{name:i64}` | a whole number | the number in decimal, without plus sign and leading zeros |
/// | `{name:uuid}` | a UUID, with or without hyphens, in any case | the UUID in lower case with hyphens (RFC 9562) |
/// | `{name:lower}` | any text that is not empty | the text in lower case, percent-encoded |
///
/// In place of a name, a placeholder may have a source of values with an argument, and a type as well:
///
/// | placeholder | the argument |
/// |---|---|
/// | `{header(x-user)}` | the name of a header: a token of RFC 9110 |
/// | `{query(tenant)}`, `{query(item):u64}` | the name of a query parameter: any text without braces, parentheses and control characters |
/// | `{ext(claims)}` | the name of a function that the application registers: letters, digits and `_` |
///
/// A layer and a table of policies take the value of such a placeholder from the request. [`render`](Self::render)
/// expects a value whose name is the whole text: `header(x-user)`.
///
/// Two placeholders must be separated by at least one character that no encoded value contains, such as
/// `:`.
///
/// Prefer typed placeholders for values that a client writes: `42`, `042` and `+42` are one number but
/// three texts, and a resource with three keys is not locked. `{{` and `}}` are literal braces.
///
/// A template in the expression language of Spring, such as `'order:' + #id`, is an error: it would be one
/// constant key. A template therefore neither begins nor ends with `'`, contains neither `' +` nor `+ '`, and a
/// template without braces has no `#` before a letter. `issue#{n}` is a template.
///
/// # Examples
///
/// ```
/// use redlock_core::KeyTemplate;
///
/// let template: KeyTemplate = "order:{id:u64}".parse()?;
/// let key = template.render([("id", "042")])?;
/// assert_eq!(key.as_str(), "order:42");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    source: String,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Placeholder { name: String, kind: PlaceholderKind },
}

impl KeyTemplate {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// Returns a [`TemplateError`] that names the mistake, its position, and the allowed form.
    pub fn new(template: &str) -> Result<Self, TemplateError> {
        if is_spring(template) {
            return Err(TemplateError::new(format!(
                "`{template}` is an expression of Spring, and would be one key for all requests; write `{{id}}` for \
                 `#id`, as in `order:{{id}}`"
            )));
        }
        let segments = parse(template)?;
        if matches!(segments.first(), Some(Segment::Literal(text)) if text.starts_with(RESERVED)) {
            return Err(TemplateError::new(
                "the key template begins with `redlock:`, which is reserved",
            ));
        }
        check_separated(&segments)?;
        Ok(Self { source: template.to_owned(), segments })
    }

    /// Returns the text of the template.
    pub fn as_str(&self) -> &str {
        &self.source
    }

    /// Returns the names of the placeholders, in order. A placeholder that occurs twice is returned
    /// twice. The name of `{header(x-user):lower}` is `header(x-user)`.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Literal(_) => None,
            Segment::Placeholder { name, .. } => Some(name.as_str()),
        })
    }

    /// Renders the key with these values, pairs of a name and a value. If two pairs have the same name,
    /// the first is used. Pairs whose name is not in the template are ignored.
    ///
    /// Reads each pair once, stops at the last pair that the template needs, and copies no value.
    ///
    /// # Errors
    ///
    /// * [`KeyError::UnknownPlaceholder`] if a placeholder has no value.
    /// * [`KeyError::EmptyPart`] if a value is empty.
    /// * [`KeyError::WrongType`] if a value does not have the type of its placeholder.
    /// * [`KeyError::ReservedPart`] if the key begins with `redlock:` because of a value.
    pub fn render<'v, V>(&self, values: V) -> Result<LockKey, KeyError>
    where
        V: IntoIterator<Item = (&'v str, &'v str)>,
    {
        let mut unread = values.into_iter();
        let mut read: SmallVec<[(&str, &str); 4]> = SmallVec::new();
        let mut key = KeyBuilder::new();
        for segment in &self.segments {
            let (name, kind) = match segment {
                Segment::Literal(text) => {
                    key = key.text(text);
                    continue;
                }
                Segment::Placeholder { name, kind } => (name, *kind),
            };
            let is_named = |(known, _): &(&str, &str)| known == name;
            let found = read.iter().copied().find(is_named);
            let next = || unread.by_ref().inspect(|pair| read.push(*pair)).find(is_named);
            let Some((_, value)) = found.or_else(next) else {
                return Err(KeyError::UnknownPlaceholder {
                    name: name.clone(),
                    available: read.iter().map(|(name, _)| (*name).to_owned()).collect(),
                });
            };
            key = key.part(name, kind, value);
        }
        key.finish()
    }
}

impl FromStr for KeyTemplate {
    type Err = TemplateError;

    fn from_str(template: &str) -> Result<Self, TemplateError> {
        Self::new(template)
    }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

/// The error of parsing a template. Its text names the mistake, its position, and the allowed form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateError(String);

impl TemplateError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

fn parse(template: &str) -> Result<Vec<Segment>, TemplateError> {
    if template.is_empty() {
        return Err(TemplateError::new("the key template is empty"));
    }
    let mut segments = Vec::new();
    let mut literal = String::new();
    let mut rest = template.char_indices().peekable();
    while let Some((index, character)) = rest.next() {
        match character {
            '{' | '}' if rest.next_if(|&(_, next)| next == character).is_some() => {
                literal.push(character);
            }
            '{' => {
                let inner_start = index + 1;
                let length = template[inner_start..]
                    .find(['{', '}'])
                    .filter(|&length| template.as_bytes()[inner_start + length] == b'}')
                    .ok_or_else(|| {
                        TemplateError::new(format!(
                            "the {{ at byte {index} of the key template is never closed; write {{{{ for a brace"
                        ))
                    })?;
                if !literal.is_empty() {
                    segments.push(Segment::Literal(std::mem::take(&mut literal)));
                }
                let inner = &template[inner_start..inner_start + length];
                segments.push(parse_placeholder(inner)?);
                while rest.next_if(|&(at, _)| at <= inner_start + length).is_some() {}
            }
            '}' => {
                return Err(TemplateError::new(format!(
                    "the }} at byte {index} of the key template was never opened; write }}}} for a brace"
                )));
            }
            _ if character.is_control() => {
                return Err(TemplateError::new(format!(
                    "the key template contains a control character at byte {index}"
                )));
            }
            _ => literal.push(character),
        }
    }
    if !literal.is_empty() {
        segments.push(Segment::Literal(literal));
    }
    Ok(segments)
}

/// Checks that a separator is between any two placeholders, so that values cannot move the border
/// between them (different values, different keys).
fn check_separated(segments: &[Segment]) -> Result<(), TemplateError> {
    let mut before = None;
    for segment in segments {
        match segment {
            Segment::Literal(text) if text.contains(part::is_separator) => before = None,
            Segment::Literal(_) => {}
            Segment::Placeholder { name, .. } => {
                if let Some(first) = before.replace(name) {
                    return Err(TemplateError::new(format!(
                        "nothing separates {{{first}}} from {{{name}}} in the key template; put a character between them \
                         that no value contains, such as `:`, `/` or `#`, but no letter, digit, -, ., _, ~ or %"
                    )));
                }
            }
        }
    }
    Ok(())
}

fn parse_placeholder(inner: &str) -> Result<Segment, TemplateError> {
    let (name, kind) = placeholder::split(inner);
    placeholder::check_name(name).map_err(TemplateError)?;
    let kind = match kind {
        None => PlaceholderKind::Text,
        Some(kind) => PlaceholderKind::from_name(kind).ok_or_else(|| {
            let known = PlaceholderKind::NAMES;
            TemplateError::new(format!(
                "`{kind}` is not a type for the placeholder {{{name}}}; there are {known}"
            ))
        })?,
    };
    Ok(Segment::Placeholder { name: name.to_owned(), kind })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, values: &[(&str, &str)]) -> Result<String, KeyError> {
        KeyTemplate::new(template)
            .unwrap()
            .render(values.iter().copied())
            .map(|key| key.as_str().to_owned())
    }

    #[test]
    fn values_are_inserted_and_encoded() {
        assert_eq!(render("order:{id}", &[("id", "42")]).unwrap(), "order:42");
        assert_eq!(render("{a}:{b}", &[("a", "x:y"), ("b", "{z}")]).unwrap(), "x%3Ay:%7Bz%7D");
        assert_eq!(render("plain", &[]).unwrap(), "plain");
        assert_eq!(render("{{{id}}}", &[("id", "7")]).unwrap(), "{7}");
        assert_eq!(render("ключ:{имя}", &[("имя", "а")]).unwrap(), "ключ:%D0%B0");
    }

    /// One resource, one key.
    #[test]
    fn a_typed_placeholder_writes_one_form_of_a_value() {
        for id in ["42", "042", "+42"] {
            assert_eq!(render("n:{id:u64}", &[("id", id)]).unwrap(), "n:42");
        }
        assert_eq!(render("n:{id:i64}", &[("id", "-007")]).unwrap(), "n:-7");
        assert_eq!(render("n:{code:lower}", &[("code", "SaLe")]).unwrap(), "n:sale");
        for id in ["67E55044-10B1-426F-9247-BB680E5FE0C8", "67e5504410b1426f9247bb680e5fe0c8"] {
            assert_eq!(
                render("n:{id:uuid}", &[("id", id)]).unwrap(),
                "n:67e55044-10b1-426f-9247-bb680e5fe0c8"
            );
        }
    }

    #[test]
    fn a_value_of_another_type_is_refused() {
        let wrong = |template: &str, value: &str| {
            let error = render(template, &[("id", value)]).unwrap_err();
            assert!(matches!(error, KeyError::WrongType { .. }), "{template} {value}: {error}");
        };
        for value in ["-1", "4.2", "x", " 42", "18446744073709551616", "4️⃣"] {
            wrong("n:{id:u64}", value);
        }
        wrong("n:{id:i64}", "9223372036854775808");
        for value in [
            "67e55044-10b1-426f-9247-bb680e5fe0c",
            "67e55044-10b1-426f-9247-bb680e5fe0cg",
            "67e5504410b1-426f-9247-bb680e5fe0c8-",
            "{67e55044-10b1-426f-9247-bb680e5fe0c8}",
            "{67e5504410b1426f9247bb680e5fe0c8}",
            "urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8",
        ] {
            wrong("n:{id:uuid}", value);
        }
        // Only a hyphen may stand between the groups. Otherwise two texts would give one key.
        for index in [8, 13, 18, 23] {
            for other in ["x", "a", "0", "_", " ", "+", "–"] {
                let mut value = "67e55044-10b1-426f-9247-bb680e5fe0c8".to_owned();
                value.replace_range(index..=index, other);
                wrong("n:{id:uuid}", &value);
            }
        }
        for separator in ["x", "0", "_"] {
            let value = ["67e55044", "10b1", "426f", "9247", "bb680e5fe0c8"].join(separator);
            wrong("n:{id:uuid}", &value);
        }
    }

    #[test]
    fn an_empty_or_missing_value_is_refused_by_name() {
        assert_eq!(
            render("n:{id}", &[("id", "")]),
            Err(KeyError::EmptyPart { name: Some("id".into()) })
        );
        assert_eq!(
            render("n:{idd}", &[("id", "1")]),
            Err(KeyError::UnknownPlaceholder { name: "idd".into(), available: vec!["id".into()] })
        );
    }

    #[test]
    fn each_mistake_in_a_template_has_its_message() {
        let message = |template: &str| KeyTemplate::new(template).unwrap_err().to_string();
        assert_eq!(message(""), "the key template is empty");
        assert_eq!(
            message("a{id"),
            "the { at byte 1 of the key template is never closed; write {{ for a brace"
        );
        assert_eq!(
            message("a{i{d}"),
            "the { at byte 1 of the key template is never closed; write {{ for a brace"
        );
        assert_eq!(
            message("a}"),
            "the } at byte 1 of the key template was never opened; write }} for a brace"
        );
        assert!(message("{}").starts_with("`` is not a placeholder's name"));
        assert!(message("{1a}").starts_with("`1a` is not a placeholder's name"));
        assert_eq!(
            message("{id:u46}"),
            "`u46` is not a type for the placeholder {id}; there are u64, i64, uuid, lower"
        );
        assert_eq!(
            message("{cookie(id)}"),
            "{cookie(id)} has no known source of values; the sources are header, query, ext"
        );
        assert_eq!(
            message("{header(x user):u64}"),
            "the argument of {header(x user)} cannot be used; write the name of a header, such as x-user"
        );
        for (template, second) in [("{a}{b}", "b"), ("{a}-{b}", "b"), ("{a}:{b}x.%9~_{c}", "c")] {
            let message = message(template);
            assert!(message.contains(&format!("from {{{second}}}")), "{message}");
        }
        assert_eq!(message("a\tb"), "the key template contains a control character at byte 1");
        for template in ["redlock:", "redlock:orders:{id}"] {
            assert_eq!(
                message(template),
                "the key template begins with `redlock:`, which is reserved"
            );
        }
    }

    /// Such a template would be one key for all requests.
    #[test]
    fn an_expression_of_spring_is_refused() {
        for text in
            ["'order:' + #id", "#id", "order:#id:paid", "'a'", "a' + b", "a + 'b", "issue#tracker"]
        {
            let error = KeyTemplate::new(text).unwrap_err().to_string();
            let start = format!("`{text}` is an expression of Spring");
            assert!(
                error.starts_with(&start) && error.contains("write `{id}` for `#id`"),
                "{error}"
            );
        }
        for text in
            ["issue#{n}", "#{n}", "shop:#berlin:{id}", "#", "a:#", "issue:#42", "it's:{n}", "a+b"]
        {
            assert!(KeyTemplate::new(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_value_that_makes_the_key_reserved_is_refused_by_name() {
        for (template, id) in [("{id}:orders", "redlock"), ("red{id}:{id}", "lock")] {
            let error = render(template, &[("id", id)]).unwrap_err();
            assert_eq!(error, KeyError::ReservedPart { name: Some("id".into()) });
        }
        for id in ["redlock:", "redlocks"] {
            assert!(render("{id}:orders", &[("id", id)]).is_ok(), "{id}");
        }
    }

    #[test]
    fn a_placeholder_with_a_source_takes_the_value_with_its_whole_name() {
        let values = [("x-user", "no"), ("header(x-user)", "A:b"), ("query(n:1)", "042")];
        assert_eq!(render("{header(x-user):lower}", &values).unwrap(), "a%3Ab");
        assert_eq!(render("{header(x-user)}:{query(n:1):u64}", &values).unwrap(), "A%3Ab:42");
        let error = render("{ext(claims)}", &values).unwrap_err().to_string();
        assert!(error.starts_with("the placeholder {ext(claims)} of"), "{error}");
        let template = KeyTemplate::new("{header(x-user):lower}").unwrap();
        assert_eq!(template.placeholders().collect::<Vec<_>>(), ["header(x-user)"]);
    }

    #[test]
    fn placeholders_are_listed_in_order() {
        let template = KeyTemplate::new("{b}:{a:u64}:{b}").unwrap();
        assert_eq!(template.placeholders().collect::<Vec<_>>(), ["b", "a", "b"]);
        assert_eq!(template.to_string(), "{b}:{a:u64}:{b}");
    }
}
