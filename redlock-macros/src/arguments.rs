//! The arguments of the attribute.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, ExprPath, Path, Token, parenthesized, token};

use crate::http::{self, HttpArguments, ParsedHttpArguments};
use crate::key::Key;
use crate::options::{self, OnLostArgument, Options};
use crate::value::{equals, flag, set_once, value};

/// Lists all arguments, for error messages.
fn known_arguments() -> String {
    let options = options::names().chain(http::NAMES);
    let options: Vec<_> = options.map(|name| format!("`{name}`")).collect();
    format!(
        "the arguments are `key`, `keys`, {}, `manager`, `installed`, `error`, `skip` and `crate`",
        options.join(", ")
    )
}

/// The arguments, after they have been checked.
pub(crate) struct Arguments {
    pub(crate) key: Key,
    pub(crate) options: Options,
    pub(crate) http: HttpArguments,
    pub(crate) manager: Option<Expr>,
    /// The span of `installed`, if a handler uses the manager that a layer has installed.
    pub(crate) installed: Option<Span>,
    pub(crate) error: Option<ExprPath>,
    pub(crate) skip: Option<Skip>,
    pub(crate) crate_path: Option<Path>,
}

/// The value that a function returns, as `Ok`, while another holder has the lock.
pub(crate) enum Skip {
    /// `skip`: `None`.
    None,
    /// `skip = <expression>`.
    Value(Expr),
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut parsed = ParsedArguments::default();
        while !input.is_empty() {
            parsed.argument(input)?;
            if !input.is_empty() && input.parse::<Token![,]>().is_err() {
                return Err(input.error("expected a comma before the next argument"));
            }
        }
        parsed.check()
    }
}

/// The arguments as they were written.
#[derive(Default)]
struct ParsedArguments {
    key: Option<Key>,
    options: options::ParsedOptions,
    http: ParsedHttpArguments,
    manager: Option<Expr>,
    installed: Option<(Span, bool)>,
    error: Option<(Span, Expr)>,
    skip: Option<(Span, Skip)>,
    crate_path: Option<Path>,
}

impl ParsedArguments {
    fn argument(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        if !input.peek(Ident::peek_any) {
            let known = known_arguments();
            return Err(input
                .error(format!("expected an argument such as `key = \"order:{{id}}\"`; {known}")));
        }
        let name = input.call(Ident::parse_any)?;
        if let Some(read) = self.options.argument(&name, input) {
            return read;
        }
        if let Some(read) = self.http.argument(&name, input) {
            return read;
        }
        match name.to_string().as_str() {
            "key" if input.peek(token::Paren) => {
                let arguments;
                parenthesized!(arguments in input);
                self.set_key(&name, Key::from_arguments(&arguments)?)
            }
            "key" => {
                let key = Key::from_value(value(input, &name)?)?;
                self.set_key(&name, key)
            }
            "keys" if input.peek(token::Paren) => {
                let arguments;
                parenthesized!(arguments in input);
                self.set_key(&name, Key::from_items(&arguments)?)
            }
            "keys" => {
                let keys = Key::from_list(value(input, &name)?)?;
                self.set_key(&name, keys)
            }
            "manager" => set_once(&mut self.manager, &name, value(input, &name)?),
            "installed" => {
                let flag = flag(input, &name)?;
                set_once(&mut self.installed, &name, (name.span(), flag))
            }
            "error" => set_once(&mut self.error, &name, (name.span(), value(input, &name)?)),
            "skip" => {
                let skip = if input.peek(Token![=]) {
                    Skip::Value(value(input, &name)?)
                } else {
                    Skip::None
                };
                set_once(&mut self.skip, &name, (name.span(), skip))
            }
            "crate" => {
                equals(input, &name)?;
                set_once(&mut self.crate_path, &name, input.call(Path::parse_mod_style)?)
            }
            unknown => {
                let perhaps = suggestion(unknown)
                    .map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
                let known = known_arguments();
                let message = format!("unknown argument `{unknown}`{perhaps}; {known}");
                Err(syn::Error::new(name.span(), message))
            }
        }
    }

