//! The arguments of the attribute.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, ExprLit, ExprPath, Lit, Path, Token, parenthesized, token};

use crate::duration::{TimeUnit, Written};
use crate::key::{Key, ungrouped};

const DEFAULT_EXPIRE_MS: u64 = 5_000;

const THERE_ARE: &str =
    "there are `key`, `expire`, `wait_time`, `time_unit`, `manager`, `error` and `crate`";

/// The arguments, checked.
pub(crate) struct Arguments {
    pub(crate) key: Key,
    pub(crate) expire_ms: u64,
    /// `None`: one attempt.
    pub(crate) wait_time_ms: Option<u64>,
    pub(crate) manager: Option<Expr>,
    pub(crate) error: Option<ExprPath>,
    pub(crate) crate_path: Option<Path>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut given = Given::default();
        while !input.is_empty() {
            given.argument(input)?;
            if !input.is_empty() && input.parse::<Token![,]>().is_err() {
                return Err(input.error("expected a comma before the next argument"));
            }
        }
        given.check()
    }
}

/// The arguments as they were written.
#[derive(Default)]
struct Given {
    key: Option<Key>,
    expire: Option<Written>,
    wait_time: Option<Written>,
    time_unit: Option<(Span, TimeUnit)>,
    manager: Option<Expr>,
    error: Option<(Span, ExprPath)>,
    crate_path: Option<Path>,
}

impl Given {
    fn argument(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        if !input.peek(Ident::peek_any) {
            return Err(input.error(format!(
                "expected an argument such as `key = \"order:{{id}}\"`; {THERE_ARE}"
            )));
        }
        let name = input.call(Ident::parse_any)?;
        match name.to_string().as_str() {
            "key" if input.peek(token::Paren) => {
                let arguments;
                parenthesized!(arguments in input);
                once(&mut self.key, &name, Key::from_arguments(&arguments)?)
            }
            "key" => once(&mut self.key, &name, Key::from_value(value(input, &name)?)?),
            "expire" => {
                let expire = Written::parse("expire", &value(input, &name)?)?;
                once(&mut self.expire, &name, expire)
            }
            "wait_time" => {
                let wait_time = Written::parse("wait_time", &value(input, &name)?)?;
                once(&mut self.wait_time, &name, wait_time)
            }
            "time_unit" => {
                let unit = time_unit(&value(input, &name)?)?;
                once(&mut self.time_unit, &name, (name.span(), unit))
            }
            "manager" => once(&mut self.manager, &name, value(input, &name)?),
            "error" => {
                let path = error_path(value(input, &name)?)?;
                once(&mut self.error, &name, (name.span(), path))
            }
            "crate" => {
                equals(input, &name)?;
                once(&mut self.crate_path, &name, input.call(Path::parse_mod_style)?)
            }
            unknown => Err(syn::Error::new(
                name.span(),
                match meant(unknown) {
                    Some(meant) => {
                        format!("unknown argument `{unknown}`, perhaps `{meant}`; {THERE_ARE}")
                    }
                    None => format!("unknown argument `{unknown}`; {THERE_ARE}"),
                },
            )),
        }
    }

    fn check(self) -> syn::Result<Arguments> {
        let Self { key, expire, wait_time, time_unit, manager, error, crate_path } = self;
        let key = key.ok_or_else(|| {
            syn::Error::new(
                Span::call_site(),
                "the lock needs a key: `#[redis_lock(key = \"order:{id}\")]`",
            )
        })?;
        let has_number = [&expire, &wait_time].into_iter().flatten().any(Written::is_number);
        let unit = match time_unit {
            Some((span, _)) if !has_number => {
                return Err(syn::Error::new(
                    span,
                    "`time_unit` is the unit of whole numbers in `expire` and `wait_time`, and \
                     there is none",
                ));
            }
            Some((_, unit)) => unit,
            None => TimeUnit::SECONDS,
        };
        if let (Some((span, _)), None) = (&error, &manager) {
            return Err(syn::Error::new(
                *span,
                "`error` needs `manager`: without it the function is a handler, which answers a \
                 refusal with a `LockRejection`",
            ));
        }
        Ok(Arguments {
            key,
            expire_ms: expire.map_or(Ok(DEFAULT_EXPIRE_MS), |expire| expire.expire_ms(unit))?,
            wait_time_ms: wait_time
                .map(|wait_time| wait_time.milliseconds(unit))
                .transpose()?
                .filter(|&wait_time| wait_time > 0),
            manager,
            error: error.map(|(_, path)| path),
            crate_path,
        })
    }
}

fn once<T>(slot: &mut Option<T>, name: &Ident, value: T) -> syn::Result<()> {
    if slot.replace(value).is_some() {
        return Err(syn::Error::new(name.span(), format!("`{name}` is given twice")));
    }
    Ok(())
}

fn equals(input: ParseStream<'_>, name: &Ident) -> syn::Result<()> {
    match input.parse::<Token![=]>() {
        Ok(_) if !input.is_empty() => Ok(()),
        _ => {
            Err(syn::Error::new(name.span(), format!("`{name}` has no value; write `{name} = ..`")))
        }
    }
}

fn value(input: ParseStream<'_>, name: &Ident) -> syn::Result<Expr> {
    equals(input, name)?;
    input.parse()
}

