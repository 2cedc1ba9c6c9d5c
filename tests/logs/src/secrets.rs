//! What must not be said anywhere: passwords and tokens (invariant 12).

use std::collections::HashSet;
use std::fs::{File, read_to_string};
use std::io::Write;
use std::sync::{LazyLock, Mutex, PoisonError};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Names the file of all passwords that a test run uses, a line each, so that what one of its processes
/// prints can be searched for the passwords of all of them.
const FILE: &str = "REDLOCK_TEST_PASSWORDS";

/// The passwords in use.
static PASSWORDS: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(|| {
    let file = std::env::var_os(FILE).and_then(|path| read_to_string(path).ok());
    Mutex::new(file.unwrap_or_default().lines().map(str::to_owned).collect())
});

/// Remembers a password: a word that is not in use for anything else, because no line of a log may hold
/// it from now on.
///
/// # Panics
///
/// When the file of passwords cannot be written.
pub fn remember_password(password: &str) {
    // As it stands in a URL, too.
    for form in [password.to_owned(), utf8_percent_encode(password, NON_ALPHANUMERIC).to_string()] {
        let line = format!("{form}\n");
        let mut passwords = PASSWORDS.lock().unwrap_or_else(PoisonError::into_inner);
        if passwords.insert(form)
            && let Some(path) = std::env::var_os(FILE)
        {
            let file = File::options().append(true).create(true).open(path);
            file.and_then(|mut file| file.write_all(line.as_bytes())).expect("a file of passwords");
        }
    }
}

/// The first secret in a text: a password that was [remembered](remember_password), or what has
/// the form of a token.
pub fn find_secret(text: &str) -> Option<String> {
    let passwords = PASSWORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let password = passwords.iter().find(|password| text.contains(password.as_str())).cloned();
    password.or_else(|| {
        let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "-:".contains(c)));
        words.find_map(token).map(str::to_owned)
    })
}

/// A token in a word: 32 hexadecimal digits, or a UUID and a number.
fn token(word: &str) -> Option<&str> {
    let is_hexadecimal =
        |part: &str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let plain = word.split([':', '-']).find(|part| part.len() == 32 && is_hexadecimal(part));
    plain.or_else(|| {
        let parts: Vec<&str> = word.split(':').collect();
        let is_uuid = |part: &str| {
            let groups: Vec<&str> = part.split('-').collect();
            groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
                && groups.iter().all(|group| is_hexadecimal(group))
        };
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        parts.windows(2).find(|pair| is_uuid(pair[0]) && is_number(pair[1])).map(|_| word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_tokens_are_found_and_nothing_else() {
        remember_password("opensesame");
        for (text, secret) in [
            ("redis://:opensesame@host", "opensesame"),
            ("SET a '0123456789abcdef0123456789abcdef' NX", "0123456789abcdef0123456789abcdef"),
            ("token=0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),
            ("x:0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),
            ("[67e55044-10b1-426f-9247-bb680e5fe0c8:1]", "67e55044-10b1-426f-9247-bb680e5fe0c8:1"),
        ] {
            assert_eq!(find_secret(text).as_deref(), Some(secret), "{text}");
        }
        for text in [
            "order:42 at 127.0.0.1:6379",
            "session:67e55044-10b1-426f-9247-bb680e5fe0c8",
            // A run_id and a digest.
            "0123456789abcdef0123456789abcdef01234567",
            "x%#0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(find_secret(text), None, "{text}");
        }
    }
}
