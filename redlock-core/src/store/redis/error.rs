//! Converts the errors of a server, and keeps their messages.

use std::collections::VecDeque;
#[cfg(feature = "tls")]
use std::error::Error;
#[cfg(feature = "tls")]
use std::io;
use std::sync::Arc;

use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind, make_extension_error};
use parking_lot::Mutex;

use crate::error::{NodeError, legible};

/// The reason to refuse a server, or a proxy in front of it, that is too old.
const GRANT: &str = "grant it, and the other rights of the page `production`: ACL SETUSER ..";
const NO_RESP3: &str =
    "the server does not speak RESP3; Redis does since version 6.0, Valkey in every version";

/// Converts an error on an established connection.
pub(super) fn node_error(error: &RedisError) -> NodeError {
    let message: Arc<str> = server_message(error).into();
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoPerm) => NodeError::NotPermitted(message),
        _ if is_reply(error) && is_denied_in_script(&message) => NodeError::NotPermitted(message),
        _ if is_reply(error) => NodeError::Server(message),
        _ if error.is_io_error() || error.is_unrecoverable_error() => {
            NodeError::ConnectionBroke(message)
        }
        _ => NodeError::Server(message),
    }
}

/// Returns whether the error is the reply of a server. A proxy, or another product that speaks the protocol, may begin it with
/// a word that Redis does not use.
pub(super) fn is_reply(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// Returns why a server gives no useful reply to a command, for a log line.
pub(super) fn refusal(command: &str, error: &RedisError) -> String {
    let words = server_message(error);
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoPerm) => format!("{command} is denied: {words}"),
        ErrorKind::UnexpectedReturnType => {
            format!("the reply to {command} is not understood: {words}")
        }
        _ => format!("the server does not execute {command}: {words}"),
    }
}

/// Returns whether the error shows that a former master is a replica now. Inside a script, Redis 6.2 reports
/// this by an error of another kind.
pub(super) fn is_read_only(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || error.detail().is_some_and(|detail| detail.contains("-READONLY "))
}

/// Returns whether a server refuses the command on a connection with a subscription, as RESP2 does: `only (P|S)SUBSCRIBE .. are
/// allowed in this context`.
pub(super) fn is_only_for_others(error: &RedisError) -> bool {
    is_reply(error) && error.detail().is_some_and(|detail| detail.contains("SUBSCRIBE"))
}

/// Returns whether the value at the key is of another type than the command needs.
pub(super) fn is_wrong_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}

/// Returns whether the message shows that the user lacks a permission.
pub(super) fn is_denied(message: &str) -> bool {
    message.contains("NOPERM") || is_denied_in_script(message)
}

/// Returns whether the user lacks a permission inside a script. The server reports that by another kind of
/// error than outside of scripts, with different words in Redis 6.2, in 7.0, and since 7.2.
fn is_denied_in_script(message: &str) -> bool {
    message.contains("ACL failure in script") || message.contains("user executing the script can't")
}

/// Adds the names of the script's commands to an error about a missing permission, or about a command that the server does
/// not know. Up to Redis 7.0, the server does not name the denied command, and no server names the unknown one.
pub(super) fn name_commands(commands: &[String], error: RedisError) -> RedisError {
    const DENIED: &str = "The user executing the script can't";
    const UNKNOWN: &str = "Unknown Redis command called from";
    let message = server_message(&error);
    // Valkey 9 leaves out a word.
    if message.contains(UNKNOWN) || message.contains("Unknown command called from") {
        let commands = commands.join(", ");
        let message = format!(
            "{UNKNOWN} a script; it calls {commands}: rename-command has renamed or disabled one of them"
        );
        return (ErrorKind::Server(ServerErrorKind::ResponseError), "unknown command", message)
            .into();
    }
    let Some(at) = message.find(DENIED) else { return error };
    let denied = message[at..].split(" script: ").next().unwrap_or(DENIED);
    let message = format!("{denied}; it calls {}", commands.join(", "));
    (ErrorKind::Server(ServerErrorKind::NoPerm), "not permitted", message).into()
}

/// Converts the error of an attempt to connect: the server refused the client, or was not reached.
pub(super) fn not_connected(error: &RedisError) -> NodeError {
    #[cfg(feature = "tls")]
    if let Some(reason) = tls_error(error) {
        return reason;
    }
    let message: Arc<str> = server_message(error).into();
    if lacks_resp3(&message) {
        return NodeError::NotSetUp(
            format!("{NO_RESP3} (it replied to HELLO 3: {message})").into(),
        );
    }
    if refuses_login(&message) {
        NodeError::Credentials(message)
    } else if message.contains("NOPERM") {
        NodeError::NotPermitted(with_remedy(&message))
    } else if is_reply(error) {
        NodeError::Server(message)
    } else {
        NodeError::NotConnected(message)
    }
}

