//! The options of an attribute, which the compiler evaluates and checks.
//!
//! # Adding an argument
//!
//! An option of HTTP is a field of `HttpOptions` (`options.rs`), has an arm in `Options::set` and, for a new type, a
//! `Conversion` in this file, a method in `layer/policy.rs`, and a field in `layer/de.rs`. If it concerns the answer, it also
//! goes through `LockRejection::with_http_options`.
//!
//! Each argument has its name in `unknown_argument`, a row in `redlock-axum/docs/options.md`, a test in
//! `redlock-axum/tests/front_ends`, and the messages in `redlock-axum/tests/ui` (see CONTRIBUTING.md).

use std::marker::PhantomData;
use std::time::Duration;

use redlock_core::__private::{self as core, LockName, RequestPlace, TimeText, is_same, read_time};
use redlock_core::{Dialect, LockOptions, LockRequest, OnLost, WaitTime};

use super::argument::ArgumentValue;
use crate::options::{HoldUntil, HttpOptions, assert_contended_status, assert_retry_after_max};

/// The options of an attribute.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) lock: LockOptions,
    pub(crate) http: HttpOptions,
    /// The name of the lock. It is valid if the program compiles.
    name: &'static str,
    /// The path of the function, for warnings.
    function: &'static str,
    /// Whether a whole number has `time_unit`.
    has_unit: bool,
    /// The first option whose value cannot be used, and the reason.
    mistake: Option<(&'static str, &'static str)>,
}

/// The form of a function with the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "no public API")]
pub enum Form {
    /// A handler.
    Handler,
    /// A handler with `keys`.
    HandlerOfKeys,
    /// A function with `manager`.
    Function,
    /// A function with `manager` and `keys`.
    FunctionOfKeys,
}

