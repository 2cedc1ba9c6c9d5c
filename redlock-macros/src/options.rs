//! Parses the arguments that are options of the lock.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Lit, Signature};

use crate::count::WrittenCount;
use crate::duration::{AttributeTime, TimeUnit, WrittenDuration};
use crate::evaluated::{Check, Evaluated};
use crate::http::ParsedHttpArguments;
use crate::key::ungrouped;
use crate::value::{flag, set_once, value};

/// Parses the value of an option.
type Parse = fn(ParseStream<'_>, &Ident) -> syn::Result<Written>;

/// The options of `LockOptions`, with the parser of their values. A line here is all that an option needs, unless it
/// has a new kind of value.
const LOCK_OPTIONS: [(&str, Parse); 11] = [
    ("expire", expire),
    ("wait_time", wait_time),
    ("renew", switch),
    ("max_hold", time),
    ("min_hold", time),
    ("keep", switch),
    ("reentrant", switch),
    ("fair", switch),
    ("shared", switch),
    ("permits", permits),
    ("dialect", dialect),
];

/// The options that are not in `LockOptions`.
const OTHER_OPTIONS: [&str; 3] = ["time_unit", "fenced", "on_lost"];

/// Returns the names of the options, for error messages.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    LOCK_OPTIONS.into_iter().map(|(name, _)| name).chain(OTHER_OPTIONS)
}

/// The options of the lock.
pub(crate) struct Options {
    /// The options that were written, as setters of `LockOptions`.
    setters: Vec<Setter>,
    /// The span of `fenced`, if holders get fencing tokens.
    pub(crate) fenced: Option<Span>,
    pub(crate) on_lost: OnLostArgument,
}

/// The setter of an option.
struct Setter {
    /// The name of the option.
    option: &'static str,
    /// The span at which an error is reported if the value breaks a rule.
    span: Span,
    value: OptionValue,
}

enum OptionValue {
    Time(AttributeTime),
    Forever,
    Switch(bool),
    Count(WrittenCount),
    Dialect(&'static str),
}

/// The behaviour of the function when its lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OnLostArgument {
    #[default]
    KeepGoing,
    Abort,
}

impl Options {
    /// Returns the first option that locks of several keys do not have, and its span.
    pub(crate) fn of_one_key(&self) -> Option<(&'static str, Span)> {
        let setter = self.setters.iter().find(|setter| {
            let is_set = !matches!(setter.value, OptionValue::Switch(false));
            is_set && ["fair", "shared", "permits"].contains(&setter.option)
        })?;
        Some((setter.option, setter.span))
    }