    /// Stores the value of `key` or `keys`, which exclude each other.
    fn set_key(&mut self, name: &Ident, key: Key) -> syn::Result<()> {
        let is_list = |key: &Key| matches!(key, Key::EachItem(_) | Key::List(_));
        match &self.key {
            Some(other) if is_list(other) != is_list(&key) => Err(syn::Error::new(
                name.span(),
                "`key` and `keys` both name what the lock is for; leave out one of them",
            )),
            _ => set_once(&mut self.key, name, key),
        }
    }

    fn check(self) -> syn::Result<Arguments> {
        let Self { key, options, http, manager, installed, error, skip, crate_path } = self;
        let installed = installed.and_then(|(span, installed)| installed.then_some(span));
        let key = key.ok_or_else(|| {
            syn::Error::new(
                Span::call_site(),
                "the lock needs a key: `#[redis_lock(key = \"order:{id}\")]`",
            )
        })?;
        if let (Some(name), Some(_)) = (http.first_name(), &manager) {
            return Err(syn::Error::new(
                name.span(),
                format!(
                    "`{name}` is for handlers, which respond to a refused request; a function with \
                     `manager` returns an error"
                ),
            ));
        }
        if let (Some((span, _)), None) = (&error, &manager) {
            return Err(syn::Error::new(
                *span,
                "`error` is for functions with `manager`, which return an error; a handler has `on_reject`, a function \
                 from `LockRejection` to the response",
            ));
        }
        if let (Some((span, _)), None) = (&skip, &manager) {
            return Err(syn::Error::new(
                *span,
                "`skip` needs `manager`: without it the function is a handler, which answers 409 while \
                 another holder has the lock",
            ));
        }
        let skip = skip.map(|(_, skip)| skip);
        let unit = options.unit(&http)?;
        let (options, http) = (options.check(unit)?, http.check(unit)?);
        let is_list = matches!(key, Key::EachItem(_) | Key::List(_));
        if let Some((option, span)) = options.of_one_key().filter(|_| is_list) {
            let message = format!("`{option}` is for locks of one key, and `keys` locks several");
            return Err(syn::Error::new(span, message));
        }
        if let (Some(span), Some(_)) = (options.fenced, &manager) {
            return Err(syn::Error::new(
                span,
                "`fenced` is for handlers, which get the number as a `FencedLock`; in a function \
                 acquire the lock by hand: `locks.lock(..).fenced(true).acquire()`",
            ));
        }
        if let (Some(span), Some(_)) = (installed, &manager) {
            return Err(syn::Error::new(
                span,
                "`installed` is for handlers, and `manager` is for functions; leave out one of them",
            ));
        }
        let error = error.map(|(_, path)| error_path(path, options.on_lost)).transpose()?;
        Ok(Arguments { key, options, http, manager, installed, error, skip, crate_path })
    }
}

fn error_path(value: Expr, on_lost: OnLostArgument) -> syn::Result<ExprPath> {
    match value {
        Expr::Path(path) => Ok(path),
        Expr::Group(group) => error_path(*group.expr, on_lost),
        other => {
            let message = match on_lost {
                OnLostArgument::KeepGoing => {
                    "`error` must be the path of a function from `LockError` to the function's own \
                     error, such as `ShopError::from_lock`"
                }
                OnLostArgument::Abort => {
                    "with `on_lost = abort`, `error` must be the path of a function from `RunError` to \
                     the function's own error, such as `ShopError::from_run`"
                }
            };
            Err(syn::Error::new_spanned(other, message))
        }
    }
}