/// Returns the options with these names and values. Whole numbers of times have a unit of `unit` milliseconds. `name` is the
/// default name of the lock, and `function` the path of the function.
pub const fn options(
    form: Form,
    unit: u64,
    name: &'static str,
    function: &'static str,
    values: &[(&'static str, ArgumentValue)],
) -> Options {
    let mut options = Options {
        lock: LockOptions::new(),
        http: HttpOptions::new(),
        name,
        function,
        has_unit: false,
        mistake: None,
    };
    let mut rest = values;
    while let [(name, value), others @ ..] = rest {
        if let Err(mistake) = options.set(form, unit, name, *value) {
            options.mistake = Some((*name, mistake));
            return options;
        }
        rest = others;
    }
    options
}

/// Panics if the value of this option cannot be used or breaks a rule, so that the mistake is a compile error.
#[track_caller]
pub const fn assert_valid(options: &Options, option: &str) {
    if let Some((name, mistake)) = options.mistake {
        assert!(!is_same(name, option), "{}", mistake);
        return;
    }
    if is_same(option, "time_unit") {
        assert!(
            options.has_unit,
            "`time_unit` is the unit of times that are whole numbers, such as `expire = 5`, and there is none"
        );
    } else if is_same(option, "contended_status") {
        assert_contended_status(&options.http);
    } else if is_same(option, "retry_after_max") {
        assert_retry_after_max(&options.http);
    } else if is_same(option, "name") {
        LockName::assert_valid(options.name);
    } else {
        core::assert_valid(&options.lock, option);
    }
}

const FOR_HANDLERS: &str = "this option is for handlers, which respond to a refused request; a function with `manager` returns \
                            an error";

macro_rules! unknown_argument {
    ($($(#[$doc:meta])* $name:ident: $ty:ty,)*) => {
        concat!(
            "unknown argument; the arguments are `key`, `keys`, `name`, ",
            $("`", stringify!($name), "`, ",)*
            "`time_unit`, `detached`, `contended_status`, `retry_after_max`, `hold_until`, `on_reject`, `manager`, `installed`, \
             `error`, `skip` and `crate`",
        )
    };
}

macro_rules! set_option {
    ([$options:ident, $name:ident, $value:ident, $unit:ident] $($(#[$doc:meta])* $option:ident: $ty:ty,)*) => {
        $(if is_same($name, stringify!($option)) {
            $options.has_unit |= Conversion::<$ty>::IS_TIME && has_unit($value);
            return match Conversion::<$ty>::of($value, $unit) {
                Ok(value) => {
                    $options.lock.$option = Some(value);
                    Ok(())
                }
                Err(mistake) => Err(mistake),
            };
        })*
    };
}

/// Sets an option of `HttpOptions`.
macro_rules! set_http_option {
    ($options:ident.$option:ident: $ty:ty, $value:ident, $unit:ident) => {{
        $options.has_unit |= Conversion::<$ty>::IS_TIME && has_unit($value);
        match Conversion::<$ty>::of($value, $unit) {
            Ok(value) => {
                $options.http.$option = value;
                Ok(())
            }
            Err(mistake) => Err(mistake),
        }
    }};
}

impl Options {
    /// Sets the options, the name and the place of a request.
    pub(super) fn apply_to(self, request: LockRequest) -> LockRequest {
        let request = request.options(self.lock).with_name(LockName::checked(self.name));
        request.with_place(RequestPlace::Function(self.function))
    }

    const fn set(
        &mut self,
        form: Form,
        unit: u64,
        name: &str,
        value: ArgumentValue,
    ) -> Result<(), &'static str> {
        let is_function = matches!(form, Form::Function | Form::FunctionOfKeys);
        let is_list = matches!(form, Form::HandlerOfKeys | Form::FunctionOfKeys);
        let is_set = !matches!(value, ArgumentValue::Flag(false));
        if is_set
            && is_list
            && (is_same(name, "fair") || is_same(name, "shared") || is_same(name, "permits"))
        {
            return Err("this option is for locks of one key, and `keys` locks several");
        }
        if is_set && is_function && is_same(name, "fenced") {
            return Err(
                "`fenced` is for handlers, which get the number as a `FencedLock`; in a function acquire the lock by \
                 hand: `locks.lock(..).fenced(true).acquire()`",
            );
        }
        if is_same(name, "name") {
            let ArgumentValue::Text(text) = value else {
                return Err("`name` is a text, such as `\"order:{id}\"`, or a constant");
            };
            self.name = text;
            return Ok(());
        }
        redlock_core::lock_options!([set_option] { [self, name, value, unit] });
        let is_status = is_same(name, "contended_status");
        let is_retry = is_same(name, "retry_after_max");
        let is_hold = is_same(name, "hold_until");
        if is_function && (is_status || is_retry || is_hold) {
            return Err(FOR_HANDLERS);
        }
        if is_status {
            return set_http_option!(self.contended_status: u16, value, unit);
        }
        if is_retry {
            return set_http_option!(self.retry_after_max: Duration, value, unit);
        }
        if is_hold {
            return set_http_option!(self.hold_until: HoldUntil, value, unit);
        }
        Err(redlock_core::lock_options!([unknown_argument] {}))
    }
}

/// Returns whether the value may be a whole number of `time_unit`.
const fn has_unit(value: ArgumentValue) -> bool {
    match value {
        ArgumentValue::Number(_) => true,
        ArgumentValue::Text(text) => matches!(read_time(text), TimeText::Number(_)),
        _ => false,
    }
}

/// The conversion of a value into the type of an option.
struct Conversion<T>(PhantomData<T>);

macro_rules! time_forms {
    () => {
        "a time is a whole number, such as `5`, a text with its unit, such as `\"500ms\"`, `\"2s\"`, `\"1m 30s\"`, \
         `\"1h\"` or `\"1d\"`, or a constant"
    };
}

impl Conversion<Duration> {
    const IS_TIME: bool = true;

    const fn of(value: ArgumentValue, unit: u64) -> Result<Duration, &'static str> {
        let number = match value {
            ArgumentValue::Time(time) => return Ok(time),
            ArgumentValue::Number(number) => number,
            ArgumentValue::Text(text) if is_same(text, "forever") => {
                return Err(
                    "only `wait_time` may be `\"forever\"`: a lock without an end would outlive a crashed holder; `renew` \
                     extends the lease for as long as the function runs",
                );
            }
            ArgumentValue::Text(text) => match read_time(text) {
                TimeText::Time(time) => return Ok(time),
                TimeText::Number(number) => number,
                TimeText::TooLong => return Err("this time is too long"),
                TimeText::Invalid => return Err(time_forms!()),
            },
            _ => return Err(time_forms!()),
        };
        match number.checked_mul(unit) {
            Some(milliseconds) => Ok(Duration::from_millis(milliseconds)),
            None => Err("this time is too long"),
        }
    }
}

impl Conversion<WaitTime> {
    const IS_TIME: bool = true;

    const fn of(value: ArgumentValue, unit: u64) -> Result<WaitTime, &'static str> {
        if let ArgumentValue::Text(text) = value
            && is_same(text, "forever")
        {
            return Ok(WaitTime::Forever);
        }
        match Conversion::<Duration>::of(value, unit) {
            Ok(time) => Ok(WaitTime::UpTo(time)),
            Err(mistake) if is_same(mistake, time_forms!()) => {
                Err(concat!(time_forms!(), "; `\"forever\"` waits for as long as it takes"))
            }
            Err(mistake) => Err(mistake),
        }
    }
}

impl Conversion<bool> {
    const IS_TIME: bool = false;

    const fn of(value: ArgumentValue, _unit: u64) -> Result<bool, &'static str> {
        match value {
            ArgumentValue::Flag(flag) => Ok(flag),
            _ => Err("the value is `true` or `false`, and the name alone is `true`"),
        }
    }
}

impl Conversion<u32> {
    const IS_TIME: bool = false;

    /// A number that does not fit into the result stays out of the range of every option.
    const fn of(value: ArgumentValue, _unit: u64) -> Result<u32, &'static str> {
        match value {
            ArgumentValue::Negative => Ok(0),
            ArgumentValue::Number(number) if number > u32::MAX as u64 => Ok(u32::MAX),
            #[expect(clippy::cast_possible_truncation, reason = "it fits")]
            ArgumentValue::Number(number) => Ok(number as u32),
            _ => Err("the value is a whole number, such as `3`, or a constant"),
        }
    }
}

impl Conversion<u16> {
    const IS_TIME: bool = false;

    const fn of(value: ArgumentValue, _unit: u64) -> Result<u16, &'static str> {
        match value {
            ArgumentValue::Status(status) => Ok(status),
            #[expect(clippy::cast_possible_truncation, reason = "it fits")]
            ArgumentValue::Number(number @ 0..600) => Ok(number as u16),
            _ => Err(
                "`contended_status` is a status from 400 to 599, such as `423`, or a constant, such as `StatusCode::LOCKED`",
            ),
        }
    }
}

