//! Parses the three forms of `key` (a template, a template with values, an expression), and the two of `keys`
//! (a template with an iterator, an expression).

use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, ExprLit, Lit, LitStr, Path, Stmt, Token};

use crate::key_text::{KINDS, offset, placeholders, unseparated};

/// The key as it was written.
pub(crate) enum Key {
    /// `key = "order:{id}"` or `key("stock:{}", order.sku)`.
    Template(Template),
    /// `key = <expression>`.
    Expression(Expr),
    /// `keys("sku:{}", iterator)`: the template makes one key of each item of its first value.
    EachItem(Template),
    /// `keys = expression`
    List(Expr),
}

/// A format string and its values, each of which is escaped.
#[derive(Clone)]
pub(crate) struct Template {
    pub(crate) literal: LitStr,
    pub(crate) values: Vec<TemplateValue>,
    /// The names in the literal that are not names of `values`. They are names of parameters or constants.
    pub(crate) captured: BTreeSet<String>,
    /// The placeholders, in order.
    pub(crate) placeholders: Vec<Placeholder>,
}

/// A placeholder of a template.
#[derive(Clone)]
pub(crate) struct Placeholder {
    /// The name or the position, for error messages.
    pub(crate) name: String,
    pub(crate) source: Source,
    /// The type: a variant of `PlaceholderKind` in `redlock-core`.
    pub(crate) kind: Option<&'static str>,
}

/// The origin of a placeholder's value.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// The position of a value after the literal.
    Value(usize),
    /// The name of a parameter or a constant.
    Captured,
}

/// One value after the literal of `key("..", ..)`.
#[derive(Clone)]
pub(crate) struct TemplateValue {
    pub(crate) name: Option<Ident>,
    pub(crate) value: Expr,
}

impl Key {
    /// Parses the value after `key =`.
    pub(crate) fn from_value(value: Expr) -> syn::Result<Self> {
        match without_wrappers(&value) {
            Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => {
                Template::new(literal.clone(), None).map(Self::Template)
            }
            Expr::Lit(other) => Err(syn::Error::new_spanned(
                other,
                "the lock key must be a text, such as `key = \"order:{id}\"`",
            )),
            Expr::Macro(concat) if is_concat(&concat.mac.path) => Err(syn::Error::new_spanned(
                concat,
                "placeholders inside `concat!` are not filled in, so all values would share one key; \
                 write the template as one literal: `key = \"order:{id}\"`",
            )),
            _ => Ok(Self::Expression(value)),
        }
    }

    /// Checks the value of `keys = ..`.
    pub(crate) fn from_list(value: Expr) -> syn::Result<Self> {
        match without_wrappers(&value) {
            Expr::Lit(literal) => Err(syn::Error::new_spanned(
                literal,
                "`keys` is a list of keys, such as `keys = cart.keys()`; a template has an iterator over its \
                 values: `keys(\"sku:{}\", cart.skus())`",
            )),
            _ => Ok(Self::List(value)),
        }
    }

    /// Parses the arguments of `keys(..)`.
    pub(crate) fn from_items(input: ParseStream<'_>) -> syn::Result<Self> {
        let (literal, values) = text_and_values(
            input,
            "`keys(..)` begins with a text, and an iterator follows: `keys(\"sku:{}\", cart.skus())`",
        )?;
        let span = literal.span();
        let [first, others @ ..] = &*values else {
            return Err(syn::Error::new(
                span,
                "`keys(..)` needs an iterator after the text: `keys(\"sku:{}\", cart.skus())`; for one key \
                 write `key = ..`",
            ));
        };
        if let Some(name) = &first.name {
            return Err(syn::Error::new(
                name.span(),
                "the first value of `keys(..)` is the iterator, which has no name: \
                 `keys(\"{shop}:{}\", cart.skus(), shop = cart.shop)`",
            ));
        }
        if let Some(second) = others.iter().find(|value| value.name.is_none()) {
            return Err(syn::Error::new_spanned(
                &second.value,
                "`keys(..)` has one iterator; give every other value a name: \
                 `keys(\"{shop}:{}\", cart.skus(), shop = cart.shop)`",
            ));
        }
        let text = literal.value();
        let names =
            placeholders(&text).into_iter().map(|name| name.split(':').next().unwrap_or(name));
        let positions: Vec<_> = names.filter(|name| is_position(name)).collect();
        if positions.is_empty() {
            return Err(syn::Error::new(
                span,
                "the text of `keys(..)` has no `{}` for the items of the iterator, so all of them would have \
                 one key",
            ));
        }
        let unnumbered = positions.iter().filter(|position| position.is_empty()).count();
        if unnumbered > 1 || positions.iter().any(|position| !["", "0"].contains(position)) {
            return Err(syn::Error::new(
                span,
                "`keys(..)` has one iterator, so its text has one `{}`; use `{0}` to repeat the item",
            ));
        }
        let template = Template::new(literal, Some(values))?;
        Ok(Self::EachItem(template))
    }

