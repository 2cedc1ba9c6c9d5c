//! Parses the HTTP options of a handler.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Lit, LitInt, Signature};

use crate::duration::{AttributeTime, TimeUnit, WrittenDuration};
use crate::evaluated::{Check, Evaluated};
use crate::key::ungrouped;
use crate::value::{set_once, value};

/// The names of the options, for error messages.
pub(crate) const NAMES: [&str; 4] =
    ["contended_status", "retry_after_max", "hold_until", "on_reject"];

/// The HTTP options of a handler.
pub(crate) struct HttpArguments {
    contended_status: Option<Expr>,
    retry_after_max: Option<(Span, AttributeTime)>,
    until_end_of_body: bool,
    /// The function that makes the response to a refused request.
    pub(crate) on_reject: Option<Expr>,
}

/// The options as they were written, each with its name.
#[derive(Default)]
pub(crate) struct ParsedHttpArguments {
    contended_status: Option<(Ident, Expr)>,
    retry_after_max: Option<(Ident, WrittenDuration)>,
    until_end_of_body: Option<(Ident, bool)>,
    pub(crate) on_reject: Option<(Ident, Expr)>,
}

impl ParsedHttpArguments {
    /// Parses the argument with this name. Returns `None` if the argument is not an HTTP option.
    pub(crate) fn argument(
        &mut self,
        name: &Ident,
        input: ParseStream<'_>,
    ) -> Option<syn::Result<()>> {
        let named = || name.clone();
        Some(match name.to_string().as_str() {
            "contended_status" => value(input, name)
                .and_then(status)
                .and_then(|status| set_once(&mut self.contended_status, name, (named(), status))),
            "retry_after_max" => value(input, name)
                .and_then(|time| WrittenDuration::parse("retry_after_max", &time))
                .and_then(|time| set_once(&mut self.retry_after_max, name, (named(), time))),
            "hold_until" => value(input, name)
                .and_then(|until| is_end_of_body(&until))
                .and_then(|until| set_once(&mut self.until_end_of_body, name, (named(), until))),
            "on_reject" => value(input, name)
                .and_then(|function| set_once(&mut self.on_reject, name, (named(), function))),
            _ => return None,
        })
    }

    /// Returns the name of an option that was written.
    pub(crate) fn first_name(&self) -> Option<&Ident> {
        let Self { contended_status, retry_after_max, until_end_of_body, on_reject } = self;
        let names = [
            contended_status.as_ref().map(|(name, _)| name),
            retry_after_max.as_ref().map(|(name, _)| name),
            until_end_of_body.as_ref().map(|(name, _)| name),
            on_reject.as_ref().map(|(name, _)| name),
        ];
        names.into_iter().flatten().next()
    }

    /// Returns whether `time_unit` may be the unit of a time.
    pub(crate) fn has_time_unit(&self) -> bool {
        self.retry_after_max.as_ref().is_some_and(|(_, time)| time.has_time_unit())
    }

    pub(crate) fn check(self, unit: TimeUnit) -> syn::Result<HttpArguments> {
        let retry_after_max = self
            .retry_after_max
            .map(|(_, time)| Ok::<_, syn::Error>((time.span(), time.in_unit(unit)?)))
            .transpose()?;
        Ok(HttpArguments {
            contended_status: self.contended_status.map(|(_, status)| status),
            retry_after_max,
            until_end_of_body: self.until_end_of_body.is_some_and(|(_, until)| until),
            on_reject: self.on_reject.map(|(_, function)| function),
        })
    }
}