/// Converts words.
macro_rules! words {
    ($($ty:ty, $mistake:literal: $($word:literal => $value:expr),*;)*) => {
        $(impl Conversion<$ty> {
            const IS_TIME: bool = false;

            const fn of(value: ArgumentValue, _unit: u64) -> Result<$ty, &'static str> {
                if let ArgumentValue::Word(word) = value {
                    $(if is_same(word, $word) {
                        return Ok($value);
                    })*
                }
                Err($mistake)
            }
        })*
    };
}

words! {
    Dialect, "`dialect` is `plain` or `redisson`, without quotation marks":
        "plain" => Dialect::Plain, "redisson" => Dialect::Redisson;
    OnLost, "`on_lost` is `abort` or `keep_going`, without quotation marks":
        "abort" => OnLost::Abort, "keep_going" => OnLost::KeepGoing;
    HoldUntil, "`hold_until` is `response` or `end_of_body`, without quotation marks":
        "response" => HoldUntil::Response, "end_of_body" => HoldUntil::EndOfBody;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: Form, name: &'static str, value: ArgumentValue) -> Options {
        options(form, 1, "a", "f", &[(name, value)])
    }

    fn mistake(form: Form, name: &'static str, value: ArgumentValue) -> &'static str {
        of(form, name, value).mistake.map_or("", |(_, mistake)| mistake)
    }

    #[test]
    fn an_option_belongs_to_some_forms() {
        let (set, unset) = (ArgumentValue::Flag(true), ArgumentValue::Flag(false));
        for form in [Form::HandlerOfKeys, Form::FunctionOfKeys] {
            for (name, value) in
                [("fair", set), ("shared", set), ("permits", ArgumentValue::Number(2))]
            {
                assert!(
                    mistake(form, name, value).starts_with("this option is for locks of one key")
                );
            }
            assert_eq!(mistake(form, "fair", unset), "");
        }
        for form in [Form::Function, Form::FunctionOfKeys] {
            assert!(mistake(form, "fenced", set).starts_with("`fenced` is for handlers"));
            assert_eq!(mistake(form, "fenced", unset), "");
            for name in ["contended_status", "retry_after_max", "hold_until"] {
                assert_eq!(mistake(form, name, ArgumentValue::Number(1)), FOR_HANDLERS);
            }
        }
        assert_eq!(mistake(Form::HandlerOfKeys, "fenced", set), "");
        assert!(mistake(Form::Handler, "expir", set).starts_with("unknown argument"));
    }

    #[test]
    fn a_number_is_not_cut_to_the_size_of_its_option() {
        let status = ArgumentValue::Number(0x1_0000 + 409);
        assert!(
            mistake(Form::Handler, "contended_status", status)
                .starts_with("`contended_status` is a status")
        );
        for (value, permits) in
            [(ArgumentValue::Number((1 << 32) + 3), u32::MAX), (ArgumentValue::Negative, 0)]
        {
            assert_eq!(of(Form::Handler, "permits", value).lock.permits, Some(permits));
        }
        assert_eq!(mistake(Form::Handler, "expire", ArgumentValue::Number(u64::MAX)), "");
        let seconds =
            options(Form::Handler, 1000, "a", "f", &[("expire", ArgumentValue::Number(u64::MAX))]);
        assert_eq!(seconds.mistake, Some(("expire", "this time is too long")));
    }

    #[test]
    fn a_number_or_a_text_with_a_number_has_the_unit() {
        for value in [ArgumentValue::Number(1500), ArgumentValue::Text("1500")] {
            let options = of(Form::Handler, "expire", value);
            assert_eq!(options.lock.expire, Some(Duration::from_millis(1500)));
            assert!(options.has_unit);
        }
        for (name, value) in [
            ("expire", ArgumentValue::Text("5s")),
            ("permits", ArgumentValue::Number(3)),
            ("contended_status", ArgumentValue::Number(423)),
        ] {
            assert!(!of(Form::Handler, name, value).has_unit, "{name}");
        }
    }

    /// The other options may be right: they were not read.
    #[test]
    fn a_mistake_is_the_only_error() {
        let values = [("expire", ArgumentValue::Number(1)), ("fast", ArgumentValue::Flag(true))];
        let options = options(Form::Handler, 1, "a", "f", &values);
        assert_valid(&options, "expire");
        assert_valid(&options, "time_unit");
        assert!(std::panic::catch_unwind(|| assert_valid(&options, "fast")).is_err());
    }
}