    /// Returns the template, if the key has one.
    pub(crate) fn template(&self) -> Option<&Template> {
        match self {
            Self::Template(template) | Self::EachItem(template) => Some(template),
            Self::Expression(_) | Self::List(_) => None,
        }
    }

    /// Parses the arguments of `key(..)`.
    pub(crate) fn from_arguments(input: ParseStream<'_>) -> syn::Result<Self> {
        let (literal, values) = text_and_values(
            input,
            "`key(..)` begins with a text, as `format!` does: `key(\"stock:{}\", order.sku)`",
        )?;
        Template::new(literal, Some(values)).map(Self::Template)
    }
}

/// Parses a text and the values after it. `no_text` is the message if there is no text.
fn text_and_values(
    input: ParseStream<'_>,
    no_text: &str,
) -> syn::Result<(LitStr, Vec<TemplateValue>)> {
    let literal: LitStr = input.parse().map_err(|error| syn::Error::new(error.span(), no_text))?;
    let mut values = Vec::new();
    while !input.is_empty() {
        input.parse::<Token![,]>()?;
        if input.is_empty() {
            break;
        }
        let is_named = input.peek2(Token![=]) && !input.peek2(Token![==]);
        let name = if is_named {
            let name = input.call(Ident::parse_any)?;
            input.parse::<Token![=]>()?;
            Some(name)
        } else {
            None
        };
        values.push(TemplateValue { name, value: input.parse()? });
    }
    Ok((literal, values))
}

impl Template {
    /// Returns the name or position of the first placeholder.
    pub(crate) fn first_placeholder(&self) -> Option<&str> {
        self.placeholders.first().map(|placeholder| &*placeholder.name)
    }

    /// Returns whether a placeholder has a type.
    pub(crate) fn is_typed(&self) -> bool {
        self.placeholders.iter().any(|placeholder| placeholder.kind.is_some())
    }

    /// Returns the literal with `{}` for each placeholder.
    pub(crate) fn positional_literal(&self) -> LitStr {
        let text = self.literal.value();
        let mut positional = String::with_capacity(text.len());
        let mut rest = 0;
        for placeholder in placeholders(&text) {
            let start = offset(&text, placeholder);
            positional.push_str(&text[rest..start]);
            rest = start + placeholder.len();
        }
        positional.push_str(&text[rest..]);
        LitStr::new(&positional, self.literal.span())
    }

    fn new(literal: LitStr, values: Option<Vec<TemplateValue>>) -> syn::Result<Self> {
        let text = literal.value();
        let error = |message: String| Err(syn::Error::new(literal.span(), message));
        if text.is_empty() {
            return error("the lock key is empty".to_owned());
        }
        if text.contains(char::is_control) {
            return error("the lock key contains a control character".to_owned());
        }
        if text.starts_with("redlock:") {
            return error("the lock key begins with `redlock:`, which is reserved".to_owned());
        }
        if let Some((first, second)) = unseparated(&text) {
            return error(format!(
                "nothing separates `{{{first}}}` from `{{{second}}}`, so that different values could \
                 give one key; put a character between them that no value contains, such as `:`, \
                 but no letter, digit, `-`, `.`, `_`, `~` or `%`"
            ));
        }
        let takes_values = values.is_some();
        let values = values.unwrap_or_default();
        let mut captured = BTreeSet::new();
        let mut parsed = Vec::new();
        let mut next_position = 0;
        for placeholder in placeholders(&text) {
            if ["header(", "query(", "ext("].iter().any(|source| placeholder.starts_with(source)) {
                return error(format!(
                    "`{{{placeholder}}}` is a placeholder of a layer or a policy; a handler takes the value \
                     by an extractor, and the key names that parameter: `key(\"user:{{}}\", user.id)`"
                ));
            }
            let (name, kind) = placeholder
                .split_once(':')
                .map_or((placeholder, None), |(name, kind)| (name, Some(kind)));
            let Ok(kind) = kind.map(placeholder_kind).transpose() else {
                return error(format!(
                    "`{{{placeholder}}}`: the types of a placeholder are `u64`, `i64`, `uuid` and `lower`, \
                     and it has no format specification; for a formatted key write \
                     `key = format!(..)`, which escapes nothing"
                ));
            };
            let mut add = |name: &str, source| {
                parsed.push(Placeholder { name: name.to_owned(), source, kind });
            };
            if name == "self" {
                return error(
                    "`{self}` cannot stand in a lock key; name what identifies it: \
                     `key(\"stock:{}\", self.id)`"
                        .to_owned(),
                );
            }
            if is_position(name) {
                if takes_values {
                    let position = name.parse().unwrap_or_else(|_| {
                        next_position += 1;
                        next_position - 1
                    });
                    add(&position.to_string(), Source::Value(position));
                    continue;
                }
                return error(format!(
                    "`{{{name}}}` names no parameter; write one's name, as in `key = \"order:{{id}}\"`, \
                     or give a value: `key(\"order:{{}}\", order.id)`"
                ));
            }
            if !is_name(name) {
                return error(format!(
                    "`{{{name}}}` is not a placeholder's name; a name is made of letters, digits \
                     and _, without blanks, and does not start with a digit; give any other value \
                     after the text: `key(\"stock:{{}}\", order.sku)`"
                ));
            }
            let is_given = |value: &TemplateValue| {
                value.name.as_ref().is_some_and(|given| given.unraw() == name)
            };
            if let Some(position) = values.iter().position(is_given) {
                add(name, Source::Value(position));
            } else {
                captured.insert(name.to_owned());
                add(name, Source::Captured);
            }
        }
        let template = Self { literal, values, captured, placeholders: parsed };
        template.check_positions()?;
        Ok(template)
    }

