//! Decodes the replies of a server.

use std::time::Duration;

use bb8_redis::redis::{RedisError, Value};

use super::error::node_error;
use crate::error::{ForeignKind, NodeError, Vote};
use crate::fencing_token::FencingToken;
use crate::lock::{HolderId, OwnerLabel};
use crate::node::{Action, Reply};
use crate::validity;

pub(super) type ServerReply = Result<Value, RedisError>;

/// Returns the vote of a reply to `SET .. NX`, or `None` if the key exists.
pub(super) fn acquired(reply: &ServerReply) -> Option<Vote> {
    match reply {
        Ok(Value::Okay) => Some(Vote::Agreed),
        Ok(Value::Nil) => None,
        Ok(_) => Some(unexpected()),
        Err(error) => Some(failed(error)),
    }
}

/// Decodes the reply of the script of an action.
pub(super) fn of_script(reply: &ServerReply, action: &Action) -> Reply {
    match action {
        Action::Acquire { fenced, .. } => acquired_by_script(reply, *fenced),
        Action::Release { .. } => released(reply),
        Action::Extend { .. }
        | Action::Confirm { .. }
        | Action::Downgrade
        | Action::Withdraw { .. } => owned(reply).into(),
    }
}

/// Decodes the reply of a script that acquires the lock. A fenced lock is granted only with a number.
fn acquired_by_script(reply: &ServerReply, fenced: bool) -> Reply {
    match reply {
        Ok(Value::Array(list)) => refused(list),
        Ok(Value::BulkString(text)) if fenced => {
            let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            match number {
                Some(number) if FencingToken::NUMBER_RANGE.contains(&number) => {
                    Reply::new(Vote::Agreed).with_number(number)
                }
                _ => unexpected().into(),
            }
        }
        Ok(_) if fenced => unexpected().into(),
        other => acquired(other).unwrap_or_else(unexpected).into(),
    }
}

/// Decodes the reply to the look-up after a refused acquisition. The lock is certainly held, and at most the remaining
/// lease is unknown.
pub(super) fn looked_up(reply: &ServerReply) -> Reply {
    match reply {
        Ok(Value::Array(list)) => refused(list),
        _ => Vote::held(None).into(),
    }
}

/// Decodes a refusal: the index of a key and the time to live of its lock. A third item is the id of its only holder, an empty
/// text, or a number if only shared holders refuse the lock. A fourth item is the label of a holder.
fn refused(list: &[Value]) -> Reply {
    let [Value::Int(key), Value::Int(millis), more @ ..] = list else { return unexpected().into() };
    let (millis, is_shared) = (*millis, matches!(more, [Value::Int(_), ..]));
    let (id, label): (_, &[u8]) = match more {
        [] | [Value::Int(_)] => (None, b""),
        [Value::BulkString(id)] => (Some(id), b""),
        [Value::Int(_), Value::BulkString(label)] => (None, label),
        [Value::BulkString(id), Value::BulkString(label)] => {
            (Some(id).filter(|id| !id.is_empty()), label)
        }
        _ => return unexpected().into(),
    };
    let id = id.map(|id| std::str::from_utf8(id).unwrap_or_default().parse::<HolderId>());
    let Ok(holder) = id.transpose() else { return unexpected().into() };
    let label = OwnerLabel::read(std::str::from_utf8(label).unwrap_or_default());
    let Ok(key) = usize::try_from(*key) else { return unexpected().into() };
    let vote = match (millis, u64::try_from(millis).map(Duration::from_millis)) {
        (_, Ok(remaining)) if remaining <= validity::MAX_EXPIRE => {
            Vote::Held { holder, label, remaining: Some(remaining) }
        }
        (_, Ok(_)) => Vote::Foreign { found: ForeignKind::TimeToLiveTooLong },
        (-1, _) => Vote::Foreign { found: ForeignKind::NoTimeToLive },
        // The lock was freed after the refusal.
        (-2, _) => Vote::held(Some(Duration::ZERO)),
        (-3, _) => Vote::Foreign { found: ForeignKind::WrongType },
        _ => unexpected(),
    };
    let reply = Reply::new(vote).with_refused_key(key);
    if is_shared { reply.with_marks() } else { reply }
}

/// Returns the vote of a reply of a script that compares the owner.
fn owned(reply: &ServerReply) -> Vote {
    match reply {
        Ok(Value::Int(1)) => Vote::Agreed,
        Ok(Value::Int(0)) => Vote::NotHeld,
        Ok(Value::Int(-1)) => Vote::Foreign { found: ForeignKind::NoTimeToLive },
        Ok(Value::Int(-3)) => Vote::Foreign { found: ForeignKind::WrongType },
        Ok(_) => unexpected(),
        Err(error) => failed(error),
    }
}

/// Decodes the reply to a release, which contains the number of subscribers.
fn released(reply: &ServerReply) -> Reply {
    match reply {
        Ok(Value::Int(count)) if *count >= 1 => Reply::new(Vote::Agreed)
            .with_subscribers(usize::try_from(count - 1).unwrap_or_default()),
        other => owned(other).into(),
    }
}

