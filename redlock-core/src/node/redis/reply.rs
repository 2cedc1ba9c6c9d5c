//! What a server's replies mean.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use super::script::Script;
use crate::ballot::validity;
use crate::error::{ForeignKind, NodeError, Vote};
use crate::fencing_token::FencingToken;
use crate::node::Claim;

type Reply = Result<Value, RedisError>;

/// The vote that a reply to `SET .. NX` is; `None` where the key is there.
pub(super) fn acquired(reply: &Reply) -> Option<Vote> {
    match reply {
        Ok(Value::Okay) => Some(Vote::Granted),
        Ok(Value::Nil) => None,
        Ok(_) => Some(unexpected()),
        Err(error) => Some(failed(error)),
    }
}

/// The vote that the reply of a script is which sets the lock, or inspects what is there. Notes the
/// number that a claim gets that is to be numbered.
pub(super) fn acquired_by_script(reply: &Reply, claim: &Claim) -> Vote {
    match reply {
        Ok(Value::Int(_)) => holder(reply),
        Ok(Value::BulkString(text)) if claim.counter().is_some() => {
            let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            match number {
                Some(number) if FencingToken::NUMBERS.contains(&number) => {
                    claim.note_number(number);
                    Vote::Granted
                }
                _ => unexpected(),
            }
        }
        Ok(_) if claim.counter().is_some() => unexpected(),
        other => acquired(other).unwrap_or_else(unexpected),
    }
}

/// The vote that the inspection of a refused key is.
pub(super) fn holder(reply: &Reply) -> Vote {
    match reply {
        Ok(Value::Int(-3)) => Vote::Foreign { found: ForeignKind::WrongType },
        Ok(Value::Int(-1)) => Vote::Foreign { found: ForeignKind::NoTimeToLive },
        // Freed in between.
        Ok(Value::Int(-2)) => Vote::Held { remaining: Some(Duration::ZERO) },
        Ok(Value::Int(millis)) => match u64::try_from(*millis).map(Duration::from_millis) {
            Ok(remaining) if remaining <= validity::MAX_EXPIRE => {
                Vote::Held { remaining: Some(remaining) }
            }
            Ok(_) => Vote::Foreign { found: ForeignKind::LivesTooLong },
            Err(_) => unexpected(),
        },
        // That it is held is certain, for how long is not.
        Ok(_) | Err(_) => Vote::Held { remaining: None },
    }
}

/// The vote that the reply of a script is which compares the owner.
pub(super) fn owned(reply: &Reply) -> Vote {
    match reply {
        Ok(Value::Int(1)) => Vote::Granted,
        Ok(Value::Int(0)) => Vote::Gone,
        Ok(Value::Int(-3)) => Vote::Foreign { found: ForeignKind::WrongType },
        Ok(_) => unexpected(),
        Err(error) => failed(error),
    }
}

/// The vote that the reply to a release is, and how many listeners it was announced to.
pub(super) fn released(reply: &Reply) -> (Vote, usize) {
    match reply {
        Ok(Value::Int(count)) if *count >= 1 => {
            (Vote::Granted, usize::try_from(count - 1).unwrap_or_default())
        }
        other => (owned(other), 0),
    }
}

fn unexpected() -> Vote {
    Vote::Failed(NodeError::NotUnderstood)
}

fn failed(error: &RedisError) -> Vote {
    Vote::Failed(node_error(error))
}

/// What went wrong, once there was a connection.
pub(super) fn node_error(error: &RedisError) -> NodeError {
    if let ErrorKind::Server(kind) = error.kind() {
        let words: Arc<str> = words(error).into();
        return if kind == ServerErrorKind::NoPerm || is_denied_in_script(&words) {
            NodeError::NotPermitted(words)
        } else {
            NodeError::Server(words)
        };
    }
    let words = words(error).into();
    if error.is_io_error() || error.is_unrecoverable_error() {
        NodeError::ConnectionBroke(words)
    } else {
        NodeError::Server(words)
    }
}

/// Inside a script, what the user may not do is an error of another kind, with other words in each
/// version: those of Redis 6.2, of 7.0, and since 7.2.
fn is_denied_in_script(words: &str) -> bool {
    words.contains("ACL failure in script") || words.contains("user executing the script can't")
}

/// Adds to an error in a script what the server does not say: up to Redis 7.0 it does not name the
/// command that the user has no right to.
pub(super) fn name_commands(script: Script, error: RedisError) -> RedisError {
    const DENIED: &str = "The user executing the script can't";
    let words = words(&error);
    let Some(at) = words.find(DENIED) else { return error };
    let denied = words[at..].split(" script: ").next().unwrap_or(DENIED);
    let words = format!("{denied}; it calls {}", script.commands().join(", "));
    (ErrorKind::Server(ServerErrorKind::NoPerm), "not permitted", words).into()
}

/// Why there is no connection: the server has refused us in its own words, or was not reached.
pub(super) fn not_connected(error: &RedisError) -> NodeError {
    let words: Arc<str> = words(error).into();
    // The last where the code does not get through to us: of SELECT.
    let refusals = ["WRONGPASS", "NOAUTH", "NOPERM", "has no permissions"];
    let refused = refusals.iter().any(|refusal| words.contains(refusal));
    if refused {
        NodeError::NotPermitted(words)
    } else if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::AuthenticationFailed) {
        NodeError::Server(words)
    } else {
        NodeError::NotConnected(words)
    }
}

/// An error in the server's own words where it has spoken: `OOM command not allowed ..`.
pub(super) fn words(error: &RedisError) -> String {
    let words = all_words(error);
    // A server that does not know a command repeats its arguments, tokens and passwords included.
    escaped(words.split_once(", with args").map_or(words.as_str(), |(before, _)| before))
}