    /// Checks that each value has a placeholder. In a template with types, which `format!` does not see, also checks
    /// that each position has a value.
    fn check_positions(&self) -> syn::Result<()> {
        let positions: BTreeSet<_> = self
            .placeholders
            .iter()
            .filter_map(|placeholder| match placeholder.source {
                Source::Value(position) => Some(position),
                Source::Captured => None,
            })
            .collect();
        let count = self.values.len();
        let missing = positions.iter().find(|position| **position >= count);
        if let Some(missing) = missing.filter(|_| self.is_typed()) {
            return Err(syn::Error::new(
                self.literal.span(),
                format!(
                    "the placeholder at position {missing} has no value; the number of values is {count}"
                ),
            ));
        }
        for (position, TemplateValue { value, .. }) in self.values.iter().enumerate() {
            if !positions.contains(&position) {
                return Err(syn::Error::new_spanned(
                    value,
                    "the text of the key has no placeholder for this value; add a placeholder, or remove the \
                     value",
                ));
            }
        }
        Ok(())
    }
}

/// Returns the variant of `PlaceholderKind` for the name of a type.
fn placeholder_kind(name: &str) -> Result<&'static str, ()> {
    KINDS.into_iter().find(|(known, _)| *known == name).map(|(_, variant)| variant).ok_or(())
}

fn is_position(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_digit())
}

/// Returns whether the text is exactly an identifier. `format!` accepts more, such as `{id }`, and would
/// capture the value without escaping it.
fn is_name(name: &str) -> bool {
    Ident::parse_any.parse_str(name).is_ok_and(|ident| ident != "_" && ident.unraw() == name)
}

/// Removes the invisible groups that `macro_rules!` puts around its fragments.
pub(crate) fn ungrouped(mut value: &Expr) -> &Expr {
    while let Expr::Group(group) = value {
        value = &group.expr;
    }
    value
}

/// Removes parentheses, braces and `&` around an expression, which do not change the meaning of a text.
fn without_wrappers(value: &Expr) -> &Expr {
    match value {
        Expr::Group(group) => without_wrappers(&group.expr),
        Expr::Paren(inner) => without_wrappers(&inner.expr),
        Expr::Reference(reference) => without_wrappers(&reference.expr),
        Expr::Block(block) => match &*block.block.stmts {
            [Stmt::Expr(inner, None)] => without_wrappers(inner),
            _ => value,
        },
        _ => value,
    }
}

fn is_concat(path: &Path) -> bool {
    path.segments.last().is_some_and(|last| last.ident == "concat")
}

