//! Frames: a length, and as many bytes.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest frame that is read. It is the limit of a server by default (`jute.maxbuffer`).
const LONGEST: usize = 1 << 20;
/// How many bytes are read at once.
const CHUNK: usize = 8 << 10;

/// A connection, whose bytes are read and written apart.
pub(super) struct ServerStream {
    pub(super) frames: FrameReader<Box<dyn AsyncRead + Send + Unpin>>,
    pub(super) output: Box<dyn AsyncWrite + Send + Unpin>,
}

impl ServerStream {
    pub(super) fn new(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        Self { frames: FrameReader::new(Box::new(input)), output: Box::new(output) }
    }

    /// Writes a frame with this content, and waits for the next one.
    pub(super) async fn exchange(&mut self, content: &[&[u8]]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        put_frame(&mut out, content);
        self.output.write_all(&out).await?;
        self.output.flush().await?;
        self.frames.next().await
    }
}

/// Reads frames from a connection.
pub(super) struct FrameReader<R> {
    socket: R,
    /// The bytes that have arrived, after the last frame.
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(socket: R) -> Self {
        Self { socket, buffer: Vec::new() }
    }

    /// Waits for the next frame, and returns its bytes without the length.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk() {
                let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
                if length > LONGEST {
                    let text = format!("a frame of the server is longer than {LONGEST} bytes");
                    return Err(io::Error::other(text));
                }
                if let Some(frame) = rest.get(..length) {
                    let frame = frame.to_vec();
                    self.buffer.drain(..4 + length);
                    return Ok(frame);
                }
            }
            self.buffer.reserve(CHUNK);
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::Error::other("the server has closed the connection"));
            }
        }
    }
}

/// Appends a frame with this content.
pub(super) fn put_frame(out: &mut Vec<u8>, content: &[&[u8]]) {
    let length: usize = content.iter().map(|part| part.len()).sum();
    // The server refuses a longer frame: its limit is below 2^31.
    out.extend(i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes());
    for part in content {
        out.extend(*part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_that_arrive_in_pieces_are_put_together() {
        let mut bytes = Vec::new();
        let long = vec![7; LONGEST];
        for content in [&b"ab"[..], b"", &long, b"c"] {
            put_frame(&mut bytes, &[content]);
        }
        for size in [1 << 10, 5 << 10, usize::MAX] {
            let (mut server, client) = tokio::io::duplex(size.min(1 << 22));
            let written = bytes.clone();
            let write = async {
                tokio::io::AsyncWriteExt::write_all(&mut server, &written).await.unwrap();
                drop(server);
            };
            let mut frames = FrameReader::new(client);
            let read = async {
                for content in [&b"ab"[..], b"", &long, b"c"] {
                    assert!(frames.next().await.unwrap() == content);
                }
                frames.next().await.unwrap_err()
            };
            let ((), end) = futures_util::future::join(write, read).await;
            assert_eq!(end.to_string(), "the server has closed the connection");
        }
    }

    #[tokio::test]
    async fn a_frame_of_a_false_length_is_an_error_and_allocates_nothing() {
        for length in [-1, i32::MIN, i32::MAX, (1 << 20) + 1] {
            let bytes = i32::to_be_bytes(length);
            let mut frames = FrameReader::new(&bytes[..]);
            let error = frames.next().await.unwrap_err();
            assert_eq!(error.to_string(), "a frame of the server is longer than 1048576 bytes");
            assert!(frames.buffer.capacity() <= 2 * CHUNK);
        }
    }
}
