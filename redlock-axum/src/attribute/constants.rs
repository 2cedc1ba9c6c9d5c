//! Constants of the user as values of arguments.

use std::time::Duration;

use http::StatusCode;

/// A constant of the user, as a time in an attribute.
#[derive(Debug)]
pub struct TimeConstant<T>(pub T);

impl TimeConstant<Duration> {
    /// Returns the time. A `Duration` has its own unit.
    pub const fn in_unit(self, _milliseconds: u64) -> Duration {
        self.0
    }
}

/// A type of constants that are times. `TimeConstant` is implemented for the same types.
#[diagnostic::on_unimplemented(
    message = "a time in `#[redlock_axum::redis_lock]` must be a `Duration` or a whole number, not `{Self}`",
    label = "this constant is neither a `Duration` nor a whole number"
)]
pub trait IsTime {}

impl IsTime for Duration {}

macro_rules! whole_numbers {
    ($($number:ty),*) => {$(
        impl IsTime for $number {}

        impl TimeConstant<$number> {
            /// Returns the time, whose unit has this number of milliseconds.
            #[allow(clippy::cast_lossless, clippy::cast_sign_loss, clippy::cast_possible_truncation, unused_comparisons)]
            pub const fn in_unit(self, milliseconds: u64) -> Duration {
                assert!(self.0 >= 0, "a time cannot be negative");
                match (self.0 as u64).checked_mul(milliseconds) {
                    Some(milliseconds) => Duration::from_millis(milliseconds),
                    None => panic!("this duration is too long"),
                }
            }
        }
    )*};
}
whole_numbers!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

/// A constant of the user, as a count in an attribute.
#[derive(Debug)]
pub struct CountConstant<T>(pub T);

/// A type of constants that are counts. `CountConstant` is implemented for the same types.
#[diagnostic::on_unimplemented(
    message = "a count in `#[redlock_axum::redis_lock]` must be a whole number, not `{Self}`",
    label = "this constant is not a whole number"
)]
pub trait IsCount {}

macro_rules! counts {
    ($($number:ty),*) => {$(
        impl IsCount for $number {}

        impl CountConstant<$number> {
            /// Returns the number. A number that does not fit into the result stays out of the range of every option.
            #[allow(clippy::cast_lossless, clippy::cast_sign_loss, clippy::cast_possible_truncation, unused_comparisons)]
            pub const fn number(self) -> u32 {
                if self.0 < 0 {
                    0
                } else if self.0 as u64 > u32::MAX as u64 {
                    u32::MAX
                } else {
                    self.0 as u32
                }
            }
        }
    )*};
}
counts!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

/// A constant of the user, as a status in an attribute.
#[derive(Debug)]
pub struct StatusConstant<T>(pub T);

impl StatusConstant<StatusCode> {
    /// Returns the number of the status.
    pub const fn number(self) -> u16 {
        self.0.as_u16()
    }
}

impl StatusConstant<u16> {
    /// Returns the number of the status.
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// A type of constants that are statuses. `StatusConstant` is implemented for the same types.
#[diagnostic::on_unimplemented(
    message = "`contended_status` in `#[redlock_axum::redis_lock]` must be a `StatusCode` or a `u16`, not `{Self}`",
    label = "this constant is neither a `StatusCode` nor a `u16`"
)]
pub trait IsStatus {}

impl IsStatus for StatusCode {}

impl IsStatus for u16 {}

/// Does nothing. The call explains why a constant of another type is refused.
pub const fn expect_status<T: IsStatus>(_: &T) {}

/// Does nothing. The call explains why a constant of another type is refused.
pub const fn expect_time<T: IsTime>(_: &T) {}

/// Does nothing. The call explains why a constant of another type is refused.
pub const fn expect_count<T: IsCount>(_: &T) {}