fn time_unit(value: &Expr) -> syn::Result<TimeUnit> {
    match ungrouped(value) {
        Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) => TimeUnit::parse(name),
        other => Err(syn::Error::new_spanned(
            other,
            "`time_unit` must be a text, such as `\"seconds\"` or `\"milliseconds\"`",
        )),
    }
}

fn error_path(value: Expr) -> syn::Result<ExprPath> {
    match value {
        Expr::Path(path) => Ok(path),
        Expr::Group(group) => error_path(*group.expr),
        other => Err(syn::Error::new_spanned(
            other,
            "`error` must be the path of a function from `LockError` to the function's own error, \
             such as `ShopError::from_lock`",
        )),
    }
}

/// What a wrong name stands for: the names of the Spring annotation, and of other lock libraries.
fn meant(name: &str) -> Option<&'static str> {
    Some(match name {
        "keys" | "name" | "value" => "key",
        "expires" | "expiry" | "lease" | "lease_time" | "leaseTime" | "ttl" => "expire",
        "wait" | "waitTime" | "waittime" | "timeout" => "wait_time",
        "unit" | "timeUnit" | "timeunit" => "time_unit",
        "locks" | "lock" => "manager",
        "err" | "map_err" => "error",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenStream;
    use quote::quote;

    use super::*;

    fn parse(tokens: TokenStream) -> Result<Arguments, String> {
        syn::parse2(tokens).map_err(|error| error.to_string())
    }

    fn message(tokens: TokenStream) -> String {
        parse(tokens).err().unwrap()
    }

    /// The defaults of the Spring annotation.
    #[test]
    fn the_default_is_five_seconds_and_no_waiting() {
        let arguments = parse(quote!(key = "redis_lock")).unwrap();
        assert_eq!(arguments.expire_ms, 5_000);
        assert_eq!(arguments.wait_time_ms, None);
        assert!(arguments.manager.is_none());
    }

    #[test]
    fn numbers_are_counted_in_the_unit_and_texts_in_their_own() {
        let arguments = parse(quote! {
            time_unit = "milliseconds", key = "a", expire = 1500, wait_time = "2s",
        })
        .unwrap();
        assert_eq!(arguments.expire_ms, 1_500);
        assert_eq!(arguments.wait_time_ms, Some(2_000));
    }

    #[test]
    fn a_unit_does_not_change_the_default() {
        let arguments = parse(quote!(key = "a", wait_time = 2, time_unit = "minutes")).unwrap();
        assert_eq!(arguments.expire_ms, 5_000);
        assert_eq!(arguments.wait_time_ms, Some(120_000));
    }

    #[test]
    fn no_wait_time_and_a_wait_time_of_zero_are_the_same() {
        let arguments = parse(quote!(key = "a", wait_time = 0)).unwrap();
        assert_eq!(arguments.wait_time_ms, None);
    }

    #[test]
    fn each_argument_is_given_once() {
        assert_eq!(message(quote!(key = "a", key("b"))), "`key` is given twice");
        for name in ["expire", "wait_time", "time_unit", "manager", "error"] {
            let ident = Ident::new(name, Span::call_site());
            let value = match name {
                "manager" | "error" => quote!(locks),
                "time_unit" => quote!("seconds"),
                _ => quote!(1),
            };
            assert_eq!(
                message(quote!(key = "a", #ident = #value, #ident = #value)),
                format!("`{name}` is given twice")
            );
        }
        assert_eq!(message(quote!(key = "a", crate = a::b, crate = c)), "`crate` is given twice");
    }

    #[test]
    fn an_unknown_argument_is_told_the_known_ones() {
        assert_eq!(
            message(quote!(key = "a", waitTime = 2)),
            format!("unknown argument `waitTime`, perhaps `wait_time`; {THERE_ARE}")
        );
        assert_eq!(
            message(quote!(key = "a", fair = true)),
            format!("unknown argument `fair`; {THERE_ARE}")
        );
        assert!(message(quote!("order")).starts_with("expected an argument such as `key"));
    }

    #[test]
    fn a_missing_value_or_comma_is_said() {
        for tokens in [quote!(key), quote!(key =), quote!(key("a"), expire)] {
            assert!(message(tokens).contains("has no value; write"));
        }
        assert_eq!(
            message(quote!(key = "a" expire = 5)),
            "expected a comma before the next argument"
        );
    }

    #[test]
    fn arguments_that_make_no_sense_together_are_refused() {
        assert!(message(quote!()).starts_with("the lock needs a key"));
        assert!(message(quote!(expire = 5)).starts_with("the lock needs a key"));
        for tokens in [
            quote!(key = "a", expire = "5s", time_unit = "seconds"),
            quote!(key = "a", time_unit = "seconds"),
        ] {
            assert!(message(tokens).starts_with("`time_unit` is the unit of whole numbers"));
        }
        assert!(message(quote!(key = "a", error = E::from)).starts_with("`error` needs `manager`"));
        assert!(
            message(quote!(key = "a", manager = m, error = |e| e)).starts_with("`error` must be")
        );
        assert!(
            message(quote!(key = "a", expire = 5, time_unit = SECONDS))
                .starts_with("`time_unit` must be a text")
        );
    }
}
