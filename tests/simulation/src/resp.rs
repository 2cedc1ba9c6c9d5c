//! RESP3, as far as the simulated server speaks it.

use bb8_redis::redis::{Value, parse_redis_value};

/// What a server sends.
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

    /// As people read it.
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

/// What a client sends: a command with its arguments.
pub(super) type Request = Vec<Vec<u8>>;

/// A request as a client encodes it.
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

/// Takes the first request out of what has come in, if all of it is there.
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

fn number(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    assert_eq!(rest[0], kind, "a client sends arrays of strings");
    let number = std::str::from_utf8(&rest[1..end]).ok()?.parse().ok()?;
    *rest = &rest[end + 2..];
    Some(number)
}

/// A reply as people read it.
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
    fn a_request_is_taken_when_all_of_it_is_there() {
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
