//! A server that a test plays: it speaks the few messages of the protocol that a session needs.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::frames::put_frame;
use super::jute::{JuteReader, JuteWriter};

pub(super) const SYNC: i32 = 9;
pub(super) const CLOSE_SESSION: i32 = -11;

/// The server's end of a connection.
pub(super) struct PlayedServer<S> {
    pub(super) socket: S,
}

/// The first message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConnectRequest {
    pub(super) last_zxid: i64,
    /// In milliseconds.
    pub(super) timeout: i32,
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
}

/// A request of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlayedRequest {
    pub(super) xid: i32,
    pub(super) op: i32,
    pub(super) body: Vec<u8>,
}

impl PlayedRequest {
    /// Returns the first text of the body, which is the path of most requests.
    pub(super) fn path(&self) -> &str {
        JuteReader(&self.body).text().unwrap()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> PlayedServer<S> {
    /// Waits for the next frame. Returns `None` at the end of the connection.
    pub(super) async fn frame(&mut self) -> Option<Vec<u8>> {
        let length = self.socket.read_i32().await.ok()?;
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        self.socket.read_exact(&mut frame).await.ok()?;
        Some(frame)
    }

    /// Waits for the next request. Returns `None` at the end of the connection.
    pub(super) async fn next(&mut self) -> Option<PlayedRequest> {
        let frame = self.frame().await?;
        let mut reader = JuteReader(&frame);
        let (xid, op) = (reader.int().unwrap(), reader.int().unwrap());
        Some(PlayedRequest { xid, op, body: reader.0.to_vec() })
    }

    /// Waits for the next request.
    pub(super) async fn request(&mut self) -> PlayedRequest {
        self.next().await.expect("a request")
    }

    /// Waits for the next request that is no beat, and answers the beats.
    pub(super) async fn operation(&mut self) -> PlayedRequest {
        loop {
            let request = self.request().await;
            if request.op != SYNC {
                return request;
            }
            self.reply(&request, 0, 0, b"").await;
        }
    }

    pub(super) async fn reply(
        &mut self,
        request: &PlayedRequest,
        zxid: i64,
        code: i32,
        body: &[u8],
    ) {
        let mut header = JuteWriter::default();
        header.int(request.xid).long(zxid).int(code);
        self.send(&[&header.0, body]).await;
    }

    /// Replies to a list.
    pub(super) async fn children(&mut self, request: &PlayedRequest, names: &[String]) {
        let mut body = JuteWriter::default();
        body.int(names.len().try_into().unwrap());
        for name in names {
            body.text(name);
        }
        body.long(1).long(2).long(3).long(4).int(5).int(6).int(7).long(8).int(9).int(10).long(11);
        self.reply(request, 0, 0, &body.0).await;
    }

    /// Reports the deletion of a node.
    pub(super) async fn deleted(&mut self, path: &str) {
        let mut event = JuteWriter::default();
        let (kind, connected) = (2, 3);
        event.int(-1).long(-1).int(0).int(kind).int(connected).text(path);
        self.send(&[&event.0]).await;
    }

    /// Waits for the handshake of a client.
    pub(super) async fn handshake(&mut self) -> ConnectRequest {
        let frame = self.frame().await.expect("a handshake");
        let mut reader = JuteReader(&frame);
        assert_eq!(reader.int(), Some(0), "the version of the protocol");
        ConnectRequest {
            last_zxid: reader.long().unwrap(),
            timeout: reader.int().unwrap(),
            session: reader.long().unwrap(),
            password: reader.bytes().unwrap().to_vec(),
        }
    }

    /// Accepts a session, or reports with zeros that it has expired.
    pub(super) async fn accept(&mut self, timeout: i32, session: i64, password: &[u8]) {
        let mut answer = JuteWriter::default();
        answer.int(0).int(timeout).long(session).bytes(password).boolean(false);
        self.send(&[&answer.0]).await;
    }

    /// Sends a frame. The client may have closed the connection.
    pub(super) async fn send(&mut self, content: &[&[u8]]) {
        let mut out = Vec::new();
        put_frame(&mut out, content);
        drop(self.socket.write_all(&out).await);
        drop(self.socket.flush().await);
    }
}
