//! The arguments of the attribute. An argument that is not listed here is an option, which `redlock-axum` knows.

use std::collections::BTreeMap;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, ExprUnary, Lit, LitInt, Path, Token, UnOp, parenthesized, token};

use crate::hygiene::{mixed_span, span_at, with_span};
use crate::key::{Key, ungrouped};

/// The arguments.
#[derive(Default)]
pub(crate) struct Arguments {
    spans: BTreeMap<String, Span>,
    key: Option<Key>,
    pub(crate) options: Vec<OptionArgument>,
    pub(crate) time_unit: Option<TimeUnit>,
    pub(crate) manager: Option<Expr>,
    /// Set if a handler uses the manager that a layer has installed.
    pub(crate) installed: Option<Span>,
    pub(crate) fenced: Option<Span>,
    /// Set if the work runs in a task of its own.
    pub(crate) detached: Option<Span>,
    pub(crate) on_reject: Option<Expr>,
    pub(crate) error: Option<Expr>,
    /// The value that a function returns, as `Ok`, while another holder has the lock.
    pub(crate) skip: Option<Skip>,
    pub(crate) crate_path: Option<Path>,
    /// Whether the compiler has expanded all other attributes of the function.
    pub(crate) last: bool,
}

pub(crate) enum Skip {
    /// `skip`: `None`.
    None,
    /// `skip = <expression>`
    Value(Expr),
}

/// The unit of whole numbers.
pub(crate) struct TimeUnit {
    pub(crate) span: Span,
    pub(crate) milliseconds: u64,
}

/// An option and its value.
pub(crate) struct OptionArgument {
    pub(crate) name: Ident,
    pub(crate) value: OptionValue,
}

pub(crate) enum OptionValue {
    /// The name alone.
    Flag,
    /// A bare word in lower case, such as `abort`.
    Word(Ident),
    /// A literal, whose whole number has a type, or a constant.
    Constant(Expr),
}

impl OptionValue {
    fn parse(name: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(Token![=]) { Self::of(name, &value(input, name)?) } else { Ok(Self::Flag) }
    }

    fn of(name: &Ident, written: &Expr) -> syn::Result<Self> {
        let with_type = |number: String, ty: &str| {
            let literal = LitInt::new(&format!("{number}{ty}"), written.span());
            Self::Constant(Expr::Lit(ExprLit { attrs: Vec::new(), lit: Lit::Int(literal) }))
        };
        match ungrouped(written) {
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. })
                if matches!(number.suffix(), "ms" | "s" | "m" | "h" | "d") =>
            {
                let message = format!("a time with its unit is a text: `{name} = \"{number}\"`");
                Err(syn::Error::new(number.span(), message))
            }
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.suffix().is_empty() => {
                let value = number.base10_parse().unwrap_or(u64::MAX);
                Ok(with_type(value.to_string(), "u64"))
            }
            Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => match ungrouped(expr) {
                Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.suffix().is_empty() => {
                    Ok(with_type("-1".to_owned(), "i64"))
                }
                _ => Ok(Self::Constant(written.clone())),
            },
            Expr::Path(path) if path.path.get_ident().is_some_and(is_word) => {
                Ok(path.path.get_ident().map_or(Self::Flag, |word| Self::Word(word.unraw())))
            }
            constant @ (Expr::Lit(_)
            | Expr::Path(_)
            | Expr::Call(_)
            | Expr::MethodCall(_)
            | Expr::Macro(_)) => Ok(Self::Constant(constant.clone())),
            Expr::Paren(inner) => Self::of(name, &inner.expr),
            other => Err(syn::Error::new_spanned(
                other,
                format!(
                    "`{name}` takes a literal, such as `5` or `\"500ms\"`, or a constant, which may be calculated"
                ),
            )),
        }
    }
}

/// Returns whether the name is written as a word of the attribute, not as a constant.
fn is_word(name: &Ident) -> bool {
    !name.to_string().contains(char::is_uppercase)
}

