//! A wall clock that a test can step: what the server's answers to `TIME` say.
//!
//! The clock of this machine cannot be stepped for one server alone.

/// An answer to `TIME` begins with this; then come the seconds.
const BEGINNING: &[u8] = b"*2\r\n$10\r\n";
const DIGITS: usize = 10;
const REST: &[u8] = b"\r\n$";

/// Sets the times in what passes ahead by so many seconds. A server writes an answer as short as this
/// in one piece.
pub(super) fn set_ahead(bytes: &mut [u8], seconds: i64) {
    let end = DIGITS + REST.len();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(BEGINNING.len()).position(|it| it == BEGINNING) {
        at += found + BEGINNING.len();
        let Some(answer) = bytes.get_mut(at..at + end) else { return };
        let (digits, rest) = answer.split_at_mut(DIGITS);
        let told = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<i64>().ok());
        if let Some(told) = told.filter(|_| rest == REST) {
            digits.copy_from_slice(format!("{:010}", told + seconds).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(bytes: &str, seconds: i64) -> String {
        let mut bytes = bytes.as_bytes().to_vec();
        set_ahead(&mut bytes, seconds);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_seconds_of_each_time_are_moved_and_nothing_else() {
        let passes = "+OK\r\n*2\r\n$10\r\n1790000000\r\n$6\r\n123456\r\n:1\r\n*2\r\n$10\r\n1790000007\r\n$1\r\n0\r\n";
        assert_eq!(ahead(passes, 0), passes);
        let stepped =
            passes.replace("1790000000", "1790000060").replace("1790000007", "1790000067");
        assert_eq!(ahead(passes, 60), stepped);
        assert_eq!(ahead(&stepped, -60), passes);
    }

    #[test]
    fn what_is_no_time_is_left_alone() {
        for other in [
            "*2\r\n$10\r\nabcdefghij\r\n$1\r\n0\r\n",
            "*2\r\n$10\r\n17900",
            "*2\r\n$10\r\n1790000000\r\n:1\r\n",
        ] {
            assert_eq!(ahead(other, 60), other);
        }
    }
}
