//! The arguments that say how the lock is asked for and held.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::parse::ParseStream;
use syn::{Expr, ExprLit, Lit};

use crate::duration::{TimeUnit, Written};
use crate::key::ungrouped;
use crate::value::{flag, once, value};

const DEFAULT_EXPIRE_MS: u64 = 5_000;

/// How the lock is asked for and held, checked.
#[derive(Debug)]
pub(crate) struct Options {
    expire_ms: u64,
    wait: Wait,
    renew: bool,
    max_hold_ms: Option<u64>,
    min_hold: Option<MinHold>,
    reentrant: bool,
    /// Where `fenced` stands, if the lock is to be numbered.
    pub(crate) fenced: Option<Span>,
    pub(crate) on_lost: OnLost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// One attempt.
    Not,
    ForMs(u64),
    Forever,
}

/// How long the lock stays although the function has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MinHold {
    ForMs(u64),
    /// Until its lease runs out.
    UntilExpiry,
}

/// What becomes of the function when its lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OnLost {
    #[default]
    KeepGoing,
    Abort,
}

impl Options {
    /// The options as calls of a `LockRequest`'s methods; what is as it would be without a call has
    /// none.
    pub(crate) fn calls(&self) -> TokenStream {
        let Self { expire_ms, wait, renew, max_hold_ms, min_hold, reentrant, .. } = *self;
        let expire = duration(expire_ms);
        let renew = renew.then(|| quote!(.renew()));
        let max_hold = max_hold_ms.map(duration).map(|time| quote!(.max_hold(#time)));
        let min_hold = min_hold.map(|min_hold| match min_hold {
            MinHold::ForMs(time) => {
                let time = duration(time);
                quote!(.min_hold(#time))
            }
            MinHold::UntilExpiry => quote!(.keep()),
        });
        let reentrant = reentrant.then(|| quote!(.reentrant()));
        let wait = match wait {
            Wait::Not => None,
            Wait::ForMs(time) => {
                let time = duration(time);
                Some(quote!(.wait_time(#time)))
            }
            Wait::Forever => Some(quote!(.wait_forever())),
        };
        quote!(.expire(#expire) #renew #max_hold #min_hold #reentrant #wait)
    }
}

fn duration(milliseconds: u64) -> TokenStream {
    quote!(::core::time::Duration::from_millis(#milliseconds))
}

/// The options as they were written.
#[derive(Default)]
pub(crate) struct Given {
    expire: Option<Written>,
    wait_time: Option<WaitTime>,
    time_unit: Option<(Span, TimeUnit)>,
    renew: Option<bool>,
    max_hold: Option<(Span, Written)>,
    min_hold: Option<(Span, Written)>,
    reentrant: Option<bool>,
    fenced: Option<(Span, bool)>,
    keep: Option<bool>,
    on_lost: Option<OnLost>,
}

enum WaitTime {
    For(Written),
    Forever,
}

impl Given {
    /// Reads the argument of this name; `None` if it is no option.
    pub(crate) fn argument(
        &mut self,
        name: &Ident,
        input: ParseStream<'_>,
    ) -> Option<syn::Result<()>> {
        Some(match name.to_string().as_str() {
            "expire" => expire(input, name).and_then(|time| once(&mut self.expire, name, time)),
            "wait_time" => {
                wait_time(input, name).and_then(|time| once(&mut self.wait_time, name, time))
            }
            "time_unit" => value(input, name)
                .and_then(|value| time_unit(&value))
                .and_then(|unit| once(&mut self.time_unit, name, (name.span(), unit))),
            "renew" => flag(input, name).and_then(|flag| once(&mut self.renew, name, flag)),
            "max_hold" => time(input, name)
                .and_then(|time| once(&mut self.max_hold, name, (name.span(), time))),
            "min_hold" => time(input, name)
                .and_then(|time| once(&mut self.min_hold, name, (name.span(), time))),
            "reentrant" => flag(input, name).and_then(|flag| once(&mut self.reentrant, name, flag)),
            "fenced" => {
                flag(input, name).and_then(|flag| once(&mut self.fenced, name, (name.span(), flag)))
            }
            "keep" => flag(input, name).and_then(|flag| once(&mut self.keep, name, flag)),
            "on_lost" => value(input, name)
                .and_then(|value| on_lost(&value))
                .and_then(|on_lost| once(&mut self.on_lost, name, on_lost)),
            _ => return None,
        })
    }

    pub(crate) fn check(self) -> syn::Result<Options> {
        let unit = self.unit()?;
        let Self {
            expire,
            wait_time,
            time_unit: _,
            renew,
            max_hold,
            min_hold,
            reentrant,
            fenced,
            keep,
            on_lost,
        } = self;
        let expire_ms = expire.map_or(Ok(DEFAULT_EXPIRE_MS), |expire| expire.expire_ms(unit))?;
        let renew = renew.unwrap_or_default();
        Ok(Options {
            expire_ms,
            wait: match wait_time {
                None => Wait::Not,
                Some(WaitTime::For(time)) => match time.wait_ms(unit)? {
                    0 => Wait::Not,
                    milliseconds => Wait::ForMs(milliseconds),
                },
                Some(WaitTime::Forever) => Wait::Forever,
            },
            renew,
            max_hold_ms: max_hold.map(|given| max_hold_ms(given, unit, renew)).transpose()?,
            min_hold: check_min_hold(min_hold, keep.unwrap_or_default(), unit, expire_ms)?,
            reentrant: reentrant.unwrap_or_default(),
            fenced: fenced.and_then(|(span, fenced)| fenced.then_some(span)),
            on_lost: on_lost.unwrap_or_default(),
        })
    }

    /// The unit of whole numbers.
    fn unit(&self) -> syn::Result<TimeUnit> {
        let Some((span, unit)) = self.time_unit else { return Ok(TimeUnit::SECONDS) };
        let wait_time = match &self.wait_time {
            Some(WaitTime::For(time)) => Some(time),
            Some(WaitTime::Forever) | None => None,
        };
        let max_hold = self.max_hold.as_ref().map(|(_, time)| time);
        let min_hold = self.min_hold.as_ref().map(|(_, time)| time);
        let times = [self.expire.as_ref(), wait_time, max_hold, min_hold];
        if times.into_iter().flatten().any(Written::is_number) {
            return Ok(unit);
        }
        Err(syn::Error::new(
            span,
            "`time_unit` is the unit of whole numbers in `expire`, `wait_time`, `max_hold` and \
             `min_hold`, and there is none",
        ))
    }
}

fn time(input: ParseStream<'_>, name: &Ident) -> syn::Result<Written> {
    Written::parse(&name.to_string(), &value(input, name)?)
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
    Written::parse("expire", &value)
}

fn wait_time(input: ParseStream<'_>, name: &Ident) -> syn::Result<WaitTime> {
    let value = value(input, name)?;
    if is_forever(&value) {
        return Ok(WaitTime::Forever);
    }
    Written::parse("wait_time", &value).map(WaitTime::For).map_err(|error| {
        syn::Error::new_spanned(
            &value,
            format!("{error}; `\"forever\"` waits for as long as it takes"),
        )
    })
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

fn on_lost(value: &Expr) -> syn::Result<OnLost> {
    match ungrouped(value) {
        Expr::Path(path) if path.path.is_ident("abort") => Ok(OnLost::Abort),
        Expr::Path(path) if path.path.is_ident("keep_going") => Ok(OnLost::KeepGoing),
        other => Err(syn::Error::new_spanned(
            other,
            "`on_lost` is `abort` or `keep_going`, without quotation marks",
        )),
    }
}

fn max_hold_ms((name, time): (Span, Written), unit: TimeUnit, renew: bool) -> syn::Result<u64> {
    if !renew {
        return Err(syn::Error::new(
            name,
            "`max_hold` bounds the renewal of the lease, and needs `renew`",
        ));
    }
    match time.milliseconds(unit)? {
        0 => Err(syn::Error::new(
            time.span(),
            "`max_hold` must be longer than zero; without renewal, leave out `renew`",
        )),
        milliseconds => Ok(milliseconds),
    }
}

fn check_min_hold(
    min_hold: Option<(Span, Written)>,
    keep: bool,
    unit: TimeUnit,
    expire_ms: u64,
) -> syn::Result<Option<MinHold>> {
    let Some((name, time)) = min_hold else { return Ok(keep.then_some(MinHold::UntilExpiry)) };
    if keep {
        return Err(syn::Error::new(
            name,
            "`keep` holds the lock for its whole lease, and so leaves nothing to `min_hold`",
        ));
    }
    match time.milliseconds(unit)? {
        0 => Ok(None),
        milliseconds if milliseconds <= expire_ms => Ok(Some(MinHold::ForMs(milliseconds))),
        _ => Err(syn::Error::new(
            time.span(),
            format!("`min_hold` must not be longer than the lease: `expire` is {expire_ms} ms"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::attr::Arguments;

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

    fn calls(tokens: TokenStream) -> String {
        options(tokens).calls().to_string().replace(' ', "").replace("::core::time::Duration::", "")
    }

    /// The defaults of the Spring annotation.
    #[test]
    fn the_default_is_five_seconds_and_no_waiting() {
        assert_eq!(calls(quote!()), ".expire(from_millis(5000u64))");
        let options = options(quote!());
        assert_eq!(options.on_lost, OnLost::KeepGoing);
    }

    #[test]
    fn every_option_is_one_call() {
        let written = quote! {
            expire = 9, wait_time = "2s", renew, max_hold = "1m", min_hold = 3, reentrant,
        };
        assert_eq!(
            calls(written),
            ".expire(from_millis(9000u64)).renew().max_hold(from_millis(60000u64))\
             .min_hold(from_millis(3000u64)).reentrant().wait_time(from_millis(2000u64))"
        );
        assert_eq!(calls(quote!(expire = 9, keep)), ".expire(from_millis(9000u64)).keep()");
        let forever = calls(quote!(wait_time = "forever"));
        assert_eq!(forever, ".expire(from_millis(5000u64)).wait_forever()");
    }

    #[test]
    fn a_flag_stands_alone_or_has_a_value() {
        for (written, expected) in [
            (quote!(), false),
            (quote!(renew, keep, reentrant), true),
            (quote!(renew = true, keep = true, reentrant = true), true),
            (quote!(renew = false, keep = false, reentrant = false), false),
        ] {
            let options = options(written);
            let keep = options.min_hold == Some(MinHold::UntilExpiry);
            assert_eq!([options.renew, keep, options.reentrant], [expected; 3]);
        }
        for value in [quote!(1), quote!("true"), quote!(yes)] {
            assert!(message(quote!(renew = #value)).starts_with("`renew` is `true` or `false`"));
        }
    }

    #[test]
    fn on_lost_is_one_of_two() {
        assert_eq!(options(quote!(on_lost = abort)).on_lost, OnLost::Abort);
        assert_eq!(options(quote!(on_lost = keep_going)).on_lost, OnLost::KeepGoing);
        for value in [quote!(panic), quote!("abort"), quote!(true)] {
            let message = message(quote!(on_lost = #value));
            assert!(message.starts_with("`on_lost` is `abort` or `keep_going`"), "{message}");
        }
    }

    #[test]
    fn numbers_are_counted_in_the_unit_and_texts_in_their_own() {
        let options = options(quote! {
            time_unit = "milliseconds", expire = 1500, wait_time = "2s", min_hold = 700,
            renew, max_hold = 90,
        });
        assert_eq!(options.expire_ms, 1_500);
        assert_eq!(options.wait, Wait::ForMs(2_000));
        assert_eq!(options.min_hold, Some(MinHold::ForMs(700)));
        assert_eq!(options.max_hold_ms, Some(90));
    }

    #[test]
    fn a_unit_does_not_change_the_default() {
        let options = options(quote!(wait_time = 2, time_unit = "minutes"));
        assert_eq!(options.expire_ms, 5_000);
        assert_eq!(options.wait, Wait::ForMs(120_000));
    }

    #[test]
    fn a_unit_without_a_number_is_refused() {
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
    fn none_and_zero_are_the_same_where_zero_means_none() {
        let options = options(quote!(wait_time = 0, min_hold = 0));
        assert_eq!(options.wait, Wait::Not);
        assert_eq!(options.min_hold, None);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for (tokens, start) in [
            (quote!(max_hold = 60), "`max_hold` bounds the renewal"),
            (quote!(renew = false, max_hold = 60), "`max_hold` bounds the renewal"),
            (quote!(renew, max_hold = 0), "`max_hold` must be longer than zero"),
            (quote!(keep, min_hold = 2), "`keep` holds the lock for its whole lease"),
            (quote!(min_hold = "5001ms"), "`min_hold` must not be longer than the lease"),
            (quote!(expire = "forever"), "a lock without an end would outlive a crashed holder"),
            (quote!(wait_time = "for ever"), "this is no duration"),
            (quote!(wait_time = "8d"), "`wait_time` must be at most 7 days"),
            (quote!(wait_time = 604_801), "`wait_time` must be at most 7 days"),
        ] {
            let message = message(tokens);
            assert!(message.starts_with(start), "{message}");
        }
        options(quote!(min_hold = 5));
        options(quote!(wait_time = "7d"));
        options(quote!(keep = false, min_hold = 2));
        assert!(
            message(quote!(wait_time = true))
                .ends_with("`\"forever\"` waits for as long as it takes")
        );
    }
}
