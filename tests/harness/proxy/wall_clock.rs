//! Steps the wall clock of one server, as its clients see it: changes the server's replies to `TIME`.
//!
//! A test cannot step the machine's clock for one server alone.

/// The beginning of a reply to `TIME`, in front of the seconds.
const BEGINNING: &[u8] = b"*2\r\n$10\r\n";
const DIGITS: usize = 10;
const REST: &[u8] = b"\r\n$";

/// Adds `seconds` to each reply to `TIME` in the data. Expects the whole reply in one chunk, because a server
/// writes such a short reply at once.
pub(super) fn set_ahead(bytes: &mut [u8], seconds: i64) {
    let end = DIGITS + REST.len();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(BEGINNING.len()).position(|it| it == BEGINNING) {
        at += found + BEGINNING.len();
        let Some(answer) = bytes.get_mut(at..at + end) else { return };
        let (digits, rest) = answer.split_at_mut(DIGITS);
        let time = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<i64>().ok());
        if let Some(time) = time.filter(|_| rest == REST) {
            digits.copy_from_slice(format!("{:010}", time + seconds).as_bytes());
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
    fn only_the_seconds_of_each_time_change() {
        let replies = "+OK\r\n*2\r\n$10\r\n1790000000\r\n$6\r\n123456\r\n:1\r\n*2\r\n$10\r\n1790000007\r\n$1\r\n0\r\n";
        assert_eq!(ahead(replies, 0), replies);
        let stepped =
            replies.replace("1790000000", "1790000060").replace("1790000007", "1790000067");
        assert_eq!(ahead(replies, 60), stepped);
        assert_eq!(ahead(&stepped, -60), replies);
    }

    #[test]
    fn other_replies_do_not_change() {
        for other in [
            "*2\r\n$10\r\nabcdefghij\r\n$1\r\n0\r\n",
            "*2\r\n$10\r\n17900",
            "*2\r\n$10\r\n1790000000\r\n:1\r\n",
        ] {
            assert_eq!(ahead(other, 60), other);
        }
    }
}
