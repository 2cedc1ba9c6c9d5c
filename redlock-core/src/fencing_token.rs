//! The number by which a resource recognizes a late holder.

use std::fmt;
use std::ops::RangeInclusive;

use rand::RngExt;

use crate::random::with_random;

/// A number that grows from holder to holder of a lock, for the resource to check. Returned by
/// [`LockHandle::fencing_token`](crate::LockHandle::fencing_token), after
/// [`LockRequest::fenced`](crate::LockRequest::fenced).
///
/// Pass the token to the resource with each write. The resource must refuse every token that is less
/// than the greatest token so far. A holder that slept past its lease then cannot overwrite the writes
/// of its successor (Kleppmann, "How to do distributed locking"). The lock alone cannot prevent that.
///
/// A token consists of a [number](Self::number) and a random value, the [holder](Self::holder). The
/// random value distinguishes holders with the same number: two overlapping acquisitions can get the
/// same number if clocks were set or nodes have forgotten it. Compare the number first and then the
/// holder, as `Ord` does.
///
/// # Guarantees
///
/// If a guard of a key was returned before another acquisition of this key begins, the token of the
/// later acquisition is greater. This holds whatever the clocks do,
///
/// * as long as no node forgets: the number is written to a majority of the nodes before the guard is
///   returned, and a later acquisition asks a majority;
/// * where nodes do forget (a restart without data, a replica that was promoted), as long as the wall
///   clocks of the nodes differ, and have ever been ahead, by less than the time between the two
///   acquisitions: no number is less than the server's time in microseconds.
///
/// Numbers have gaps. Numbers of different keys must not be compared. Each node has a counter
/// `{prefix}redlock:fencing:{tag}` for each slot of a Redis Cluster that contains fenced locks: at most
/// 16,384 keys per prefix. The tag is generated such that the counter is in the slot of its locks. A
/// prefix with a hash tag of its own has one counter, `{prefix}redlock:fencing`. The counters are the
/// only keys without a time to live that this crate writes. Do not lock keys of these names.
///
/// # Examples
///
/// ```
/// use redlock_core::{FencingToken, LockError, LockManager};
///
/// /// Refuses the write of a holder that is earlier than the last one.
/// fn write(seen: &mut Option<FencingToken>, token: Option<FencingToken>) -> Result<(), &'static str> {
///     if token < *seen {
///         return Err("a later holder has written");
///     }
///     *seen = token;
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::in_memory();
/// let mut seen = None;
///
/// let slow = locks.lock("report").fenced(true).acquire().await?;
/// let slow_token = slow.fencing_token();
/// drop(slow); // or its lease ran out, and the slow holder has not noticed
///
/// let next = locks.lock("report").fenced(true).acquire().await?;
/// assert!(write(&mut seen, next.fencing_token()).is_ok());
/// assert!(write(&mut seen, slow_token).is_err());
/// # Ok(()) }
/// ```
///
/// # PostgreSQL
///
/// Check the token twice: before the first read that the write depends on, so that a late holder is
/// refused from then on; and again in the first statement of the transaction that writes.
///
/// ```sql
/// create table fence (key text primary key, number bigint not null, holder bigint not null);
///
/// insert into fence as f (key, number, holder) values ($1, $2, $3)
/// on conflict (key) do update set number = excluded.number, holder = excluded.holder
/// where (f.number, f.holder) <= (excluded.number, excluded.holder);
/// ```
///
/// If the statement touches no row, a later holder has written its token: roll back. In the transaction,
/// the statement also locks the row, so that the writes of two holders do not interleave. The example
/// `fencing` does this in a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    // `Ord` is derived: the order of the fields is the order of the comparison.
    number: i64,
    holder: i64,
}

/// The greatest value of both parts, 2^53 - 1. The numbers of Lua and JavaScript distinguish each whole number
/// up to it from the next, and SQL's `bigint` represents them.
const MAX_NUMBER: i64 = (1 << 53) - 1;

impl FencingToken {
    /// A token that is less than the token of any holder.
    pub const ZERO: Self = Self { number: 0, holder: 0 };

    /// The range of the numbers.
    pub(crate) const NUMBER_RANGE: RangeInclusive<i64> = 1..=MAX_NUMBER;

    /// Makes a token from a stored number and holder.
    pub fn new(number: i64, holder: i64) -> Self {
        Self { number, holder }
    }

    /// Returns a random value for the holder of an acquisition. It is not a secret.
    pub(crate) fn random_holder() -> i64 {
        with_random(|random| random.random_range(1..=MAX_NUMBER))
    }

    /// Returns the number, from 1 to 2^53 - 1. It grows from holder to holder.
    pub fn number(self) -> i64 {
        self.number
    }

    /// Returns the random value, from 1 to 2^53 - 1, that distinguishes acquisitions with the same number.
    /// It is not the secret token that the lock is released by.
    pub fn holder(self) -> i64 {
        self.holder
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, self.holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_ordered_by_their_number_first() {
        let token = FencingToken::new;
        assert!(token(2, 1) > token(1, 9));
        assert!(token(2, 9) > token(2, 1));
        assert_eq!(token(2, 9).to_string(), "2-9");
    }
}
