//! The part of RESP3 that the simulated server uses.

use bb8_redis::redis::{Value, parse_redis_value};

/// A message from a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Simple(&'static str),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Verbatim(String),
    Null,
    Map(Vec<(Reply, Reply)>),
    Array(Vec<Reply>),
    Push(Vec<Reply>),
}

impl Reply {
    pub(super) fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    /// Returns the message in a readable form.
    pub(super) fn shown(&self) -> String {
        show(&parse_redis_value(&self.encoded()).expect("RESP3"))
    }

    pub(super) fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }

    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Simple(text) => line(to, '+', text),
            Self::Error(text) => line(to, '-', text),
            Self::Int(number) => line(to, ':', number),
            Self::Null => line(to, '_', ""),
            Self::Bulk(text) => {
                line(to, '$', text.len());
                to.extend(text);
                to.extend(b"\r\n");
            }
            Self::Verbatim(text) => {
                line(to, '=', text.len() + "txt:".len());
                line(to, 't', format_args!("xt:{text}"));
            }
            Self::Map(entries) => {
                line(to, '%', entries.len());
                for (name, value) in entries {
                    name.encode(to);
                    value.encode(to);
                }
            }
            Self::Array(items) | Self::Push(items) => {
                let kind = if matches!(self, Self::Array(_)) { '*' } else { '>' };
                line(to, kind, items.len());
                for item in items {
                    item.encode(to);
                }
            }
        }
    }
}

fn line(to: &mut Vec<u8>, kind: char, rest: impl std::fmt::Display) {
    to.extend(format!("{kind}{rest}\r\n").as_bytes());
}

/// A request of a client: a command with its arguments.
pub(super) type Request = Vec<Vec<u8>>;

/// Returns a request as a client encodes it.
pub(super) fn encoded(request: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    line(&mut bytes, '*', request.len());
    for argument in request {
        line(&mut bytes, '$', argument.len());
        bytes.extend(argument);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Takes the first request from the received bytes, if the request is complete.
pub(super) fn take_request(buffer: &mut Vec<u8>) -> Option<Request> {
    let mut rest = &buffer[..];
    let count = number(&mut rest, b'*')?;
    let mut request = Vec::with_capacity(count);
    for _ in 0..count {
        let length = number(&mut rest, b'$')?;
        let argument = rest.get(..length)?.to_vec();
        rest = rest.get(length + 2..)?;
        request.push(argument);
    }
    let taken = buffer.len() - rest.len();
    buffer.drain(..taken);
    Some(request)
}

/// Returns all requests in the bytes that a client has written.
pub(super) fn requests(mut written: Vec<u8>) -> Vec<Request> {
    std::iter::from_fn(|| take_request(&mut written)).collect()
}

fn number(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    assert_eq!(rest[0], kind, "a client sends arrays of strings");
    let number = std::str::from_utf8(&rest[1..end]).ok()?.parse().ok()?;
    *rest = &rest[end + 2..];
    Some(number)
}

/// Returns a reply in a readable form.
pub(super) fn show(value: &Value) -> String {
    match value {
        Value::Okay => "OK".to_owned(),
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        Value::Push { kind, data } => {
            let data = data.iter().map(|item| show(item).trim_matches('"').to_owned());
            let words: Vec<String> = std::iter::once(kind.to_string()).chain(data).collect();
            format!("push {}", words.join(" "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(show).collect();
            format!("[{}]", items.join(" "))
        }
        Value::ServerError(error) => format!("-{}", error.code()),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_when_it_is_complete() {
        let request: Request = vec![b"SET".to_vec(), b"a\r\n".to_vec(), Vec::new()];
        let bytes = encoded(&request);
        let mut buffer = Vec::new();
        for byte in &bytes {
            assert_eq!(take_request(&mut buffer), None);
            buffer.push(*byte);
        }
        buffer.extend(b"*1");
        assert_eq!(take_request(&mut buffer), Some(request));
        assert_eq!(buffer, b"*1");
    }
}
