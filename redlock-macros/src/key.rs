//! The forms of `key` (a template, a template with values, an expression) and of `keys` (a template with an iterator, an
//! expression), and the code that makes the key.

use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Expr, ExprLit, Lit, LitStr, Stmt, Token};

use crate::hygiene::{local, mixed_span, span_at, with_span};
use crate::parameters::{Captured, Parameters};
use crate::template::{self, Piece, is_position};

/// The key as it was written.
pub(crate) enum Key {
    /// `key = "order:{id}"` or `key("stock:{}", order.sku)`.
    Template(Template),
    /// `key = <expression>`
    Expression(Expr),
    /// `keys("sku:{}", iterator)`: the template makes one key of each item of its first value.
    EachItem(Template),
    /// `keys = <expression>`
    List(Expr),
}

/// A template and its values, each of which is escaped.
pub(crate) struct Template {
    literal: LitStr,
    pieces: Vec<Piece>,
    values: Vec<TemplateValue>,
}

/// One value after the literal of `key("..", ..)`.
struct TemplateValue {
    name: Option<Ident>,
    value: Expr,
}

impl Key {
    /// Returns the text of the template, if there is one.
    pub(crate) fn template(&self) -> Option<String> {
        match self {
            Self::Template(template) | Self::EachItem(template) => Some(template.literal.value()),
            Self::Expression(_) | Self::List(_) => None,
        }
    }

    /// Parses the value after `key =`.
    pub(crate) fn from_value(value: Expr) -> syn::Result<Self> {
        let message = match without_wrappers(&value) {
            Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => {
                return Template::new(literal.clone(), None).map(Self::Template);
            }
            Expr::Lit(_) => "the lock key must be a text, such as `key = \"order:{id}\"`",
            Expr::Macro(concat)
                if concat.mac.path.segments.last().is_some_and(|last| last.ident == "concat") =>
            {
                "placeholders inside `concat!` are not filled in, so all values would share one key; write the template \
                 as one literal: `key = \"order:{id}\"`"
            }
            _ => return Ok(Self::Expression(value)),
        };
        Err(syn::Error::new_spanned(without_wrappers(&value), message))
    }

    /// Checks the value after `keys =`.
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

