//! Finds passwords and tokens in a text (secrets stay in).

use std::collections::HashSet;
use std::fs::{File, read_to_string};
use std::io::Write;
use std::sync::{LazyLock, Mutex, PoisonError};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// The environment variable with the path of the file of all passwords that a test run uses, one per
/// line. The file lets each process of the run search for the passwords of all of them.
const FILE: &str = "REDLOCK_TEST_PASSWORDS";

/// The known passwords: those from the file, and those of this process.
static PASSWORDS: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(|| {
    let file = std::env::var_os(FILE).and_then(|path| read_to_string(path).ok());
    Mutex::new(file.unwrap_or_default().lines().map(str::to_owned).collect())
});

/// Adds a password to the known passwords. It must be a word that the tests use for nothing else,
/// because from now on no log line may contain it.
///
/// # Panics
///
/// If the file of passwords cannot be written.
pub fn remember_password(password: &str) {
    // The second form is the password as a URL contains it.
    for form in [password.to_owned(), utf8_percent_encode(password, NON_ALPHANUMERIC).to_string()] {
        let line = format!("{form}\n");
        let mut passwords = PASSWORDS.lock().unwrap_or_else(PoisonError::into_inner);
        if passwords.insert(form)
            && let Some(path) = std::env::var_os(FILE)
        {
            let file = File::options().append(true).create(true).open(path);
            file.and_then(|mut file| file.write_all(line.as_bytes()))
                .expect("the file of passwords is writable");
        }
    }
}

/// Returns the first secret in a text: a [known password](remember_password), or a word with the form of
/// a token. Also finds secrets with escapes, in upper case, and as a list of bytes.
pub fn find_secret(text: &str) -> Option<String> {
    // A channel of PostgreSQL has the hash of a name, which is no secret. One more digit makes it longer than a token.
    let plain = plain(text).replace("redlock_", "redlock_0");
    let password = {
        let passwords = PASSWORDS.lock().unwrap_or_else(PoisonError::into_inner);
        passwords.iter().find(|password| plain.contains(&password.to_ascii_lowercase())).cloned()
    };
    password
        .or_else(|| token(&plain).map(str::to_owned))
        .or_else(|| byte_lists(&plain).find_map(|listed| find_secret(&listed)))
}

/// Returns the text in lower case and without the escapes of `Debug` and of terminals. Otherwise the `r`
/// of a `\r` in front of a token would look like a letter of the token.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        match next {
            // A terminal escape ends with its first letter.
            '\u{1b}' => {
                rest.by_ref().find(char::is_ascii_alphabetic);
                plain.push(' ');
            }
            '\\' => match rest.next() {
                Some('x') => {
                    let digits: String = rest.by_ref().take(2).collect();
                    let byte = u8::from_str_radix(&digits, 16);
                    plain.push(byte.map_or(' ', |byte| char::from(byte).to_ascii_lowercase()));
                }
                Some('u') => {
                    let digits: String = rest.by_ref().skip(1).take_while(|c| *c != '}').collect();
                    let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                    plain.push(code.unwrap_or(' '));
                }
                Some(escaped @ ('"' | '\'' | '\\')) => plain.push(escaped),
                _ => plain.push(' '),
            },
            _ => plain.push(next.to_ascii_lowercase()),
        }
    }
    plain
}

/// Returns the first word with the form of a token: 32 hexadecimal digits, or a UUID, a colon and a
/// number.
fn token(text: &str) -> Option<&str> {
    let words = || text.split(|c: char| !(c.is_ascii_hexdigit() || "-:".contains(c)));
    let digits = || text.split(|c: char| !c.is_ascii_hexdigit());
    let numbered_uuid = |word: &&str| {
        word.split(':').zip(word.split(':').skip(1)).any(|(uuid, number)| {
            // The first group may be longer than 8 digits: hexadecimal digits before the UUID join it.
            let mut groups = uuid.rsplit('-').map(str::len);
            let last: [_; 4] = std::array::from_fn(|_| groups.next().unwrap_or_default());
            let is_uuid = last == [12, 4, 4, 4] && groups.next().is_some_and(|first| first >= 8);
            is_uuid && number.starts_with(|c: char| c.is_ascii_digit())
        })
    };
    digits().find(|digits| digits.len() == 32).or_else(|| words().find(numbered_uuid))
}

/// Decodes the lists of bytes in the text, such as `[72, 105]`.
fn byte_lists(text: &str) -> impl Iterator<Item = String> {
    let lists = text.split('[').filter_map(|list| list.split_once(']'));
    lists.filter_map(|(list, _)| {
        // In `{:#?}` output a comma follows the last byte too.
        let bytes = list.split(',').map(str::trim).filter(|byte| !byte.is_empty());
        let bytes: Option<Vec<u8>> = bytes.map(|byte| byte.parse().ok()).collect();
        bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    const NUMBERED: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8:12";

    /// The forms in which a log may contain a text.
    fn forms(text: &str) -> [String; 7] {
        let colored = format!("\u{1b}[33m{text}\u{1b}[0m");
        let hexadecimal = text.bytes().map(|byte| format!("\\x{byte:02x}"));
        [
            text.to_ascii_uppercase(),
            format!("{text:?}"),
            format!("{:?}", text.as_bytes()),
            format!("{:#?}", text.as_bytes()).replace('\n', " "),
            format!("{colored:?}"),
            colored,
            hexadecimal.collect(),
        ]
    }

    #[test]
    fn passwords_and_tokens_are_found_in_every_form() {
        remember_password("opensesame");
        for secret in ["opensesame", TOKEN, NUMBERED] {
            for text in [format!("=:{secret}@h"), format!("x:{secret}"), format!("SET '{secret}'")]
            {
                assert!(find_secret(&text).is_some_and(|found| found.contains(secret)), "{text}");
            }
            // Inside of a command as Redis receives it.
            for text in forms(&format!("$3\r\nSET\r\n{secret}\r\n")) {
                assert!(find_secret(&text).is_some(), "{text}");
            }
        }
    }

    #[test]
    fn addresses_uuids_and_digests_are_no_secrets() {
        let (run_id, digest) = (format!("{TOKEN}01234567"), format!("x%#{TOKEN}{TOKEN}"));
        let uuid = NUMBERED.trim_end_matches(":12");
        let channel = format!("listen redlock_{TOKEN}");
        for text in ["order:42 at 127.0.0.1:6379", uuid, &run_id, &digest, &channel] {
            assert_eq!(find_secret(text), None, "{text}");
        }
    }
}