    /// Returns an expression for the `LockOptions` of the function with this signature, where `private` is
    /// `redlock_axum::__private`.
    ///
    /// The compiler evaluates the options when it compiles the attribute, and checks the rules that
    /// `redlock-core` has for each option.
    pub(crate) fn expression(&self, private: &TokenStream, signature: &Signature) -> TokenStream {
        let calls = self.setters.iter().map(|Setter { option, value, .. }| {
            let option = Ident::new(option, Span::mixed_site());
            match value {
                OptionValue::Time(time) => {
                    let time = time.expression(private);
                    quote!(.#option(#time))
                }
                OptionValue::Forever => quote!(.wait_forever()),
                OptionValue::Switch(switch) => quote!(.#option(#switch)),
                OptionValue::Count(count) => {
                    let count = count.expression(private);
                    quote!(.#option(#count))
                }
                OptionValue::Dialect(dialect) => {
                    let dialect = Ident::new(dialect, Span::mixed_site());
                    quote!(.#option(#private::Dialect::#dialect))
                }
            }
        });
        let on_lost = (self.on_lost == OnLostArgument::Abort)
            .then(|| quote!(.on_lost(#private::OnLost::Abort)));
        let constants = self.setters.iter().filter_map(|setter| setter.constant(private));
        let checks = self.setters.iter().map(|Setter { option, span, .. }| Check {
            span: *span,
            assertion: quote!(#private::assert_valid),
            arguments: quote!(, #option),
        });
        let options = Evaluated {
            name: Ident::new("__REDIS_LOCK_OPTIONS", Span::call_site()),
            ty: quote!(#private::LockOptions),
            value: quote!(#private::LockOptions::new() #(#calls)* #on_lost),
            checks: checks.collect(),
            constants: constants.collect(),
        };
        options.expression(signature)
    }
}

impl Setter {
    /// Returns the value if it is a constant of the user, and the function that explains why a wrong type is refused.
    fn constant(&self, private: &TokenStream) -> Option<(&Expr, TokenStream)> {
        match &self.value {
            OptionValue::Time(AttributeTime::Constant { expression, .. }) => {
                Some((expression, quote!(#private::expect_time)))
            }
            OptionValue::Count(WrittenCount::Constant(expression)) => {
                Some((expression, quote!(#private::expect_count)))
            }
            _ => None,
        }
    }

    /// Returns whether the lock may have several holders at a time.
    fn is_for_several(&self) -> bool {
        match self.value {
            OptionValue::Switch(is_set) => is_set && self.option == "shared",
            OptionValue::Count(_) => true,
            _ => false,
        }
    }
}

/// The options as they were written.
#[derive(Default)]
pub(crate) struct ParsedOptions {
    /// The values of `LOCK_OPTIONS`, in the same order.
    lock: [Option<Written>; LOCK_OPTIONS.len()],
    time_unit: Option<(Span, TimeUnit)>,
    fenced: Option<(Span, bool)>,
    on_lost: Option<OnLostArgument>,
}

/// The value of an option as it was written.
enum Written {
    /// A time, which may depend on `time_unit`.
    Time(WrittenDuration),
    Other(Span, OptionValue),
}

impl ParsedOptions {
    /// Parses the argument with this name. Returns `None` if the argument is not an option.
    pub(crate) fn argument(
        &mut self,
        name: &Ident,
        input: ParseStream<'_>,
    ) -> Option<syn::Result<()>> {
        for ((option, parse), slot) in LOCK_OPTIONS.iter().zip(&mut self.lock) {
            if name == option {
                return Some(parse(input, name).and_then(|value| set_once(slot, name, value)));
            }
        }
        Some(match name.to_string().as_str() {
            "time_unit" => value(input, name)
                .and_then(|value| time_unit(&value))
                .and_then(|unit| set_once(&mut self.time_unit, name, (name.span(), unit))),
            "fenced" => flag(input, name)
                .and_then(|fenced| set_once(&mut self.fenced, name, (name.span(), fenced))),
            "on_lost" => value(input, name)
                .and_then(|value| on_lost(&value))
                .and_then(|on_lost| set_once(&mut self.on_lost, name, on_lost)),
            _ => return None,
        })
    }

    pub(crate) fn check(self, unit: TimeUnit) -> syn::Result<Options> {
        let Self { lock, time_unit: _, fenced, on_lost } = self;
        let mut setters = Vec::new();
        for ((option, _), written) in LOCK_OPTIONS.into_iter().zip(lock) {
            let (span, value) = match written {
                None => continue,
                Some(Written::Time(time)) => (time.span(), OptionValue::Time(time.in_unit(unit)?)),
                Some(Written::Other(span, value)) => (span, value),
            };
            setters.push(Setter { option, span, value });
        }
        let fenced = fenced.and_then(|(span, fenced)| fenced.then_some(span));
        let for_several = setters.iter().find(|setter| setter.is_for_several());
        if let (Some(span), Some(Setter { option, .. })) = (fenced, for_several) {
            return Err(syn::Error::new(
                span,
                format!(
                    "`fenced` cannot be combined with `{option}`: only exclusive holders have numbers"
                ),
            ));
        }
        Ok(Options { setters, fenced, on_lost: on_lost.unwrap_or_default() })
    }

    /// Returns the unit of whole numbers. A `time_unit` without any whole number is an error.
    pub(crate) fn unit(&self, http: &ParsedHttpArguments) -> syn::Result<TimeUnit> {
        let Some((span, unit)) = self.time_unit else { return Ok(TimeUnit::SECONDS) };
        let is_number =
            |written: &Written| matches!(written, Written::Time(time) if time.has_time_unit());
        if self.lock.iter().flatten().any(is_number) || http.has_time_unit() {
            return Ok(unit);
        }
        Err(syn::Error::new(
            span,
            "`time_unit` is the unit of whole numbers in `expire`, `wait_time`, `max_hold`, \
             `min_hold` and `retry_after_max`, and there is none",
        ))
    }
}

fn time(input: ParseStream<'_>, name: &Ident) -> syn::Result<Written> {
    WrittenDuration::parse(&name.to_string(), &value(input, name)?).map(Written::Time)
}

fn expire(input: ParseStream<'_>, name: &Ident) -> syn::Result<Written> {
    let value = value(input, name)?;
    if is_forever(&value) {
        return Err(syn::Error::new_spanned(
            value,
            "a lock without an end would outlive a crashed holder; `renew` extends the lease for as \
             long as the function runs",
        ));
    }
    WrittenDuration::parse("expire", &value).map(Written::Time)
}

fn wait_time(input: ParseStream<'_>, name: &Ident) -> syn::Result<Written> {
    let value = value(input, name)?;
    if is_forever(&value) {
        return Ok(Written::Other(value.span(), OptionValue::Forever));
    }
    WrittenDuration::parse("wait_time", &value).map(Written::Time).map_err(|error| {
        syn::Error::new_spanned(
            &value,
            format!("{error}; `\"forever\"` waits for as long as it takes"),
        )
    })
}

fn switch(input: ParseStream<'_>, name: &Ident) -> syn::Result<Written> {
    Ok(Written::Other(name.span(), OptionValue::Switch(flag(input, name)?)))
}

fn permits(input: ParseStream<'_>, name: &Ident) -> syn::Result<Written> {
    let value = value(input, name)?;
    let count = WrittenCount::parse("permits", &value)?;
    Ok(Written::Other(value.span(), OptionValue::Count(count)))
}

fn is_forever(value: &Expr) -> bool {
    matches!(
        ungrouped(value),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value() == "forever"
    )
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

fn dialect(input: ParseStream<'_>, name: &Ident) -> syn::Result<Written> {
    let value = value(input, name)?;
    let variant = match ungrouped(&value) {
        Expr::Path(path) if path.path.is_ident("plain") => "Plain",
        Expr::Path(path) if path.path.is_ident("redisson") => "Redisson",
        other => {
            return Err(syn::Error::new_spanned(
                other,
                "`dialect` is `plain` or `redisson`, without quotation marks",
            ));
        }
    };
    Ok(Written::Other(value.span(), OptionValue::Dialect(variant)))
}

fn on_lost(value: &Expr) -> syn::Result<OnLostArgument> {
    match ungrouped(value) {
        Expr::Path(path) if path.path.is_ident("abort") => Ok(OnLostArgument::Abort),
        Expr::Path(path) if path.path.is_ident("keep_going") => Ok(OnLostArgument::KeepGoing),
        other => Err(syn::Error::new_spanned(
            other,
            "`on_lost` is `abort` or `keep_going`, without quotation marks",
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

    fn options(tokens: TokenStream) -> Options {
        parse(tokens).unwrap().options
    }

    fn message(tokens: TokenStream) -> String {
        parse(tokens).err().unwrap().to_string()
    }

    /// Returns the setters with their values.
    fn setters(tokens: TokenStream) -> Vec<String> {
        let value = |value: &OptionValue| match value {
            OptionValue::Time(AttributeTime::Literal(time)) => format!("{time:?}"),
            OptionValue::Time(AttributeTime::Constant { expression, .. })
            | OptionValue::Count(WrittenCount::Constant(expression)) => {
                quote!(#expression).to_string()
            }
            OptionValue::Forever => "forever".to_owned(),
            OptionValue::Switch(switch) => switch.to_string(),
            OptionValue::Count(WrittenCount::Literal(count)) => count.to_string(),
            OptionValue::Dialect(dialect) => (*dialect).to_owned(),
        };
        let setters = options(tokens).setters;
        setters.iter().map(|setter| format!("{} {}", setter.option, value(&setter.value))).collect()
    }

    /// The defaults of `redlock-axum` apply.
    #[test]
    fn an_omitted_option_has_no_setter() {
        assert!(setters(quote!()).is_empty());
        let options = options(quote!());
        assert_eq!(options.on_lost, OnLostArgument::KeepGoing);
        assert!(options.fenced.is_none());
    }

    #[test]
    fn every_option_has_one_setter() {
        let written = quote! {
            expire = 9, wait_time = "2s", renew, max_hold = "1m", min_hold = 3, keep = false, reentrant,
            fair, shared, permits = 3, dialect = redisson,
        };
        assert_eq!(
            setters(written),
            [
                "expire 9s",
                "wait_time 2s",
                "renew true",
                "max_hold 60s",
                "min_hold 3s",
                "keep false",
                "reentrant true",
                "fair true",
                "shared true",
                "permits 3",
                "dialect Redisson",
            ]
        );
        assert_eq!(setters(quote!(wait_time = "forever")), ["wait_time forever"]);
        assert_eq!(setters(quote!(dialect = plain)), ["dialect Plain"]);
        assert_eq!(setters(quote!(expire = Self::LEASE)), ["expire Self :: LEASE"]);
        assert_eq!(setters(quote!(permits = Self::EXPORTS)), ["permits Self :: EXPORTS"]);
    }

    /// The compiler checks the rules of the options when it compiles the attribute, each rule at
    /// its option.
    #[test]
    fn each_setter_is_checked() {
        let pay: Signature = syn::parse_quote!(async fn pay());
        let expression =
            options(quote!(expire = 9, renew)).expression(&quote!(private), &pay).to_string();
        let expire = ". expire (:: core :: time :: Duration :: new (9u64 , 0u32))";
        assert!(expression.contains(expire), "{expression}");
        assert!(expression.contains(". renew (true)"), "{expression}");
        for option in ["expire", "renew"] {
            let check = format!("private :: assert_valid (& __REDIS_LOCK_OPTIONS , {option:?})");
            assert_eq!(expression.matches(&check).count(), 1, "{expression}");
        }
    }

    #[test]
    fn a_flag_stands_alone_or_has_a_value() {
        for (written, expected) in [
            (quote!(renew, keep, reentrant, fair, shared), true),
            (quote!(renew = true, keep = true, reentrant = true, fair = true, shared = true), true),
            (
                quote!(
                    renew = false,
                    keep = false,
                    reentrant = false,
                    fair = false,
                    shared = false
                ),
                false,
            ),
        ] {
            let switches = ["renew", "keep", "reentrant", "fair", "shared"];
            assert_eq!(setters(written), switches.map(|name| format!("{name} {expected}")));
        }
        for value in [quote!(1), quote!("true"), quote!(yes)] {
            assert!(message(quote!(renew = #value)).starts_with("`renew` is `true` or `false`"));
        }
    }

    #[test]
    fn only_exclusive_locks_are_fenced() {
        for (tokens, option) in
            [(quote!(shared, fenced), "shared"), (quote!(fenced, permits = 2), "permits")]
        {
            let expected = format!("`fenced` cannot be combined with `{option}`: ");
            assert!(message(tokens).starts_with(&expected));
        }
        options(quote!(shared = false, fenced));
        options(quote!(shared, fenced = false));
    }

    #[test]
    fn dialect_is_plain_or_redisson() {
        for value in [quote!(redis), quote!("redisson"), quote!(true)] {
            let message = message(quote!(dialect = #value));
            assert!(message.starts_with("`dialect` is `plain` or `redisson`"), "{message}");
        }
    }

    #[test]
    fn on_lost_is_abort_or_keep_going() {
        assert_eq!(options(quote!(on_lost = abort)).on_lost, OnLostArgument::Abort);
        assert_eq!(options(quote!(on_lost = keep_going)).on_lost, OnLostArgument::KeepGoing);
        for value in [quote!(panic), quote!("abort"), quote!(true)] {
            let message = message(quote!(on_lost = #value));
            assert!(message.starts_with("`on_lost` is `abort` or `keep_going`"), "{message}");
        }
    }

    #[test]
    fn numbers_have_the_time_unit_and_texts_their_own() {
        let setters = setters(quote! {
            time_unit = "milliseconds", expire = 1500, wait_time = "2s", min_hold = 700,
            max_hold = 90,
        });
        assert_eq!(setters, ["expire 1.5s", "wait_time 2s", "max_hold 90ms", "min_hold 700ms"]);
    }

    #[test]
    fn a_time_unit_without_a_number_is_refused() {
        for tokens in [
            quote!(expire = "5s", time_unit = "seconds"),
            quote!(wait_time = "forever", time_unit = "seconds"),
            quote!(time_unit = "seconds"),
        ] {
            assert!(message(tokens).starts_with("`time_unit` is the unit of whole numbers"));
        }
        for tokens in [
            quote!(min_hold = 1, time_unit = "seconds"),
            quote!(renew, max_hold = 1, time_unit = "seconds"),
        ] {
            options(tokens);
        }
        let message = message(quote!(expire = 5, time_unit = SECONDS));
        assert!(message.starts_with("`time_unit` must be a text"), "{message}");
    }

    #[test]
    fn invalid_times_are_refused() {
        for (tokens, start) in [
            (quote!(expire = "forever"), "a lock without an end would outlive a crashed holder"),
            (quote!(wait_time = "for ever"), "invalid duration"),
        ] {
            let message = message(tokens);
            assert!(message.starts_with(start), "{message}");
        }
        assert!(
            message(quote!(wait_time = true))
                .ends_with("`\"forever\"` waits for as long as it takes")
        );
    }
}