/// Returns the argument that an unknown name probably means, for the names of the Spring annotation and of
/// other lock libraries. For any other name, such as `hold_at_least`, the message only lists the known
/// arguments.
fn suggestion(name: &str) -> Option<&'static str> {
    Some(match name {
        "name" | "value" => "key",
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
    use proc_macro2::TokenStream;
    use quote::quote;

    use super::*;

    fn message(tokens: TokenStream) -> String {
        syn::parse2::<Arguments>(tokens).err().unwrap().to_string()
    }

    #[test]
    fn an_argument_that_is_given_twice_is_an_error() {
        assert_eq!(message(quote!(key = "a", key("b"))), "`key` is given twice");
        assert_eq!(message(quote!(keys = a, keys("{}", b))), "`keys` is given twice");
        for both in [quote!(key = "a", keys = b), quote!(keys("{}", b), key("a"))] {
            assert!(message(both).starts_with("`key` and `keys` both name"));
        }
        for (name, value) in [
            ("expire", quote!(1)),
            ("wait_time", quote!(1)),
            ("time_unit", quote!("seconds")),
            ("renew", quote!(true)),
            ("max_hold", quote!(1)),
            ("min_hold", quote!(1)),
            ("keep", quote!(true)),
            ("reentrant", quote!(true)),
            ("fair", quote!(true)),
            ("shared", quote!(true)),
            ("permits", quote!(1)),
            ("dialect", quote!(redisson)),
            ("fenced", quote!(true)),
            ("on_lost", quote!(abort)),
            ("manager", quote!(locks)),
            ("error", quote!(locks)),
            ("skip", quote!(0)),
            ("contended_status", quote!(423)),
            ("retry_after_max", quote!(1)),
            ("hold_until", quote!(response)),
            ("on_reject", quote!(respond)),
        ] {
            let ident = Ident::new(name, Span::call_site());
            assert_eq!(
                message(quote!(key = "a", #ident = #value, #ident = #value)),
                format!("`{name}` is given twice")
            );
        }
        assert_eq!(message(quote!(key = "a", renew, renew = false)), "`renew` is given twice");
        assert_eq!(message(quote!(key = "a", crate = a::b, crate = c)), "`crate` is given twice");
    }

    #[test]
    fn the_message_for_an_unknown_argument_lists_the_known_ones() {
        assert_eq!(
            message(quote!(key = "a", waitTime = 2)),
            format!(
                "unknown argument `waitTime` (did you mean `wait_time`?); {}",
                known_arguments()
            )
        );
        for unknown in ["fast", "hold_at_least"] {
            let ident = Ident::new(unknown, Span::call_site());
            assert_eq!(
                message(quote!(key = "a", #ident = 1)),
                format!("unknown argument `{unknown}`; {}", known_arguments())
            );
        }
        assert!(message(quote!("order")).starts_with("expected an argument such as `key"));
    }

    #[test]
    fn a_missing_value_or_comma_is_an_error() {
        for tokens in [quote!(key), quote!(key =), quote!(key("a"), expire)] {
            assert!(message(tokens).contains("has no value; write"));
        }
        assert_eq!(
            message(quote!(key = "a" expire = 5)),
            "expected a comma before the next argument"
        );
    }

    #[test]
    fn conflicting_arguments_are_refused() {
        assert!(message(quote!()).starts_with("the lock needs a key"));
        assert!(message(quote!(expire = 5)).starts_with("the lock needs a key"));
        assert!(message(quote!(key = "a", skip)).starts_with("`skip` needs `manager`"));
        assert!(message(quote!(key = "a", skip = 0)).starts_with("`skip` needs `manager`"));
        assert!(
            message(quote!(key = "a", manager = m, error = |e| e)).starts_with("`error` must be")
        );
        for tokens in [
            quote!(key = "a", manager = m, error = |e| e, on_lost = abort),
            quote!(on_lost = abort, error = 5, key = "a", manager = m),
        ] {
            let message = message(tokens);
            assert!(message.contains("`error` must be the path of a function from `RunError`"));
        }
        assert!(message(quote!(key = "a", manager = m, fenced)).starts_with("`fenced` is for"));
        for (option, is_refused) in [
            (quote!(fair), true),
            (quote!(shared), true),
            (quote!(permits = 3), true),
            (quote!(fair = false, shared = false), false),
        ] {
            let result = syn::parse2::<Arguments>(quote!(keys("sku:{}", skus), #option));
            let message = result.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(message.contains("is for locks of one key"), is_refused, "{message}");
        }
        assert!(
            message(quote!(key = "a", error = convert)).starts_with("`error` is for functions")
        );
    }
}
