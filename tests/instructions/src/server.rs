//! A server in memory, which replies to the commands of a lock as soon as they are written.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use redlock_core::simulation::{Dial, Dialing, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Opens connections to a server.
#[derive(Debug)]
pub(crate) struct Server {
    /// Distinguishes the servers of one manager.
    pub(crate) number: u64,
}

impl Dial for Server {
    fn open(&self) -> Dialing {
        let connection = Connection::new(self.number);
        Box::pin(async move { Ok(Box::new(connection) as Box<dyn Stream>) })
    }
}

/// The client's end of a connection. A write contains whole commands, because the writer sends its buffer at
/// once and nothing limits the length of a write.
#[derive(Debug)]
pub(crate) struct Connection {
    server: u64,
    replies: VecDeque<u8>,
    reader: Option<Waker>,
    scripts: Arc<AtomicU64>,
}

impl Connection {
    pub(crate) fn new(server: u64) -> Self {
        Self {
            server,
            replies: VecDeque::with_capacity(4096),
            reader: None,
            scripts: Arc::default(),
        }
    }

    fn reply(&mut self, commands: &[u8]) {
        let mut rest = commands;
        while let Some(next) = self.reply_to_first(rest) {
            rest = next;
        }
        assert!(rest.is_empty(), "half a command: {}", String::from_utf8_lossy(rest));
    }

    /// Replies to the first command, and returns the commands after it.
    fn reply_to_first<'a>(&mut self, commands: &'a [u8]) -> Option<&'a [u8]> {
        let (count, mut rest) = number(commands.strip_prefix(b"*")?)?;
        let mut words: [&[u8]; 2] = [b"", b""];
        for index in 0..count {
            let (length, after) = number(rest.strip_prefix(b"$")?)?;
            if let Some(word) = words.get_mut(index) {
                *word = after.get(..length)?;
            }
            rest = after.get(length + 2..)?;
        }
        match words {
            [b"SET" | b"CLIENT", _] => self.replies.extend(b"+OK\r\n"),
            [b"EVALSHA", _] => self.replies.extend(b":1\r\n"),
            [command @ (b"SUBSCRIBE" | b"UNSUBSCRIBE"), channel] => self.confirm(command, channel),
            [b"HELLO", _] => self.replies.extend(b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n"),
            [b"SCRIPT", _] => {
                let number = self.scripts.fetch_add(1, Ordering::Relaxed);
                self.replies.extend(format!("$40\r\n{number:040x}\r\n").bytes());
            }
            [b"TIME", _] => {
                let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
                let (seconds, micros) = (now.as_secs(), now.subsec_micros());
                self.replies
                    .extend(format!("*2\r\n$10\r\n{seconds:010}\r\n$6\r\n{micros:06}\r\n").bytes());
            }
            [b"INFO", b"server"] => {
                let info = format!("run_id:{}\r\nuptime_in_seconds:900\r\n", self.server);
                self.replies.extend(format!("${}\r\n{info}\r\n", info.len()).bytes());
            }
            [b"INFO", _] => {
                self.replies.extend(b"$27\r\nmaxmemory_policy:noeviction\r\n");
            }
            [command, _] => panic!("unknown command {}", String::from_utf8_lossy(command)),
        }
        Some(rest)
    }

    /// Confirms a change of a subscription, as a server does in RESP3.
    fn confirm(&mut self, command: &[u8], channel: &[u8]) {
        let kind = command.to_ascii_lowercase();
        self.replies.extend(b">3\r\n");
        for text in [&kind, channel] {
            self.replies.extend(format!("${}\r\n", text.len()).bytes().chain(text.iter().copied()));
            self.replies.extend(b"\r\n");
        }
        self.replies.extend(b":0\r\n");
    }
}

/// Reads a number and its line end.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let number =
        bytes[..end].iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
    Some((number, bytes.get(end + 2..)?))
}

impl Stream for Connection {}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.replies.is_empty() {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = buffer.remaining().min(self.replies.len());
        let (first, second) = self.replies.as_slices();
        let head = count.min(first.len());
        buffer.put_slice(&first[..head]);
        buffer.put_slice(&second[..count - head]);
        self.replies.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.reply(bytes);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