fn unexpected() -> Vote {
    Vote::Failed(NodeError::UnexpectedReply)
}

fn failed(error: &RedisError) -> Vote {
    Vote::Failed(node_error(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_of_values_at_the_key_are_distinguished() {
        let held = |millis| Vote::held(Some(Duration::from_millis(millis)));
        let foreign = |found| Vote::Foreign { found };
        let refused_vote = |millis| refused(&[Value::Int(0), millis]).vote;
        assert_eq!(refused_vote(Value::Int(4200)), held(4200));
        assert_eq!(refused_vote(Value::Int(-2)), held(0));
        assert_eq!(refused_vote(Value::Int(-1)), foreign(ForeignKind::NoTimeToLive));
        assert_eq!(refused_vote(Value::Int(-3)), foreign(ForeignKind::WrongType));
        let eight_days = 8 * 24 * 60 * 60 * 1000;
        assert_eq!(refused_vote(Value::Int(eight_days)), foreign(ForeignKind::TimeToLiveTooLong));
    }

    #[test]
    fn a_refusal_names_its_only_holder() {
        let millis = Duration::from_millis(7);
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let refused_vote = |third| refused(&[Value::Int(0), Value::Int(7), third]).vote;
        let id = "a9993e364706816a";
        assert_eq!(refused_vote(text(id)), Vote::held_by(id.parse().unwrap(), Some(millis)));
        assert_eq!(refused_vote(Value::Int(1)), Vote::held(Some(millis)));
        let labelled = |third, label| {
            refused(&[Value::Int(0), Value::Int(7), third, Value::BulkString(label)]).vote
        };
        let shop = OwnerLabel::new("shop").ok();
        let by_id = Vote::held_by(id.parse().unwrap(), Some(millis)).with_label(shop.clone());
        assert_eq!(labelled(text(id), b"shop".to_vec()), by_id);
        let shared = Vote::held(Some(millis));
        for third in [Value::Int(1), text("")] {
            assert_eq!(
                labelled(third.clone(), b"shop".to_vec()),
                shared.clone().with_label(shop.clone())
            );
            // A text that is no label is not shown.
            for label in [&b""[..], b"a b", b"\xff", &[b'x'; 65]] {
                assert_eq!(labelled(third.clone(), label.to_vec()), shared, "{label:?}");
            }
        }
        let hostile = [
            text("a9993e364706816aba3e25717850c26c9cd0d89d"),
            Value::BulkString(vec![0xff; 16]),
            Value::SimpleString(id.into()),
            Value::Nil,
            Value::Array(vec![text(id)]),
        ];
        for third in hostile {
            let vote = refused_vote(third.clone());
            assert_eq!(vote, Vote::Failed(NodeError::UnexpectedReply), "{third:?}");
        }
    }

    /// A reply that is not understood is never a grant.
    #[test]
    fn only_the_expected_reply_grants() {
        for value in [Value::Int(0), Value::Int(2), Value::SimpleString("QUEUED".into())] {
            assert!(!matches!(acquired(&Ok(value.clone())), Some(Vote::Agreed)), "{value:?}");
            assert!(!matches!(owned(&Ok(value.clone())), Vote::Agreed), "{value:?}");
        }
        // The lock may have been set nevertheless.
        let queued = acquired(&Ok(Value::SimpleString("QUEUED".into())));
        assert_eq!(queued, Some(Vote::Failed(NodeError::UnexpectedReply)));
        assert_eq!(acquired(&Ok(Value::Okay)), Some(Vote::Agreed));
        assert_eq!(owned(&Ok(Value::Int(1))), Vote::Agreed);
        assert_eq!(acquired(&Ok(Value::Nil)), None);
        for value in [Value::Int(0), Value::Int(1), Value::Nil, Value::Boolean(true)] {
            let reply = acquired_by_script(&Ok(value.clone()), false);
            assert_ne!(reply.vote, Vote::Agreed, "{value:?}");
        }
        assert_eq!(acquired_by_script(&Ok(Value::Okay), false).vote, Vote::Agreed);
    }

    /// Without its number, a holder could not be distinguished from its predecessor.
    #[test]
    fn a_fenced_lock_is_granted_only_with_a_number() {
        let text = |text: &str| Ok(Value::BulkString(text.as_bytes().to_vec()));
        for reply in [
            Ok(Value::Okay),
            Ok(Value::Nil),
            text(""),
            text("1e15"),
            text("x"),
            text("0"),
            text("-1"),
            text("9007199254740992"),
        ] {
            assert_ne!(acquired_by_script(&reply, true).vote, Vote::Agreed, "{reply:?}");
        }
        assert_ne!(acquired_by_script(&text("7"), false).vote, Vote::Agreed);
        let granted = acquired_by_script(&text("1795000000000001"), true);
        assert_eq!(granted, Reply::new(Vote::Agreed).with_number(1_795_000_000_000_001));
        let greatest = acquired_by_script(&text("9007199254740991"), true);
        assert_eq!(greatest, Reply::new(Vote::Agreed).with_number((1 << 53) - 1));
    }
}
