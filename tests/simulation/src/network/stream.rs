//! A client's end of a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use redlock_core::simulation;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::pipe::{Packet, Receiver};
use super::{Direction, Network, Sender};

/// A client's end of a connection. Bytes that were written before it is dropped still arrive.
#[derive(Debug)]
pub(crate) struct Stream {
    sender: Sender,
    receiver: Receiver,
    /// Bytes that have arrived and have not been read.
    unread: Vec<u8>,
    ended: bool,
}

impl Stream {
    pub(super) fn new(sender: Sender, receiver: Receiver) -> Self {
        Self { sender, receiver, unread: Vec::new(), ended: false }
    }
}

impl simulation::Stream for Stream {}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() && !self.ended {
            match self.receiver.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Packet::Data(bytes)) => self.unread = bytes,
                Poll::Ready(Packet::End) => self.ended = true,
                Poll::Ready(Packet::Reset) => {
                    self.ended = true;
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
            }
        }
        let count = buffer.remaining().min(self.unread.len());
        buffer.put_slice(&self.unread[..count]);
        self.unread.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.sender.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.sender.send_requests(bytes.to_vec());
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.sender.end();
    }
}

/// Opens connections to one server.
#[derive(Debug, Clone)]
pub(crate) struct Dial {
    pub(super) network: Network,
    pub(super) client: usize,
    pub(super) server: usize,
}

impl Dial {
    /// Connects to the server, and waits for its answer.
    async fn open(&self) -> io::Result<Stream> {
        let Self { network, client, server } = self;
        network.wait_for_passage(*client, *server, Direction::ToServer).await;
        let accepted = network.accept(*client, *server);
        network.wait_for_passage(*client, *server, Direction::ToClient).await;
        accepted
    }
}

impl simulation::Dial for Dial {
    fn open(&self) -> simulation::Dialing {
        let dial = self.clone();
        Box::pin(async move { dial.open().await.map(|stream| Box::new(stream) as _) })
    }
}