/// Adds the right that a refusal of a command names, as `ACL SETUSER` takes it.
fn with_remedy(message: &str) -> Arc<str> {
    let command = message.split_once(" to run the '").and_then(|(_, rest)| rest.split_once('\''));
    match command.map(|(command, _)| command) {
        // Redis 6 does not name the subcommand, and the locks need only this one.
        Some("script" | "script|load") => format!("{message}; {GRANT} +script|load").into(),
        Some(command) => format!("{message}; {GRANT} +{command}").into(),
        None => message.into(),
    }
}

/// Returns whether a server has refused the user or the password of this client.
pub(super) fn refuses_login(message: &str) -> bool {
    message.contains("WRONGPASS") || message.contains("NOAUTH")
}

/// Returns whether a server has refused to speak RESP3: it does not know the command, or not this version.
fn lacks_resp3(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let is_unknown = message.contains("unknown command") && message.contains("hello");
    is_unknown || message.starts_with("noproto")
}

/// Returns the error of TLS, if one is inside an error of the socket.
#[cfg(feature = "tls")]
fn tls_error(error: &RedisError) -> Option<NodeError> {
    use rustls::{Error as TlsError, InvalidMessage};

    let source = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let words = match source.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()? {
        TlsError::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not speak TLS: use redis://".to_owned()
        }
        error => error.to_string(),
    };
    Some(NodeError::Tls(legible(&words).into()))
}

/// Returns the text of an error: the server's own words if it sent an error, such as `OOM command not
/// allowed ..`.
pub(super) fn server_message(error: &RedisError) -> String {
    let message = raw_message(error);
    // A server repeats the arguments of an unknown command, with tokens and passwords (secrets stay in).
    legible(message.split_once(", with args").map_or(message.as_str(), |(before, _)| before))
}

/// The passwords that were sent over a link, which its server may repeat in an error.
#[derive(Default)]
pub(super) struct Secrets(Mutex<VecDeque<String>>);

impl Secrets {
    /// The number of passwords to remember: the current password, and the latest refused passwords.
    const REMEMBERED: usize = 8;
    /// The length in bytes from which a password is masked wherever it is a word. The masks of a shorter one would show it:
    /// it is a word of the server by chance.
    const SHORTEST: usize = 4;

    /// Masks this password from now on.
    pub(super) fn add(&self, password: &str) {
        let mut secrets = self.0.lock();
        if password.len() >= Self::SHORTEST && !secrets.iter().any(|known| known == password) {
            secrets.push_front(password.to_owned());
            secrets.truncate(Self::REMEMBERED);
        }
    }

    /// Masks the passwords in an error of the server.
    pub(super) fn mask(&self, error: RedisError) -> RedisError {
        if is_redirect(&error) {
            return error;
        }
        let mut secrets: Vec<_> = self.0.lock().iter().cloned().collect();
        // A short password may be a part of a longer one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let mask = |text: &str| {
            let text = mask_urls(text);
            secrets.iter().fold(text, |text, secret| mask_word(&text, secret))
        };
        match (error.kind(), error.code(), error.detail().map(mask)) {
            (ErrorKind::Extension, Some(code), detail) => make_extension_error(mask(code), detail),
            (kind, _, Some(detail)) => (kind, "an error of the server", detail).into(),
            (_, _, None) => error,
        }
    }
}

/// Masks a password where it is a whole word, also several times in a row. A part of another word is no password, and its
/// mask would show the password.
fn mask_word(text: &str, secret: &str) -> String {
    let is_inside_word = |one: Option<char>, next: Option<char>| {
        one.zip(next).is_some_and(|(one, next)| one.is_alphanumeric() && next.is_alphanumeric())
    };
    let (first, last) = (secret.chars().next(), secret.chars().next_back());
    let (mut masked, mut copied, mut from) = (String::new(), 0, 0);
    while let Some(begin) = text[from..].find(secret).map(|at| from + at) {
        let rest = text[begin..].trim_start_matches(secret);
        let end = text.len() - rest.len();
        if !is_inside_word(text[..begin].chars().next_back(), first)
            && !is_inside_word(last, rest.chars().next())
        {
            masked.push_str(&text[copied..begin]);
            masked.push_str(&"***".repeat((end - begin) / secret.len()));
            copied = end;
        }
        from = end;
    }
    masked + &text[copied..]
}