/// A server's words on one line: control characters, and others that are not printed, are escaped, so
/// that no server writes lines of its own into a log. Escaping twice changes nothing.
pub(super) fn escaped(words: &str) -> String {
    let mut escaped = String::with_capacity(words.len());
    for character in words.chars() {
        match character {
            '\\' | '"' | '\'' => escaped.push(character),
            _ => escaped.extend(character.escape_debug()),
        }
    }
    escaped
}

fn all_words(error: &RedisError) -> String {
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
    use crate::key::LockKey;
    use crate::node::{Dialect, LockName};

    fn claim() -> Claim {
        let key = LockKey::new("order:42").unwrap();
        Claim::new(LockName::new("", &key, Dialect::Plain), key)
    }

    #[test]
    fn what_stands_at_the_key_is_told_apart() {
        let held = |millis| Vote::Held { remaining: Some(Duration::from_millis(millis)) };
        let foreign = |found| Vote::Foreign { found };
        assert_eq!(holder(&Ok(Value::Int(4200))), held(4200));
        assert_eq!(holder(&Ok(Value::Int(-2))), held(0));
        assert_eq!(holder(&Ok(Value::Int(-1))), foreign(ForeignKind::NoTimeToLive));
        assert_eq!(holder(&Ok(Value::Int(-3))), foreign(ForeignKind::WrongType));
        let eight_days = 8 * 24 * 60 * 60 * 1000;
        assert_eq!(holder(&Ok(Value::Int(eight_days))), foreign(ForeignKind::LivesTooLong));
    }

    #[test]
    fn what_is_not_permitted_is_known_by_its_words_in_every_version() {
        for (words, denied) in [
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
            let reply = bb8_redis::redis::parse_redis_value(format!("-{words}\r\n").as_bytes());
            let error = reply.unwrap().extract_error().unwrap_err();
            let error = node_error(&error);
            assert_eq!(matches!(error, NodeError::NotPermitted(_)), denied, "{error:?}");
        }
    }

    #[test]
    fn control_characters_in_a_servers_words_are_escaped() {
        let error = |text: &str| {
            let reply = bb8_redis::redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            reply.unwrap().extract_error().unwrap_err()
        };
        let said =
            "ERR it's \"full\"\n2026 WARN a lock\twas \u{1b}[31mlost\u{7f}\u{85}\u{2028}\u{202e}.";
        let escaped =
            r#"ERR it's "full"\n2026 WARN a lock\twas \u{1b}[31mlost\u{7f}\u{85}\u{2028}\u{202e}."#;
        assert_eq!(words(&error(said)), escaped);
        assert_eq!(node_error(&error(said)), NodeError::Server(escaped.into()));
        assert_eq!(not_connected(&error(said)), NodeError::Server(escaped.into()));
        let vote = Vote::Failed(node_error(&error(said)));
        assert_eq!(vote.to_string(), format!("failed: {escaped}"));
        let broke = RedisError::from((ErrorKind::Io, "it broke", "a\nb".to_owned()));
        assert_eq!(node_error(&broke), NodeError::ConnectionBroke(r"a\nb".into()));
        // In a script the words are read, completed and made an error again.
        let denied = "ERR The user executing the script can't\nrun this command";
        let named = words(&name_commands(Script::PlainRelease, error(denied)));
        assert!(named.contains(r"can't\nrun this command; it calls"), "{named}");
    }

    /// A reply that is not understood is never a grant.
    #[test]
    fn only_the_expected_reply_grants() {
        for value in [Value::Int(0), Value::Int(2), Value::SimpleString("QUEUED".into())] {
            assert!(!matches!(acquired(&Ok(value.clone())), Some(Vote::Granted)), "{value:?}");
            assert!(!matches!(owned(&Ok(value.clone())), Vote::Granted), "{value:?}");
        }
        // The lock may be set nevertheless.
        let queued = acquired(&Ok(Value::SimpleString("QUEUED".into())));
        assert_eq!(queued, Some(Vote::Failed(NodeError::NotUnderstood)));
        assert_eq!(acquired(&Ok(Value::Okay)), Some(Vote::Granted));
        assert_eq!(owned(&Ok(Value::Int(1))), Vote::Granted);
        assert_eq!(acquired(&Ok(Value::Nil)), None);
        for value in [Value::Int(0), Value::Int(1), Value::Nil, Value::Boolean(true)] {
            assert_ne!(
                acquired_by_script(&Ok(value.clone()), &claim()),
                Vote::Granted,
                "{value:?}"
            );
        }
        assert_eq!(acquired_by_script(&Ok(Value::Okay), &claim()), Vote::Granted);
    }

    /// Without its number a holder could not be told from its predecessor.
    #[test]
    fn a_claim_that_is_to_be_numbered_is_granted_with_a_number_only() {
        let fenced = claim().fenced(&Arc::from("counter"));
        let text = |text: &str| Ok(Value::BulkString(text.as_bytes().to_vec()));
        for reply in [
            Ok(Value::Okay),
            Ok(Value::Nil),
            text(""),
            text("1e15"),
            text("x"),
            text("0"),
            text("-1"),
            text("9007199254740993"),
        ] {
            assert_ne!(acquired_by_script(&reply, &fenced), Vote::Granted, "{reply:?}");
        }
        assert_ne!(acquired_by_script(&text("7"), &claim()), Vote::Granted);
        assert_eq!(acquired_by_script(&text("1795000000000001"), &fenced), Vote::Granted);
        assert_eq!(fenced.first_token().unwrap().number(), 1_795_000_000_000_001);
    }
}
