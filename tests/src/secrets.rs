//! What must not be said anywhere: passwords and tokens (invariant 12).

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::{LazyLock, Mutex, Once, PoisonError};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;

/// The passwords of all servers that this process has started.
static PASSWORDS: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

pub(crate) fn remember(password: &str) {
    let mut passwords = PASSWORDS.lock().unwrap_or_else(PoisonError::into_inner);
    passwords.insert(password.to_owned());
    // As it stands in a URL.
    passwords.insert(utf8_percent_encode(password, NON_ALPHANUMERIC).to_string());
}

/// The first secret in a text: the password of a server that this process has started, or what has
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

/// Watches everything that the library logs in this process, at every level, from now on. A secret
/// ends the process: a panic could get lost in a task of the library.
pub(crate) fn watch() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let library = Targets::new().with_target("redlock", tracing::Level::TRACE);
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Watch);
        let subscriber = tracing_subscriber::registry().with(lines.with_filter(library));
        // A test may have one of its own.
        let _ = tracing::subscriber::set_global_default(subscriber);
    });
}

/// Ends the process at a secret.
pub(crate) fn check(line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    if find_secret(&line).is_some() {
        // Not by `eprintln`, which the test runner would catch and lose.
        let _ = writeln!(io::stderr(), "a secret was logged: {line}");
        std::process::abort();
    }
}

#[derive(Debug, Clone, Copy)]
struct Watch;

impl Write for Watch {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Watch {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_tokens_are_found_and_nothing_else() {
        remember("opensesame");
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
