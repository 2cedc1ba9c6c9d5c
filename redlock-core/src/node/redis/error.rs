//! Converts the errors of a server, and keeps their messages.

use std::error::Error;
use std::io;
use std::sync::Arc;

use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::NodeError;

/// The reason to refuse a server, or a proxy in front of it, that is too old.
const NO_RESP3: &str =
    "the server does not speak RESP3; Redis does since version 6.0, Valkey in every version";

/// Converts an error on an established connection.
pub(super) fn node_error(error: &RedisError) -> NodeError {
    if let ErrorKind::Server(kind) = error.kind() {
        let message: Arc<str> = server_message(error).into();
        return if kind == ServerErrorKind::NoPerm || is_denied_in_script(&message) {
            NodeError::NotPermitted(message)
        } else {
            NodeError::Server(message)
        };
    }
    let message = server_message(error).into();
    if error.is_io_error() || error.is_unrecoverable_error() {
        NodeError::ConnectionBroke(message)
    } else {
        NodeError::Server(message)
    }
}

/// Returns whether the user lacks a permission inside a script. The server reports that by another kind of
/// error than outside of scripts, with different words in Redis 6.2, in 7.0, and since 7.2.
fn is_denied_in_script(message: &str) -> bool {
    message.contains("ACL failure in script") || message.contains("user executing the script can't")
}

/// Adds the names of the script's commands to an error about a missing permission. Up to Redis 7.0, the
/// server does not name the denied command.
pub(super) fn name_commands(commands: &[String], error: RedisError) -> RedisError {
    const DENIED: &str = "The user executing the script can't";
    let message = server_message(&error);
    let Some(at) = message.find(DENIED) else { return error };
    let denied = message[at..].split(" script: ").next().unwrap_or(DENIED);
    let message = format!("{denied}; it calls {}", commands.join(", "));
    (ErrorKind::Server(ServerErrorKind::NoPerm), "not permitted", message).into()
}

/// Converts the error of an attempt to connect: the server refused the client, or was not reached.
pub(super) fn not_connected(error: &RedisError) -> NodeError {
    if let Some(reason) = inside(error) {
        return reason;
    }
    let message: Arc<str> = server_message(error).into();
    if lacks_resp3(&message) {
        return NodeError::Server(format!("{NO_RESP3} (it replied to HELLO 3: {message})").into());
    }
    let refusals = ["WRONGPASS", "NOAUTH", "NOPERM"];
    let refused = refusals.iter().any(|refusal| message.contains(refusal));
    if refused {
        NodeError::NotPermitted(message)
    } else if matches!(error.kind(), ErrorKind::Server(_)) {
        NodeError::Server(message)
    } else {
        NodeError::NotConnected(message)
    }
}

/// Returns whether a server has refused to speak RESP3: it does not know the command, or not this version.
fn lacks_resp3(message: &str) -> bool {
    let unknown = || {
        let message = message.to_ascii_lowercase();
        message.contains("unknown command") && message.contains("hello")
    };
    message.starts_with("NOPROTO") || unknown()
}

/// Returns the error of TLS or of this crate, if one is inside an error of the socket.
fn inside(error: &RedisError) -> Option<NodeError> {
    let source = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let inner = source.downcast_ref::<io::Error>()?.get_ref()?;
    #[cfg(feature = "tls")]
    if let Some(error) = inner.downcast_ref::<rustls::Error>() {
        return Some(NodeError::Tls(escape_control_characters(&error.to_string()).into()));
    }
    Some(match inner.downcast_ref().cloned()? {
        // The text may contain parts of a certificate, or the error of an application.
        NodeError::Tls(reason) => NodeError::Tls(escape_control_characters(&reason).into()),
        NodeError::Credentials(reason) => {
            NodeError::Credentials(escape_control_characters(&reason).into())
        }
        other => other,
    })
}

/// Returns the text of an error: the server's own words if it sent an error, such as `OOM command not
/// allowed ..`.
pub(super) fn server_message(error: &RedisError) -> String {
    let message = raw_message(error);
    // A server repeats the arguments of an unknown command, with tokens and passwords (secrets stay in).
    escape_control_characters(
        message.split_once(", with args").map_or(message.as_str(), |(before, _)| before),
    )
}

/// Escapes control characters and other unprintable characters, so that the text of a server cannot forge
/// lines of a log. Escaping twice changes nothing.
pub(super) fn escape_control_characters(message: &str) -> String {
    let mut escaped = String::with_capacity(message.len());
    for character in message.chars() {
        match character {
            '\\' | '"' | '\'' => escaped.push(character),
            _ => escaped.extend(character.escape_debug()),
        }
    }
    escaped
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
            let reply = bb8_redis::redis::parse_redis_value(format!("-{message}\r\n").as_bytes());
            let error = reply.unwrap().extract_error().unwrap_err();
            let error = node_error(&error);
            assert_eq!(matches!(error, NodeError::NotPermitted(_)), denied, "{error:?}");
        }
    }

    #[test]
    fn control_characters_in_the_message_of_a_server_are_escaped() {
        let error = |text: &str| {
            let reply = bb8_redis::redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            reply.unwrap().extract_error().unwrap_err()
        };
        let said =
            "ERR it's \"full\"\n2026 WARN a lock\twas \u{1b}[31mlost\u{7f}\u{85}\u{2028}\u{202e}.";
        let escaped =
            r#"ERR it's "full"\n2026 WARN a lock\twas \u{1b}[31mlost\u{7f}\u{85}\u{2028}\u{202e}."#;
        assert_eq!(server_message(&error(said)), escaped);
        assert_eq!(node_error(&error(said)), NodeError::Server(escaped.into()));
        assert_eq!(not_connected(&error(said)), NodeError::Server(escaped.into()));
        let vote = Vote::Failed(node_error(&error(said)));
        assert_eq!(vote.to_string(), format!("failed: {escaped}"));
        let broke = RedisError::from((ErrorKind::Io, "it broke", "a\nb".to_owned()));
        assert_eq!(node_error(&broke), NodeError::ConnectionBroke(r"a\nb".into()));
        // The message of a script error is read, completed, and becomes an error again.
        let denied = "ERR The user executing the script can't\nrun this command";
        let named =
            server_message(&name_commands(&["get".to_owned(), "del".to_owned()], error(denied)));
        assert!(named.contains(r"can't\nrun this command; it calls get, del"), "{named}");
    }
}