/// Collects the names to which an expression may refer: its identifiers, except fields and methods, and
/// the names that a format string in it captures. A name too many does no harm; a missing name would.
pub(crate) fn collect_names(tokens: TokenStream, names: &mut BTreeSet<String>) {
    let mut after_dot = false;
    for token in tokens {
        let follows_dot = std::mem::take(&mut after_dot);
        match token {
            TokenTree::Ident(ident) if !follows_dot => {
                names.insert(ident.unraw().to_string());
            }
            TokenTree::Group(group) => collect_names(group.stream(), names),
            TokenTree::Punct(punct) => {
                // `a..b` is a range, not a field.
                after_dot = punct.as_char() == '.' && !follows_dot;
            }
            TokenTree::Literal(literal) => {
                if let Lit::Str(text) = Lit::new(literal) {
                    for placeholder in placeholders(&text.value()) {
                        names.extend(words(placeholder));
                    }
                }
            }
            TokenTree::Ident(_) => {}
        }
    }
}

/// Returns the words of a placeholder: `id` and `width` for `{id:>08width$}`.
fn words(placeholder: &str) -> impl Iterator<Item = String> {
    placeholder
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .map(|word| word.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned())
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use quote::quote;
    use syn::parse::Parser;

    use super::*;

    fn template(text: &str) -> syn::Result<Template> {
        match Key::from_value(syn::parse_str(text).unwrap())? {
            Key::Template(template) => Ok(template),
            _ => panic!("not a template: {text}"),
        }
    }

    fn with_values(tokens: TokenStream) -> syn::Result<Template> {
        match Key::from_arguments.parse2(tokens)? {
            Key::Template(template) => Ok(template),
            _ => unreachable!(),
        }
    }

    fn captured(template: &Template) -> Vec<&str> {
        template.captured.iter().map(String::as_str).collect()
    }

    #[test]
    fn placeholders_must_be_separated() {
        for text in ["{a}{b}", "{a}-{b}", "x:{a}y{b}", "{a}:{b}_.~%{c}"] {
            assert!(unseparated(text).is_some(), "{text}");
        }
        for text in ["{a}:{b}", "{a}-/-{b}", "{a}{{{b}", "{a}}}{b}", "{a}é{b}", "{a}-x", "a"] {
            assert_eq!(unseparated(text), None, "{text}");
        }
    }

    /// `format!` accepts some of these names, and would capture the value without its encoding.
    #[test]
    fn a_placeholder_must_be_exactly_an_identifier() {
        for name in ["a ", " a", "a\u{a0}", " ", "0 ", "a/**/", "r#a", "r#type", "a b", "1a", "_ "]
        {
            let text = format!("pair:{{{name}}}:{{b}}");
            let message = Template::new(syn::parse_quote!(#text), None).err().unwrap().to_string();
            let start = format!("`{{{name}}}` is not a placeholder's name; a name is made of");
            assert!(message.starts_with(&start), "{message}");
        }
    }

    #[test]
    fn a_template_captures_its_names_and_skips_escaped_braces() {
        let template = template(r#""{{x}}:{b}:{a}:{b}""#).unwrap();
        assert_eq!(captured(&template), ["a", "b"]);
    }

    #[test]
    fn a_text_in_parentheses_is_a_template() {
        for text in [r#"("a:{id}")"#, r#"&"a:{id}""#, r#"{ "a:{id}" }"#, r#"&({ ("a:{id}") })"#] {
            assert_eq!(captured(&template(text).unwrap()), ["id"], "{text}");
        }
    }

    #[test]
    fn a_given_value_is_not_captured() {
        let template =
            with_values(quote!("{}:{0}:{sku}:{id}", order.no, sku = order.sku,)).unwrap();
        assert_eq!(captured(&template), ["id"]);
        assert_eq!(template.values.len(), 2);
    }

    #[test]
    fn a_comparison_is_not_a_named_value() {
        let template = with_values(quote!("{}", a == b)).unwrap();
        assert!(template.values[0].name.is_none());
    }

    #[test]
    fn an_expression_is_left_alone() {
        for text in [r#"format!("order:{id:?}")"#, "KEY", "(KEY)", "order.key()"] {
            let key = Key::from_value(syn::parse_str(text).unwrap()).unwrap();
            assert!(matches!(key, Key::Expression(_)), "{text}");
        }
    }

    #[test]
    fn each_mistake_has_its_message() {
        for (text, message) in [
            (r#""""#, "the lock key is empty"),
            (r#""a\n""#, "the lock key contains a control character"),
            (r#""redlock:{id}""#, "the lock key begins with `redlock:`, which is reserved"),
            (r#""a:{id:?}""#, "`{id:?}`: the types of a placeholder are `u64`, `i64`, `uuid` and"),
            (r#""a:{id:>5}""#, "`{id:>5}`: the types of a placeholder are"),
            (r#""a:{id:}""#, "`{id:}`: the types of a placeholder are"),
            (r#""a:{id:u32}""#, "`{id:u32}`: the types of a placeholder are"),
            (r#""a:{}""#, "`{}` names no parameter"),
            (r#""a:{0}""#, "`{0}` names no parameter"),
            (r#""a:{self}""#, "`{self}` cannot stand in a lock key"),
            (r#""a:{order.sku}""#, "`{order.sku}` is not a placeholder's name"),
            (r#""a:{header(b)}""#, "`{header(b)}` is a placeholder of a layer or a policy"),
            (r#""{query(b)}:a""#, "`{query(b)}` is a placeholder of a layer or a policy"),
            (r#""a:{ext(b)}""#, "`{ext(b)}` is a placeholder of a layer or a policy"),
            (
                r#""{a}-{b}""#,
                "nothing separates `{a}` from `{b}`, so that different values could give",
            ),
            ("42", "the lock key must be a text"),
            ("(42)", "the lock key must be a text"),
            (r#"concat!("order:", "{id}")"#, "placeholders inside `concat!` are not filled in"),
            (r#"&(std::concat!("order:{id}"))"#, "placeholders inside `concat!` are not filled in"),
        ] {
            let error = template(text).err().unwrap().to_string();
            assert!(error.starts_with(message), "{text}: {error}");
        }
        let error = with_values(quote!(id)).err().unwrap().to_string();
        assert!(error.starts_with("`key(..)` begins with a text"), "{error}");
        let error = Key::from_list(syn::parse_quote!("sku:{}")).err().unwrap().to_string();
        assert!(error.starts_with("`keys` is a list of keys"), "{error}");
    }

    #[test]
    fn a_typed_template_needs_a_value_for_each_position_and_a_position_for_each_value() {
        let message = |tokens| with_values(tokens).err().unwrap().to_string();
        let missing = "the placeholder at position 1 has no value; the number of values is 1";
        for tokens in [quote!("{:u64}:{}", a), quote!("{0:u64}:{1}", a)] {
            assert_eq!(message(tokens), missing);
        }
        for tokens in [quote!("{:u64}", a, b), quote!("{0:lower}", a, n = b)] {
            let unused = "the text of the key has no placeholder for this value";
            assert!(message(tokens).starts_with(unused));
        }
        let template = with_values(quote!("{{x}}:{:u64}/{n:lower}:{0}#{id}", a, n = b)).unwrap();
        assert_eq!(template.positional_literal().value(), "{{x}}:{}/{}:{}#{}");
        assert_eq!(captured(&template), ["id"]);
    }

    #[test]
    fn names_are_found_in_expressions_and_in_their_format_strings() {
        let mut names = BTreeSet::new();
        collect_names(quote!(format!("{id:?}:{{no}}{n}", x = order.sku[from..to])), &mut names);
        collect_names(quote!(format!("{n:x>width$} {n:#08_w$} {n:+.precision$e}")), &mut names);
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let parameters =
            ["_w", "format", "from", "id", "n", "order", "precision", "to", "width", "x"];
        assert_eq!(parameters.iter().find(|name| !names.contains(name)), None, "{names:?}");
        assert!(!names.contains(&"no") && !names.contains(&"sku"), "{names:?}");
    }

    #[test]
    fn keys_need_one_iterator_and_a_placeholder_for_its_items() {
        let parse = |tokens| Key::from_items.parse2(tokens);
        for tokens in [
            quote!("sku:{}", skus),
            quote!("{shop}:{}", cart.skus(), shop = cart.shop),
            quote!("{0}:{0:lower}/{tenant}", skus,),
        ] {
            assert!(matches!(parse(tokens), Ok(Key::EachItem(_))));
        }
        for (tokens, message) in [
            (quote!(skus), "`keys(..)` begins with a text"),
            (quote!("sku:{}"), "`keys(..)` needs an iterator"),
            (quote!("sku:{a}", a = skus), "the first value of `keys(..)` is the iterator"),
            (quote!("{}:{}", skus, sizes), "`keys(..)` has one iterator; give every other value"),
            (quote!("{}:{}", skus), "`keys(..)` has one iterator, so its text"),
            (quote!("sku:{1}", skus), "`keys(..)` has one iterator, so its text"),
            (quote!("sku", skus), "the text of `keys(..)` has no `{}`"),
            (quote!("sku:{sku}", skus), "the text of `keys(..)` has no `{}`"),
            (quote!("redlock:{}", skus), "the lock key begins with `redlock:`"),
        ] {
            let error = parse(tokens).err().unwrap().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
