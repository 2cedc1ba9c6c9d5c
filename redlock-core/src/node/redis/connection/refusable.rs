//! Replies to questions that a server may refuse.

use bb8_redis::redis::{Cmd, ErrorKind, RedisError, Value};

use crate::node::redis::link::Link;

/// Returns `None` if the server refuses the command or its reply is not understood. The caller then skips
/// the checks that need the reply.
pub(super) fn none_if_refused<T>(reply: Result<T, RedisError>) -> Result<Option<T>, RedisError> {
    use ErrorKind::{Server, UnexpectedReturnType};
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(error) if matches!(error.kind(), Server(_) | UnexpectedReturnType) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) async fn text(link: &Link, command: &Cmd) -> Result<String, RedisError> {
    match link.send(command).await? {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Ok(text),
        _ => Err((ErrorKind::UnexpectedReturnType, "the server sent no text").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_skipped_if_the_server_refuses_the_command() {
        let checked = |kind: ErrorKind| none_if_refused::<()>(Err((kind, "no").into()));
        let no_permission = ErrorKind::Server(bb8_redis::redis::ServerErrorKind::NoPerm);
        assert_eq!(checked(no_permission), Ok(None));
        assert_eq!(checked(ErrorKind::UnexpectedReturnType), Ok(None));
        assert!(checked(ErrorKind::Io).is_err(), "the connection broke");
        assert_eq!(none_if_refused(Ok(())), Ok(Some(())));
    }
}
