//! Generates the code that makes the key.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Expr, ExprReference, Token, parse_quote};

use crate::bindings::Captured;
use crate::expand::Expansion;
use crate::hygiene::{local, mixed_span, span_at};
use crate::key::{Key, Placeholder, Source, Template, TemplateValue};

impl Expansion<'_> {
    /// Returns an expression of type `Result<LockKey, KeyError>`.
    pub(crate) fn key(&self) -> syn::Result<TokenStream> {
        let Self { private, .. } = self;
        Ok(match &self.arguments.key {
            Key::Expression(expression) => {
                let key = reference(expression);
                quote_spanned!(span_at(expression)=> #private::key(#key))
            }
            Key::Template(template) => self.template_key(template)?,
            Key::List(list) => {
                quote_spanned!(span_at(list)=> #private::key_list(#list))
            }
            Key::EachItem(template) => {
                let item = local("item");
                let mut of_item = template.clone();
                let items = std::mem::replace(&mut of_item.values[0].value, parse_quote!(#item));
                let key = self.template_key(&of_item)?;
                quote_spanned!(span_at(&items)=> #private::keys(#items, |#item| #key))
            }
        })
    }

    /// Returns the expression for the key of a template.
    fn template_key(&self, template: &Template) -> syn::Result<TokenStream> {
        let Self { private, .. } = self;
        let Template { literal, values, captured, .. } = template;
        // If a value of the request makes the key a reserved one, the mistake is the client's.
        let begins_with_constant = template
            .first_placeholder()
            .filter(|first| captured.contains(*first))
            .map(|first| self.parameters.captured(first, literal.span()))
            .is_some_and(|captured| matches!(captured, Ok(Captured::Constant(_))));
        let key =
            Ident::new(if begins_with_constant { "key" } else { "key_with_parts" }, mixed_span());
        if template.is_typed() {
            return self.typed_key(template, &key);
        }
        let given = values.iter().map(|value| {
            let name = value.name.as_ref().map(|name| quote!(#name =));
            let part = self.part(&value.value);
            quote!(, #name #part)
        });
        let captured = captured
            .iter()
            .map(|name| self.parameters.captured(name, literal.span()))
            .map(|captured| {
                Ok(match captured? {
                    Captured::Parameter(name) => {
                        let part = self.part(&parse_quote!(#name));
                        quote!(, #name = #part)
                    }
                    // In a `const` block only a constant compiles, never a value of the request.
                    Captured::Constant(name) => {
                        quote_spanned!(span_at(literal)=> , #name = const { &#name })
                    }
                })
            })
            .collect::<syn::Result<Vec<_>>>()?;
        // The literal is passed on unchanged, so that the compiler can point into it.
        Ok(quote_spanned! {mixed_span()=>
            #private::#key(::std::format!(#literal #(#given)* #(#captured)*))
        })
    }

    /// Returns the expression for a template with typed placeholders. `key` is the function that makes the key
    /// from the text.
    fn typed_key(&self, template: &Template, key: &Ident) -> syn::Result<TokenStream> {
        let Self { private, .. } = self;
        let values: Vec<_> = (0..template.values.len())
            .map(|position| local(format_args!("value{position}")))
            .collect();
        // Each value is evaluated once, however often it is used.
        let references = template.values.iter().zip(&values).map(|(TemplateValue { value, .. }, name)| {
            quote_spanned!(span_at(value)=> let #name = &#value;)
        });
        let parts = template
            .placeholders
            .iter()
            .map(|placeholder| self.typed_part(template, &values, placeholder))
            .collect::<syn::Result<Vec<_>>>()?;
        let text = template.positional_literal();
        Ok(quote_spanned! {mixed_span()=>
            #private::typed_key(#private::#key, || {
                #(#references)*
                ::core::result::Result::Ok(::std::format!(#text #(, #parts)*))
            })
        })
    }

    /// Returns the argument of `format!` for a placeholder of a template with types.
    fn typed_part(
        &self,
        template: &Template,
        values: &[Ident],
        Placeholder { name, source, kind }: &Placeholder,
    ) -> syn::Result<TokenStream> {
        let Self { private, .. } = self;
        let span = template.literal.span();
        let (value, span) = match source {
            Source::Value(position) => {
                (values[*position].clone(), span_at(&template.values[*position].value))
            }
            Source::Captured => match self.parameters.captured(name, span)? {
                Captured::Parameter(parameter) => (parameter.clone(), span_at(parameter)),
                Captured::Constant(constant) if kind.is_some() => {
                    return Err(syn::Error::new(
                        span,
                        format!(
                            "`{constant}` is a constant, which has no type: its value is inserted \
                             unchanged; write `{{{constant}}}`"
                        ),
                    ));
                }
                Captured::Constant(constant) => {
                    return Ok(quote_spanned!(span_at(&template.literal)=> const { &#constant }));
                }
            },
        };
        Ok(if let Some(kind) = kind {
            let kind = Ident::new(kind, mixed_span());
            quote_spanned!(span=> #private::PlaceholderKind::#kind.part(#name, &#value)?)
        } else {
            quote_spanned!(span=> #private::KeyPart(&#value))
        })
    }

    /// Returns an expression that escapes the value.
    fn part(&self, value: &Expr) -> TokenStream {
        let Self { private, .. } = self;
        let reference = reference(value);
        quote_spanned!(span_at(value)=> #private::KeyPart(#reference))
    }
}

/// Returns a reference to the value, so that an expression such as `order.sku` moves nothing.
pub(crate) fn reference(value: &Expr) -> ExprReference {
    ExprReference {
        attrs: Vec::new(),
        and_token: Token![&](span_at(value)),
        mutability: None,
        expr: Box::new(value.clone()),
    }
}
