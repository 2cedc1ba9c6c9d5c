//! The number by which a resource tells a present holder from a late one.

use std::fmt;
use std::ops::RangeInclusive;

/// Says which of two holders of a lock came later: the greater one. Made by
/// [`LockRequest::fenced`](crate::LockRequest::fenced).
///
/// Give it to the resource with each write, and let the resource refuse what is less than the
/// greatest that it has seen: then a holder that slept past its lease cannot overwrite what its
/// successor has written (Kleppmann, "How to do distributed locking"; the lock alone cannot do
/// that).
///
/// It is a [number](Self::number), and a random value that tells [holders](Self::holder) apart whose
/// numbers are the same: that can happen where acquisitions overlap, because clocks were set or nodes
/// have forgotten. Compare both, in this order, as `Ord` does.
///
/// # What it promises
///
/// An acquisition of a key that begins after another one was handed out has a greater token than that,
/// whatever the clocks do,
///
/// * as long as no node forgets: the number is written to a majority before the guard is handed out,
///   and whoever comes later asks a majority;
/// * where nodes do forget (a restart without data, a replica that was promoted), as long as their
///   wall clocks run apart, and have ever been ahead, by less than the time between the two: no number
///   is below the server's time in microseconds.
///
/// Numbers have gaps, and those of different keys are not to be compared. Each node has a
/// counter `{prefix}redlock:fencing:{tag}` for each slot of a Redis Cluster that holds fenced locks: at most
/// 16,384 keys per prefix. The tag is generated, so that the counter lies in the slot of its locks. A prefix
/// with a hash tag of its own has one counter, `{prefix}redlock:fencing`. The counters are the only keys
/// without a time to live that this crate writes. Do not lock keys of these names.
///
/// # PostgreSQL
///
/// The check comes twice: before the first read that the write depends on, so that a late holder is
/// refused from then on; and again as the first statement of the transaction that writes.
///
/// ```sql
/// create table fence (key text primary key, number bigint not null, holder bigint not null);
///
/// insert into fence as f (key, number, holder) values ($1, $2, $3)
/// on conflict (key) do update set number = excluded.number, holder = excluded.holder
/// where (f.number, f.holder) <= (excluded.number, excluded.holder);
/// ```
///
/// If it touches no row, somebody later has been there: roll back. In the transaction it also locks the
/// row, so that two holders' writes do not interleave. The example `fencing` does so in a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    // The derived order compares the fields in theirs.
    number: i64,
    holder: i64,
}

/// What both values are below, so that SQL's `bigint`, Lua's and JavaScript's numbers can hold them.
const LIMIT: i64 = 1 << 53;

impl FencingToken {
    /// Less than the token of any holder.
    pub const ZERO: Self = Self { number: 0, holder: 0 };

    /// What numbers there are.
    pub(crate) const NUMBERS: RangeInclusive<i64> = 1..=LIMIT;

    /// Makes a token again of what was stored of it.
    pub fn new(number: i64, holder: i64) -> Self {
        Self { number, holder }
    }

    /// A value for the holder of an acquisition that no other is likely to have. It is no secret.
    pub(crate) fn random_holder() -> i64 {
        rand::random_range(1..LIMIT)
    }

    /// Grows from holder to holder. From 1 to 2^53.
    pub fn number(self) -> i64 {
        self.number
    }

    /// Tells acquisitions with the same number apart: random, from 1 to 2^53. Not the secret by which
    /// the lock is released.
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