/// Masks the password of each URL in a text, of any length.
fn mask_urls(text: &str) -> String {
    let mut parts = text.split("://");
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|one: char| one.is_whitespace() || "/?#'\"`".contains(one));
        let (authority, rest) = part.split_at(end.unwrap_or(part.len()));
        masked.push_str("://");
        match authority
            .rsplit_once('@')
            .and_then(|(login, host)| Some((login.split_once(':')?, host)))
        {
            Some(((user, _), host)) => masked.extend([user, ":***@", host]),
            None => masked.push_str(authority),
        }
        masked.push_str(rest);
    }
    masked
}

/// Returns whether the error is only a slot and an address. A short password may occur in them by chance, and the redirect
/// would lead elsewhere.
fn is_redirect(error: &RedisError) -> bool {
    error.redirect_node().is_some_and(|(address, slot)| {
        let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        matches!(port, Some(Ok(_))) && error.detail() == Some(&format!("{slot} {address}"))
    })
}

fn raw_message(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, Some(detail)) => detail.to_owned(),
        (None, None) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Vote;

    #[test]
    fn a_denied_permission_is_recognized_in_the_words_of_every_version() {
        for (message, denied) in [
            ("NOPERM this user has no permissions to run the 'set' command", true),
            (
                "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: The user \
              executing the script can't run this command or subcommand",
                true,
            ),
            ("ERR The user executing the script can't run this command or subcommand", true),
            ("ERR The user executing the script can't access at least one of the keys", true),
            (
                "ERR ACL failure in script: User app has no permissions to run the 'get' command",
                true,
            ),
            ("ERR unknown command 'SET'", false),
        ] {
            let error = node_error(&sent(message));
            assert_eq!(matches!(error, NodeError::NotPermitted(_)), denied, "{error:?}");
        }
    }

    fn sent(text: &str) -> RedisError {
        let reply = bb8_redis::redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
        reply.unwrap().extract_error().unwrap_err()
    }

    #[test]
    fn a_vote_has_only_the_beginning_of_a_long_text() {
        let vote = Vote::Failed(node_error(&sent(&format!("ERR {}", "\t".repeat(100_000)))));
        // `Debug` escapes backslashes.
        assert!(vote.to_string().len() < 530, "{vote}");
        assert!(format!("{vote:?}").len() < 1024, "{vote:?}");
    }

    #[test]
    fn a_server_that_repeats_a_password_does_not_show_it() {
        let secrets = Secrets::default();
        for secret in ["s3cret", "s3cret-of-the-app", "6381", "pa-ss w", ""] {
            secrets.add(secret);
        }
        for (text, shown) in [
            ("WRONGPASS bad password 's3cret'", "WRONGPASS bad password '***'"),
            ("ERR s3cret s3cret-of-the-app", "ERR *** ***"),
            ("UNKNOWN s3cret", "UNKNOWN ***"),
            ("S3CRET no", "S3CRET no"),
            ("ERR as3cret s3crets s3cret_ 's3crets3cret'", "ERR as3cret s3crets ***_ '******'"),
            ("ERR user pa-ss w.", "ERR user ***."),
            ("s3cret no", "*** no"),
            ("s3cret", "***"),
            // A redirect that is followed has to lead to its address.
            ("MOVED 6381 10.0.0.1:6381", "MOVED 6381 10.0.0.1:6381"),
            ("MOVED 1 s3cret", "MOVED 1 ***"),
            ("ASK 1 10.0.0.1:6379 s3cret", "ASK 1 10.0.0.1:6379 ***"),
        ] {
            let (error, masked) = (sent(text), secrets.mask(sent(text)));
            assert_eq!(server_message(&masked), shown);
            assert_eq!(masked.kind(), error.kind(), "{text}");
        }
    }

    /// The words around a password of one letter would show it.
    #[test]
    fn a_short_password_is_masked_only_in_a_url() {
        let secrets = Secrets::default();
        for secret in ["s", "abc", "user"] {
            secrets.add(secret);
        }
        for (text, shown) in [
            ("NOPERM this user has no access", "NOPERM this *** has no access"),
            ("NOPERM users of superuser abc", "NOPERM users of superuser abc"),
            (
                "ERR see redis://:s@h/s and redis://app:abc@h",
                "ERR see redis://:***@h/s and redis://app:***@h",
            ),
            ("ERR redis://h:6379/s user@h", "ERR redis://h:6379/s ***@h"),
        ] {
            assert_eq!(server_message(&secrets.mask(sent(text))), shown);
        }
    }

    proptest::proptest! {
        /// A word that is the password is masked, and no letter of another word.
        #[test]
        fn only_whole_words_are_masked(
            secret in "[a-c!é]{0,6}",
            words in proptest::collection::vec("[a-c!é]{1,8}", 1..8),
        ) {
            let secrets = Secrets::default();
            secrets.add(&secret);
            let text = words.join(" ");
            let masked = server_message(&secrets.mask(sent(&format!("ERR {text}"))));
            let masked: Vec<_> = masked.split(' ').skip(1).map(str::to_owned).collect();
            proptest::prop_assert_eq!(masked.len(), words.len());
            for (word, masked) in words.iter().zip(masked) {
                if *word == secret && secret.len() >= Secrets::SHORTEST {
                    proptest::prop_assert_eq!(&masked, "***");
                } else if !word.contains(&secret) || secret.len() < Secrets::SHORTEST {
                    proptest::prop_assert_eq!(&masked, word);
                } else {
                    // No mask continues the letters beside it.
                    let rests: Vec<_> = masked.split("***").collect();
                    proptest::prop_assert_eq!(rests.join(&secret), word.as_str());
                    let is_letter = |one: Option<char>| one.is_some_and(char::is_alphanumeric);
                    let (first, last) = (secret.chars().next(), secret.chars().next_back());
                    for pair in rests.windows(2) {
                        proptest::prop_assert!(!(is_letter(first) && is_letter(pair[0].chars().next_back())));
                        proptest::prop_assert!(!(is_letter(last) && is_letter(pair[1].chars().next())));
                    }
                }
            }
        }
    }

    #[test]
    fn a_link_remembers_the_last_passwords() {
        let secrets = Secrets::default();
        for number in 0..=Secrets::REMEMBERED {
            secrets.add(&format!("token-{number}"));
            secrets.add(&format!("token-{number}"));
        }
        for number in 0..=Secrets::REMEMBERED {
            let text = server_message(&secrets.mask(sent(&format!("ERR token-{number}."))));
            assert_eq!(text == "ERR ***.", number > 0, "{text}");
        }
    }

    #[test]
    fn control_characters_in_the_message_of_a_server_are_escaped() {
        let said =
            "ERR it's \"full\"\n2026 WARN a lock\twas \u{1b}[31mlost\u{7f}\u{85}\u{2028}\u{202e}.";
        let escaped =
            r#"ERR it's "full"\n2026 WARN a lock\twas \u{1b}[31mlost\u{7f}\u{85}\u{2028}\u{202e}."#;
        assert_eq!(server_message(&sent(said)), escaped);
        assert_eq!(node_error(&sent(said)), NodeError::Server(escaped.into()));
        assert_eq!(not_connected(&sent(said)), NodeError::Server(escaped.into()));
        let vote = Vote::Failed(node_error(&sent(said)));
        assert_eq!(vote.to_string(), format!("failed: {escaped}"));
        let broke = RedisError::from((ErrorKind::Io, "it broke", "a\nb".to_owned()));
        assert_eq!(node_error(&broke), NodeError::ConnectionBroke(r"a\nb".into()));
        // The message of a script error is read, completed, and becomes an error again.
        let denied = "ERR The user executing the script can't\nrun this command";
        let named =
            server_message(&name_commands(&["get".to_owned(), "del".to_owned()], sent(denied)));
        assert!(named.contains(r"can't\nrun this command; it calls get, del"), "{named}");
    }

    /// No server names the command: these are the words of Redis 6.2 and 7.0.
    #[test]
    fn an_unknown_command_in_a_script_is_one_of_its_commands() {
        for text in [
            "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: Unknown Redis command called from Lua script",
            "ERR Unknown Redis command called from script script: 1a8c, on @user_script:1.",
        ] {
            let error = name_commands(&["get".to_owned(), "time".to_owned()], sent(text));
            let words = "ERR Unknown Redis command called from a script; it calls get, time: rename-command has renamed or disabled one of them";
            assert_eq!(node_error(&error), NodeError::Server(words.into()), "{text}");
        }
    }

    #[test]
    fn a_demoted_server_is_recognized_by_its_error_in_scripts_too() {
        let error = |text: &str| {
            let reply = bb8_redis::redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            reply.unwrap().extract_error().unwrap_err()
        };
        assert!(is_read_only(&error("READONLY You can't write against a read only replica.")));
        // Redis 6.2
        assert!(is_read_only(&error(
            "ERR Error running script (call to f_1): @user_script:5: @user_script: 5: -READONLY \
             You can't write against a read only replica."
        )));
        assert!(!is_read_only(&error("ERR unknown command 'READONLY'")));
    }
}