impl HttpArguments {
    /// Returns an expression for the options of the handler with this signature, where `private` is
    /// `redlock_axum::__private`.
    pub(crate) fn expression(&self, private: &TokenStream, signature: &Signature) -> TokenStream {
        let (mut calls, mut checks, mut constants) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(status) = &self.contended_status {
            calls.push(quote!(.contended_status(#private::StatusConstant(#status).number())));
            checks.push(Check {
                span: status.span(),
                assertion: quote!(#private::assert_contended_status),
                arguments: TokenStream::new(),
            });
            if !matches!(status, Expr::Lit(_)) {
                constants.push((status, quote!(#private::expect_status)));
            }
        }
        if let Some((span, time)) = &self.retry_after_max {
            let value = time.expression(private);
            calls.push(quote!(.retry_after_max(#value)));
            checks.push(Check {
                span: *span,
                assertion: quote!(#private::assert_retry_after_max),
                arguments: TokenStream::new(),
            });
            if let AttributeTime::Constant { expression, .. } = time {
                constants.push((expression, quote!(#private::expect_time)));
            }
        }
        if self.until_end_of_body {
            calls.push(quote!(.hold_until(#private::HoldUntil::EndOfBody)));
        }
        let options = Evaluated {
            name: Ident::new("__REDIS_LOCK_HTTP_OPTIONS", Span::call_site()),
            ty: quote!(#private::HttpOptions),
            value: quote!(#private::HttpOptions::new() #(#calls)*),
            checks,
            constants,
        };
        options.expression(signature)
    }
}

/// Checks the form of a status: a number or a constant.
fn status(value: Expr) -> syn::Result<Expr> {
    let mistake = |value: &Expr| {
        syn::Error::new_spanned(
            value,
            "`contended_status` must be a status from 400 to 599, such as `423`, or a constant, such as \
             `StatusCode::LOCKED`",
        )
    };
    match ungrouped(&value) {
        Expr::Lit(ExprLit { lit: Lit::Int(number), attrs }) if number.suffix().is_empty() => {
            let number = number
                .base10_parse::<u16>()
                .map(|status| LitInt::new(&format!("{status}u16"), number.span()))
                .map_err(|_| mistake(&value))?;
            Ok(Expr::Lit(ExprLit { lit: Lit::Int(number), attrs: attrs.clone() }))
        }
        Expr::Path(_) => Ok(value),
        _ => Err(mistake(&value)),
    }
}

fn is_end_of_body(value: &Expr) -> syn::Result<bool> {
    match ungrouped(value) {
        Expr::Path(path) if path.path.is_ident("end_of_body") => Ok(true),
        Expr::Path(path) if path.path.is_ident("response") => Ok(false),
        other => Err(syn::Error::new_spanned(
            other,
            "`hold_until` is `response` or `end_of_body`, without quotation marks",
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::arguments::Arguments;

    use super::*;

    fn parse(tokens: TokenStream) -> syn::Result<Arguments> {
        syn::parse2([quote!(key = "a",), tokens].into_iter().collect())
    }

    fn message(tokens: TokenStream) -> String {
        parse(tokens).err().unwrap().to_string()
    }

    /// Returns the expression without blanks.
    fn expression(tokens: TokenStream) -> String {
        let pay: Signature = syn::parse_quote!(async fn pay());
        let expression = parse(tokens).unwrap().http.expression(&quote!(p), &pay);
        expression.to_string().replace(' ', "")
    }

    #[test]
    fn an_omitted_option_has_no_setter() {
        let expected = "{const__REDIS_LOCK_HTTP_OPTIONS:p::HttpOptions=p::HttpOptions::new();\
                        __REDIS_LOCK_HTTP_OPTIONS}";
        assert_eq!(expression(quote!()), expected);
        assert_eq!(expression(quote!(hold_until = response)), expected);
    }

    #[test]
    fn every_option_has_one_setter() {
        let written = quote!(
            contended_status = 423,
            retry_after_max = 9,
            time_unit = "minutes",
            hold_until = end_of_body,
        );
        let expression = expression(written);
        for call in [
            ".contended_status(p::StatusConstant(423u16).number())",
            ".retry_after_max(::core::time::Duration::new(540u64,0u32))",
            ".hold_until(p::HoldUntil::EndOfBody)",
        ] {
            assert!(expression.contains(call), "{expression}");
        }
        for check in ["contended_status", "retry_after_max"] {
            let check = format!("const_:()=p::assert_{check}(&__REDIS_LOCK_HTTP_OPTIONS);");
            assert_eq!(expression.matches(&check).count(), 1, "{expression}");
        }
    }

    #[test]
    fn each_mistake_has_its_message() {
        for value in [quote!("423"), quote!(423u16), quote!(70000), quote!(400 + 23)] {
            let message = message(quote!(contended_status = #value));
            assert!(
                message.starts_with("`contended_status` must be a status from 400"),
                "{message}"
            );
        }
        for value in [quote!("end_of_body"), quote!(EndOfBody), quote!(body)] {
            let message = message(quote!(hold_until = #value));
            assert!(
                message.starts_with("`hold_until` is `response` or `end_of_body`"),
                "{message}"
            );
        }
        for option in [
            quote!(contended_status = 423),
            quote!(retry_after_max = 1),
            quote!(hold_until = response),
            quote!(on_reject = respond),
        ] {
            let name = option.to_string();
            let name = name.split(' ').next().unwrap();
            let message = message(quote!(#option, manager = self.locks));
            assert!(message.starts_with(&format!("`{name}` is for handlers")), "{message}");
        }
    }
}
