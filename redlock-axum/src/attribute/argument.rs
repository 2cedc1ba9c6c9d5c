//! The values of arguments: literals, words, and constants of the user.

use std::time::Duration;

use http::StatusCode;
use redlock_core::{Dialect, OnLost, WaitTime};

use crate::options::HoldUntil;

/// A value of an argument. The method `value` exists for the types that an argument may have.
#[derive(Debug)]
pub struct Argument<T>(pub T);

/// A bare word, such as `abort`.
#[derive(Debug)]
pub struct Word(pub &'static str);

/// A value whose option is not known yet.
#[derive(Debug, Clone, Copy)]
pub enum ArgumentValue {
    Number(u64),
    /// A whole number below zero.
    Negative,
    /// A value of a type that no option has, for an error that says what the option takes.
    Other,
    Text(&'static str),
    Word(&'static str),
    Flag(bool),
    Time(Duration),
    Status(u16),
}

macro_rules! values {
    ($($ty:ty: |$argument:ident| $value:expr;)*) => {$(
        impl Argument<$ty> {
            /// Returns the value.
            pub const fn value(self) -> ArgumentValue {
                let Self($argument) = self;
                $value
            }
        }
    )*};
}

values! {
    f64: |_argument| ArgumentValue::Other;
    Dialect: |_argument| ArgumentValue::Other;
    HoldUntil: |_argument| ArgumentValue::Other;
    OnLost: |_argument| ArgumentValue::Other;
    WaitTime: |_argument| ArgumentValue::Other;
    &'static str: |text| ArgumentValue::Text(text);
    Word: |word| ArgumentValue::Word(word.0);
    bool: |flag| ArgumentValue::Flag(flag);
    Duration: |time| ArgumentValue::Time(time);
    StatusCode: |status| ArgumentValue::Status(status.as_u16());
}

macro_rules! numbers {
    ($($number:ty),*) => {
        values! {
            $($number: |number| {
                #[allow(clippy::cast_lossless, clippy::cast_sign_loss, clippy::cast_possible_truncation, unused_comparisons)]
                if number < 0 { ArgumentValue::Negative } else { ArgumentValue::Number(number as u64) }
            };)*
        }
    };
}
numbers!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);
