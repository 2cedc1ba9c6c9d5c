//! Frames: a length, and as many bytes.

use std::io;

use bytes::BytesMut;
use futures_util::StreamExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};

/// The longest frame that is read. The servers limit the frames that they read (`jute.maxbuffer`), and not their replies: the
/// queue of a lock may be long.
const LONGEST: usize = 1 << 26;

/// A connection, whose bytes are read and written apart.
pub(super) struct ServerStream {
    pub(super) frames: FrameReader,
    pub(super) output: Box<dyn AsyncWrite + Send + Unpin>,
}

impl ServerStream {
    pub(super) fn new(socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        let (input, output) = tokio::io::split(socket);
        let codec = LengthDelimitedCodec::builder().max_frame_length(LONGEST).new_codec();
        let frames = FrameReader(FramedRead::new(Box::new(input), codec));
        Self { frames, output: Box::new(output) }
    }

    /// Writes a frame with this content, and waits for the next one.
    pub(super) async fn exchange(&mut self, content: &[&[u8]]) -> io::Result<BytesMut> {
        let mut out = Vec::new();
        put_frame(&mut out, content);
        self.output.write_all(&out).await?;
        self.output.flush().await?;
        self.frames.next().await
    }
}

/// Reads frames from a connection.
pub(super) struct FrameReader(FramedRead<Box<dyn AsyncRead + Send + Unpin>, LengthDelimitedCodec>);

impl FrameReader {
    /// Waits for the next frame, and returns its bytes without the length.
    pub(super) async fn next(&mut self) -> io::Result<BytesMut> {
        let closed = || Err(io::Error::other("the server has closed the connection"));
        self.0.next().await.unwrap_or_else(closed)
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

    fn frames_of(input: impl AsyncRead + Send + Unpin + 'static) -> FrameReader {
        ServerStream::new(tokio::io::join(input, tokio::io::sink())).frames
    }

    #[tokio::test]
    async fn frames_that_arrive_in_pieces_are_put_together() {
        let mut bytes = Vec::new();
        let long = vec![7; 1 << 20];
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
            let mut frames = frames_of(client);
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
    async fn a_frame_of_a_false_length_is_an_error() {
        for length in [-1, i32::MIN, i32::MAX, (1 << 26) + 1] {
            let bytes = std::io::Cursor::new(i32::to_be_bytes(length));
            let error = frames_of(bytes).next().await.unwrap_err();
            assert_eq!(error.to_string(), "frame size too big");
        }
    }
}