    /// Parses the arguments of `key(..)`.
    pub(crate) fn from_arguments(input: ParseStream<'_>) -> syn::Result<Self> {
        let (literal, values) = text_and_values(
            input,
            "`key(..)` begins with a text, as `format!` does: `key(\"stock:{}\", order.sku)`",
        )?;
        Template::new(literal, Some(values)).map(Self::Template)
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
        let template = Template::new(literal, Some(values))?;
        let positions: BTreeSet<_> = template
            .placeholders()
            .map(|(name, _)| name)
            .filter(|name| is_position(name))
            .collect();
        if positions.is_empty() {
            return Err(syn::Error::new(
                span,
                "the text of `keys(..)` has no `{}` for the items of the iterator, so all of them would have \
                 one key",
            ));
        }
        if positions.iter().any(|position| *position != "0") {
            return Err(syn::Error::new(
                span,
                "`keys(..)` has one iterator, so its text has one `{}`; use `{0}` to repeat the item",
            ));
        }
        Ok(Self::EachItem(template))
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Self::EachItem(_) | Self::List(_))
    }

    /// Collects the names to which the key refers.
    pub(crate) fn collect_names(&self, names: &mut BTreeSet<String>) {
        match self {
            Self::Expression(value) | Self::List(value) => collect_names(value, names),
            Self::Template(template) | Self::EachItem(template) => {
                names.extend(template.placeholders().map(|(name, _)| name.to_owned()));
                template.values.iter().for_each(|value| collect_names(&value.value, names));
            }
        }
    }

    /// Returns the statements of a block of type `Result<LockKey, KeyError>` or `Result<Keys, KeyError>`, where `private`
    /// is `redlock_axum::__private`.
    pub(crate) fn code(
        &self,
        private: &TokenStream,
        parameters: &Parameters<'_>,
    ) -> syn::Result<TokenStream> {
        let made = match self {
            Self::Template(template) => template.code(private, parameters, None)?,
            Self::Expression(value) => {
                let key = with_span(span_at(value), quote!(#private::key));
                quote_spanned!(span_at(value)=> #key(&#value))
            }
            Self::List(value) => {
                let keys = with_span(span_at(value), quote!(#private::key_list));
                quote!(#keys(#value))
            }
            Self::EachItem(template) => {
                template.code(private, parameters, Some(&template.values[0].value))?
            }
        };
        // As the tail of a block, the value would keep its temporaries for longer than the block's variables.
        let key = local("key");
        Ok(quote_spanned!(mixed_span()=> let #key = #made; #key))
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
    /// Parses a template. Without `values`, it has no positions.
    fn new(literal: LitStr, values: Option<Vec<TemplateValue>>) -> syn::Result<Self> {
        let error = |message: String| syn::Error::new(literal.span(), message);
        let mut pieces = template::parse(&literal.value()).map_err(error)?;
        let takes_values = values.is_some();
        let values = values.unwrap_or_default();
        let mut next = 0..;
        let mut is_used = vec![false; values.len()];
        for piece in &mut pieces {
            let Piece::Placeholder { name, .. } = piece else { continue };
            if is_position(name) && !takes_values {
                return Err(error(format!(
                    "`{{{name}}}` names no parameter; write one's name, as in `key = \"order:{{id}}\"`, \
                     or give a value: `key(\"order:{{}}\", order.id)`"
                )));
            }
            if name.is_empty() {
                *name = next.next().unwrap_or(0).to_string();
            }
            let given = values.iter().position(|value| value.is_named(name));
            let position = if is_position(name) { name.parse().ok() } else { given };
            match position.map(|position| is_used.get_mut(position)) {
                None => {}
                Some(Some(is_used)) => *is_used = true,
                Some(None) => {
                    return Err(error(format!(
                        "the placeholder at position {name} has no value; the number of values is {}; use `{{0}}` to \
                         repeat the first one",
                        values.len()
                    )));
                }
            }
        }
        if let Some(unused) = is_used.iter().position(|is_used| !is_used) {
            return Err(syn::Error::new_spanned(
                &values[unused].value,
                "the text of the key has no placeholder for this value; add a placeholder, or remove the \
                 value",
            ));
        }
        Ok(Self { literal, pieces, values })
    }

    /// Returns the name or the position, and the type of each placeholder.
    fn placeholders(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Placeholder { name, kind } => Some((&**name, *kind)),
        })
    }

    /// Returns the expression that builds the key, or a key of each item of `items`, which takes the place of the first
    /// value.
    fn code(
        &self,
        private: &TokenStream,
        parameters: &Parameters<'_>,
        items: Option<&Expr>,
    ) -> syn::Result<TokenStream> {
        let Self { literal, pieces, values } = self;
        let mut calls = Vec::new();
        for piece in pieces {
            let (name, kind) = match piece {
                Piece::Text(text) => {
                    calls.push(quote!(.text(#text)));
                    continue;
                }
                Piece::Placeholder { name, kind } => (name, *kind),
            };
            let position = values.iter().position(|value| value.is_named(name));
            let position = if is_position(name) { name.parse().ok() } else { position };
            let value = match position {
                Some(position) => local(format_args!("value{position}")),
                None => match parameters.captured(name, literal.span())? {
                    Captured::Parameter(parameter) => {
                        let mut parameter = parameter.clone();
                        parameter.set_span(parameter.span().located_at(literal.span()));
                        parameter
                    }
                    Captured::Constant(constant) if kind == "Text" => {
                        // In a `const` block only a constant compiles, never a value of the request.
                        calls.push(
                            quote_spanned!(span_at(literal)=> .constant(const { &#constant })),
                        );
                        continue;
                    }
                    Captured::Constant(constant) => {
                        return Err(syn::Error::new(
                            literal.span(),
                            format!(
                                "`{constant}` is a constant, which has no type: its value is inserted unchanged; write \
                                 `{{{constant}}}`"
                            ),
                        ));
                    }
                },
            };
            let kind = Ident::new(kind, span_at(literal));
            let span =
                position.map_or(span_at(literal), |position| span_at(&values[position].value));
            calls.push(quote_spanned!(span=> .part(#name, #private::Kind::#kind, &#value)));
        }
        let mut key = quote!(#private::KeyBuilder::new() #(#calls)* .finish());
        if let Some(items) = items {
            let (keys, item) = (with_span(span_at(items), quote!(#private::keys)), local("value0"));
            key = quote!(#keys(#items, |#item| #key));
        }
        // Each value is evaluated once, however often it is used. In a `match`, unlike in a `let`, a value may borrow
        // from a temporary, such as a guard.
        let values = values.iter().enumerate().skip(usize::from(items.is_some()));
        let (names, values): (Vec<_>, Vec<_>) = values
            .map(|(position, TemplateValue { value, .. })| {
                (local(format_args!("value{position}")), quote_spanned!(span_at(value)=> &#value))
            })
            .unzip();
        if values.is_empty() {
            return Ok(key);
        }
        Ok(quote_spanned!(mixed_span()=> match (#(#values,)*) { (#(#names,)*) => #key }))
    }
}

impl TemplateValue {
    fn is_named(&self, name: &str) -> bool {
        self.name.as_ref().is_some_and(|given| given.unraw() == name)
    }
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

/// Collects the names to which an expression may refer: its identifiers, except fields and methods, and the words of
/// its texts, because `format!` captures names. A name too many does no harm; a missing name would.
pub(crate) fn collect_names(expression: impl ToTokens, names: &mut BTreeSet<String>) {
    let mut after_dot = false;
    for token in expression.into_token_stream() {
        let follows_dot = std::mem::take(&mut after_dot);
        match token {
            TokenTree::Ident(ident) if !follows_dot => {
                names.insert(ident.unraw().to_string());
            }
            TokenTree::Ident(_) => {}
            TokenTree::Group(group) => collect_names(group.stream(), names),
            // `a..b` is a range, not a field.
            TokenTree::Punct(punct) => after_dot = punct.as_char() == '.' && !follows_dot,
            TokenTree::Literal(literal) => {
                if let Lit::Str(text) = Lit::new(literal) {
                    let text = text.value();
                    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
                    names.extend(words.map(|word| {
                        word.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned()
                    }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use syn::parse::Parser;

    use super::*;

    fn template(text: &str) -> syn::Result<Template> {
        Key::from_value(syn::parse_str(text).unwrap()).map(of_template)
    }

    fn with_values(tokens: TokenStream) -> syn::Result<Template> {
        Key::from_arguments.parse2(tokens).map(of_template)
    }

    fn of_template(key: Key) -> Template {
        match key {
            Key::Template(template) => template,
            _ => panic!("not a template"),
        }
    }

    fn placeholders(template: &Template) -> Vec<&str> {
        template.placeholders().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_text_in_parentheses_is_a_template() {
        for text in [r#"("a:{id}")"#, r#"&"a:{id}""#, r#"{ "a:{id}" }"#, r#"&({ ("a:{id}") })"#] {
            assert_eq!(placeholders(&template(text).unwrap()), ["id"], "{text}");
        }
    }

    #[test]
    fn an_expression_is_left_alone() {
        for text in [r#"format!("order:{id:?}")"#, "KEY", "(KEY)", "order.key()"] {
            let key = Key::from_value(syn::parse_str(text).unwrap()).unwrap();
            assert!(matches!(key, Key::Expression(_)), "{text}");
        }
    }

    #[test]
    fn values_have_positions_or_names() {
        let template =
            with_values(quote!("{}:{0}:{sku}:{id}/{}", order.no, a == b, sku = order.sku,))
                .unwrap();
        assert_eq!(placeholders(&template), ["0", "0", "sku", "id", "1"]);
        assert_eq!(template.values.iter().filter(|value| value.name.is_some()).count(), 1);
    }

    #[test]
    fn each_value_has_a_placeholder_and_each_position_a_value() {
        let message = |tokens| with_values(tokens).err().unwrap().to_string();
        for tokens in [quote!("{:u64}:{}", a), quote!("{0}:{1}", a)] {
            assert!(message(tokens).starts_with("the placeholder at position 1 has no value"));
        }
        for tokens in [quote!("{}", a, b), quote!("{0:lower}", a, n = b), quote!("a", b)] {
            let unused = "the text of the key has no placeholder for this value";
            assert!(message(tokens).starts_with(unused));
        }
    }

    #[test]
    fn each_mistake_has_its_message() {
        for (text, message) in [
            (r#""a:{}""#, "`{}` names no parameter"),
            (r#""a:{0}""#, "`{0}` names no parameter"),
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
            (quote!("{}:{}", skus, a = b), "`keys(..)` has one iterator, so its text"),
            (quote!("{}:{}", skus), "the placeholder at position 1 has no value"),
            (quote!("sku:{a}", skus, a = b), "the text of the key has no placeholder for this"),
            (quote!("redlock:{}", skus), "the lock key begins with `redlock:`"),
        ] {
            let error = parse(tokens).err().unwrap().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn names_are_found_in_expressions_and_in_their_format_strings() {
        let mut names = BTreeSet::new();
        collect_names(quote!(format!("{id:?}:{n}", x = order.sku[from..to])), &mut names);
        collect_names(quote!(format!("{n:x>width$} {n:#08_w$} {n:+.precision$e}")), &mut names);
        let expected =
            ["_w", "format", "from", "id", "n", "order", "precision", "to", "width", "x"];
        assert_eq!(expected.iter().find(|name| !names.contains(**name)), None, "{names:?}");
        assert!(!names.contains("sku"), "{names:?}");
    }
}