impl OptionArgument {
    /// Returns the span to which messages about the value point.
    pub(crate) fn span(&self) -> Span {
        match &self.value {
            OptionValue::Flag => span_at(&self.name),
            OptionValue::Word(word) => span_at(word),
            OptionValue::Constant(value) => span_at(value),
        }
    }

    /// Returns the pair of the name and the value, where `private` is `redlock_axum::__private`.
    pub(crate) fn code(&self, private: &TokenStream) -> TokenStream {
        let name = self.name.to_string();
        let value = match &self.value {
            OptionValue::Flag => quote!(true),
            OptionValue::Word(word) => {
                let word = word.to_string();
                quote!(#private::Word(#word))
            }
            OptionValue::Constant(value) => value.to_token_stream(),
        };
        let (argument, value_of) =
            (with_span(self.span(), quote!(#private::Argument)), Ident::new("value", self.span()));
        quote!((#name, #argument(#value).#value_of()))
    }

    /// Returns whether the value is the literal `false`.
    fn is_off(&self) -> bool {
        matches!(
            &self.value,
            OptionValue::Constant(Expr::Lit(ExprLit { lit: Lit::Bool(flag), .. })) if !flag.value
        )
    }

    /// Returns the constant of the user, if the value is one.
    pub(crate) fn constant(&self) -> Option<&Expr> {
        match &self.value {
            OptionValue::Constant(value) => Some(value),
            OptionValue::Flag | OptionValue::Word(_) => None,
        }
    }
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut arguments = Self::default();
        while !input.is_empty() {
            arguments.argument(input)?;
            if !input.is_empty() && input.parse::<Token![,]>().is_err() {
                return Err(input.error("expected a comma before the next argument"));
            }
        }
        arguments.check()?;
        Ok(arguments)
    }
}

impl Arguments {
    pub(crate) fn key(&self) -> syn::Result<&Key> {
        let message = "the lock needs a key: `#[redis_lock(key = \"order:{id}\")]`";
        self.key.as_ref().ok_or_else(|| syn::Error::new(Span::call_site(), message))
    }

    /// Returns whether the work is stopped when the lock is lost.
    pub(crate) fn aborts(&self) -> bool {
        let is_abort =
            |value: &OptionValue| matches!(value, OptionValue::Word(word) if word == "abort");
        self.options.iter().any(|option| option.name == "on_lost" && is_abort(&option.value))
    }

    fn argument(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        if !input.peek(Ident::peek_any) {
            return Err(input.error("expected an argument such as `key = \"order:{id}\"`"));
        }
        let name = input.call(Ident::parse_any)?.unraw();
        let error = |message: String| Err(syn::Error::new(name.span(), message));
        if self.spans.insert(name.to_string(), name.span()).is_some() {
            return error(format!("`{name}` is given twice"));
        }
        match name.to_string().as_str() {
            "key" | "keys" if self.key.is_some() => {
                let message =
                    "`key` and `keys` both name what the lock is for; leave out one of them";
                return error(message.to_owned());
            }
            "key" | "keys" => self.key = Some(key(input, &name)?),
            "time_unit" => self.time_unit = Some(time_unit(value(input, &name)?)?),
            "manager" => self.manager = Some(value(input, &name)?),
            "installed" => {
                self.installed = span_of_flag(&name, &OptionValue::parse(&name, input)?)?;
            }
            "detached" => self.detached = span_of_flag(&name, &OptionValue::parse(&name, input)?)?,
            "on_reject" => self.on_reject = Some(value(input, &name)?),
            "error" => self.error = Some(value(input, &name)?),
            "skip" if input.peek(Token![=]) => self.skip = Some(Skip::Value(value(input, &name)?)),
            "skip" => self.skip = Some(Skip::None),
            "crate" => {
                equals(input, &name)?;
                self.crate_path = Some(input.call(Path::parse_mod_style)?);
            }
            "__last" => self.last = true,
            text => {
                if let Some(known) = known_as(text) {
                    return error(format!(
                        "unknown argument `{text}`; this library calls it `{known}`"
                    ));
                }
                let value = OptionValue::parse(&name, input)?;
                if text == "fenced" {
                    self.fenced = span_of_flag(&name, &value)?;
                }
                self.options.push(OptionArgument { name, value });
            }
        }
        Ok(())
    }

    fn check(&self) -> syn::Result<()> {
        self.key()?;
        let misplaced = if self.manager.is_some() {
            [
                (
                    "on_reject",
                    "`on_reject` is for handlers, which respond to a refused request; a function with `manager` returns an error",
                ),
                (
                    "installed",
                    "`installed` is for handlers, and `manager` is for functions; leave out one of them",
                ),
            ]
        } else {
            [
                (
                    "error",
                    "`error` is for functions with `manager`, which return an error; a handler has `on_reject`, a function from `LockRejection` to the response",
                ),
                (
                    "skip",
                    "`skip` needs `manager`: without it the function is a handler, which answers 409 while another holder has the lock",
                ),
            ]
        };
        for (name, message) in misplaced {
            if let Some(span) = self.spans.get(name) {
                return Err(syn::Error::new(*span, message));
            }
        }
        if self.skip.is_some()
            && let Some(fair) =
                self.options.iter().find(|option| option.name == "fair" && !option.is_off())
        {
            return Err(syn::Error::new(
                fair.name.span(),
                "`skip` needs a lock without `fair`: a fair caller is refused while others stand before it, also if nobody \
                 holds the lock, and then nobody may do the work",
            ));
        }
        let Some(error) = self.error.as_ref().map(ungrouped) else { return Ok(()) };
        let message = match error {
            Expr::Path(_) => return Ok(()),
            _ if self.aborts() => {
                "with `on_lost = abort`, `error` must be the path of a function from `RunError` to the function's own error, \
                 such as `ShopError::from_run`"
            }
            _ => {
                "`error` must be the path of a function from `LockError` to the function's own error, such as \
                 `ShopError::from_lock`"
            }
        };
        Err(syn::Error::new_spanned(error, message))
    }
}

/// Parses the value of `key` or `keys`.
fn key(input: ParseStream<'_>, name: &Ident) -> syn::Result<Key> {
    let is_list = name == "keys";
    if input.peek(token::Paren) {
        let arguments;
        parenthesized!(arguments in input);
        return if is_list { Key::from_items(&arguments) } else { Key::from_arguments(&arguments) };
    }
    let value = value(input, name)?;
    if is_list { Key::from_list(value) } else { Key::from_value(value) }
}

/// Parses the `=` of an argument that must have a value.
fn equals(input: ParseStream<'_>, name: &Ident) -> syn::Result<()> {
    match input.parse::<Token![=]>() {
        Ok(_) if !input.is_empty() => Ok(()),
        _ => {
            Err(syn::Error::new(name.span(), format!("`{name}` has no value; write `{name} = ..`")))
        }
    }
}

/// Parses `= value`.
fn value(input: ParseStream<'_>, name: &Ident) -> syn::Result<Expr> {
    equals(input, name)?;
    input.parse()
}

/// Returns the span of a flag that is set. It selects code of the attribute, so it cannot be a constant.
fn span_of_flag(name: &Ident, value: &OptionValue) -> syn::Result<Option<Span>> {
    match value {
        OptionValue::Flag => Ok(Some(name.span())),
        OptionValue::Constant(Expr::Lit(ExprLit { lit: Lit::Bool(flag), .. })) => {
            Ok(flag.value.then(|| name.span()))
        }
        _ => Err(syn::Error::new(
            name.span(),
            format!("`{name}` is `true` or `false`, and `{name}` alone is `true`"),
        )),
    }
}

/// Returns the unit, which has a name of Java's `TimeUnit`.
fn time_unit(value: Expr) -> syn::Result<TimeUnit> {
    let name = match ungrouped(&value) {
        Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) => name.value().to_ascii_lowercase(),
        _ => String::new(),
    };
    let milliseconds = match name.as_str() {
        "milliseconds" => 1,
        "seconds" => 1_000,
        "minutes" => 60_000,
        "hours" => 3_600_000,
        "days" => 86_400_000,
        "microseconds" | "nanoseconds" => {
            return Err(syn::Error::new_spanned(
                value,
                format!("Redis counts leases in milliseconds; {name} are too fine"),
            ));
        }
        _ => {
            return Err(syn::Error::new_spanned(
                value,
                "unknown time unit; the units are \"milliseconds\", \"seconds\", \"minutes\", \"hours\" and \"days\"",
            ));
        }
    };
    Ok(TimeUnit { span: mixed_span().located_at(value.span()), milliseconds })
}

/// Returns the name of an argument for its name in the Spring annotation and in other lock libraries.
fn known_as(name: &str) -> Option<&'static str> {
    Some(match name {
        "value" => "key",
        "expires" | "expiry" | "lease" | "lease_time" | "leaseTime" | "ttl" | "lockAtMostFor"
        | "lock_at_most_for" => "expire",
        "wait" | "waitTime" | "waittime" | "timeout" => "wait_time",
        "unit" | "timeUnit" | "timeunit" => "time_unit",
        "renewal" | "watchdog" | "auto_renew" => "renew",
        "lockAtLeastFor" | "lock_at_least_for" => "min_hold",
        "autoRelease" | "auto_release" => "keep",
        "re_entrant" | "reenter" => "reentrant",
        "read" | "readonly" | "read_only" | "shared_on" => "shared",
        "permit" | "semaphore" | "max_holders" => "permits",
        "fencing" | "fencing_token" => "fenced",
        "onLost" | "lost" => "on_lost",
        "locks" | "lock" => "manager",
        "err" | "map_err" => "error",
        "on_refuse" | "on_error" | "reject" => "on_reject",
        "status" | "status_code" => "contended_status",
        "retry_after" => "retry_after_max",
        "skip_if_locked" | "skip_if_held" | "skipIfLocked" => "skip",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tokens: TokenStream) -> String {
        syn::parse2::<Arguments>(tokens).err().unwrap().to_string()
    }

    #[test]
    fn an_argument_that_is_given_twice_is_an_error() {
        assert_eq!(message(quote!(key = "a", key("b"))), "`key` is given twice");
        for both in [quote!(key = "a", keys = b), quote!(keys("{}", b), key("a"))] {
            assert!(message(both).starts_with("`key` and `keys` both name"));
        }
        for (name, value) in
            [("expire", quote!(1)), ("on_lost", quote!(abort)), ("manager", quote!(a))]
        {
            let ident = Ident::new(name, Span::call_site());
            let twice = quote!(key = "a", #ident = #value, #ident = #value);
            assert_eq!(message(twice), format!("`{name}` is given twice"));
        }
        assert_eq!(message(quote!(key = "a", renew, renew = false)), "`renew` is given twice");
    }

    #[test]
    fn a_foreign_name_is_translated() {
        let unknown = message(quote!(key = "a", waitTime = 2));
        assert_eq!(unknown, "unknown argument `waitTime`; this library calls it `wait_time`");
        assert!(message(quote!(key = "a", value = "b")).contains("calls it `key`"));
        assert!(message(quote!("order")).starts_with("expected an argument such as `key"));
    }

    #[test]
    fn a_missing_value_or_comma_is_an_error() {
        for tokens in [quote!(key), quote!(key =), quote!(key("a"), manager)] {
            assert!(message(tokens).contains("has no value; write"));
        }
        assert_eq!(
            message(quote!(key = "a" expire = 5)),
            "expected a comma before the next argument"
        );
    }

    #[test]
    fn conflicting_arguments_are_refused() {
        for (tokens, start) in [
            (quote!(), "the lock needs a key"),
            (quote!(expire = 5), "the lock needs a key"),
            (quote!(key = "a", skip), "`skip` needs `manager`"),
            (quote!(key = "a", skip = 0), "`skip` needs `manager`"),
            (quote!(key = "a", manager = m, skip, fair), "`skip` needs a lock without `fair`"),
            (quote!(key = "a", manager = m, fair = FAIR, skip = 0), "`skip` needs a lock without"),
            (quote!(key = "a", error = convert), "`error` is for functions"),
            (quote!(key = "a", manager = m, error = |e| e), "`error` must be the path"),
            (quote!(key = "a", manager = m, on_reject = f), "`on_reject` is for handlers"),
            (quote!(key = "a", manager = m, installed), "`installed` is for handlers"),
            (quote!(key = "a", fenced = FENCED), "`fenced` is `true` or `false`"),
            (quote!(key = "a", installed = 1), "`installed` is `true` or `false`"),
            (quote!(key = "a", time_unit = "fortnights"), "unknown time unit; the units are"),
            (quote!(key = "a", time_unit = seconds), "unknown time unit; the units are"),
            (quote!(key = "a", time_unit = "Nanoseconds"), "Redis counts leases in milliseconds"),
            (quote!(key = "a", expire = 2 * 3), "`expire` takes a literal"),
            (
                quote!(key = "a", expire = 500ms),
                "a time with its unit is a text: `expire = \"500ms\"`",
            ),
            (quote!(key = "a", r#expire = 5, expire = 5), "`expire` is given twice"),
        ] {
            let message = message(tokens);
            assert!(message.starts_with(start), "{message}");
        }
        for tokens in [
            quote!(key = "a", manager = m, error = |e| e, on_lost = abort),
            quote!(on_lost = abort, error = 5, key = "a", manager = m),
        ] {
            let message = message(tokens);
            assert!(message.contains("`error` must be the path of a function from `RunError`"));
        }
    }

    /// A switch may be written out.
    #[test]
    fn skip_may_stand_beside_a_fair_that_is_off() {
        let tokens = quote!(key = "a", manager = m, skip, fair = false);
        assert!(syn::parse2::<Arguments>(tokens).is_ok());
    }

    #[test]
    fn a_value_gets_the_type_of_its_literal() {
        for (written, code) in [
            (quote!(5), "5u64"),
            (quote!(5u8), "5u8"),
            (quote!((5)), "5u64"),
            (quote!(99999999999999999999), "18446744073709551615u64"),
            (quote!(-5), "-1i64"),
            (quote!("5s"), "\"5s\""),
            (quote!(0.5), "0.5"),
            (quote!(LEASE), "LEASE"),
            (quote!(Self::LEASE), "Self::LEASE"),
            (quote!(self::lease), "self::lease"),
            (quote!(leaseTime), "leaseTime"),
            (quote!(abort), "p::Word(\"abort\")"),
            (quote!(r#abort), "p::Word(\"abort\")"),
            (quote!(false), "false"),
        ] {
            let arguments: Arguments = syn::parse2(quote!(key = "a", x = #written)).unwrap();
            let code_of = arguments.options[0].code(&quote!(p)).to_string().replace(' ', "");
            assert_eq!(code_of, format!("(\"x\",p::Argument({code}).value())"));
        }
        let arguments: Arguments = syn::parse2(quote!(key = "a", x)).unwrap();
        let code = arguments.options[0].code(&quote!(p)).to_string().replace(' ', "");
        assert_eq!(code, "(\"x\",p::Argument(true).value())");
    }

    #[test]
    fn each_unit_has_its_length() {
        let day = 24 * 60 * 60 * 1000;
        for (unit, milliseconds) in [
            ("milliseconds", 1),
            ("SECONDS", day / 24 / 60 / 60),
            ("minutes", day / 24 / 60),
            ("Hours", day / 24),
            ("days", day),
        ] {
            let arguments: Arguments = syn::parse2(quote!(key = "a", time_unit = #unit)).unwrap();
            assert_eq!(arguments.time_unit.unwrap().milliseconds, milliseconds, "{unit}");
        }
    }

    #[test]
    fn words_and_flags_select_the_code() {
        let parse = |tokens| syn::parse2::<Arguments>(quote!(key = "a", #tokens)).unwrap();
        let all = parse(quote!(fenced, detached = true, r#on_lost = r#abort, installed));
        assert!(all.fenced.and(all.detached).and(all.installed).is_some() && all.aborts());
        assert!(!parse(quote!(dialect = abort)).aborts());
        let none = parse(quote!(
            fenced = false,
            detached = false,
            on_lost = keep_going,
            installed = false
        ));
        assert!(none.fenced.or(none.detached).or(none.installed).is_none() && !none.aborts());
    }
}
