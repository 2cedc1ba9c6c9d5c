//! An HTTP/1.1 client that costs little, for requests without a body.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};

/// A head or a body that is longer is no answer of the services that are loaded here.
const LONGEST_ANSWER: usize = 64 * 1024;

/// Finds the address of a base URL such as `http://127.0.0.1:3000`.
///
/// # Errors
///
/// The URL does not begin with `http://`, or has no port, or its host is not known.
pub async fn resolve(base_url: &str) -> io::Result<SocketAddr> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("{base_url:?} is no URL"));
    let host = base_url.strip_prefix("http://").ok_or_else(invalid)?;
    lookup_host(host.trim_end_matches('/')).await?.next().ok_or_else(invalid)
}

/// One connection to a service, which is kept open between requests.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    /// Connects to the service.
    ///
    /// # Errors
    ///
    /// The service does not accept the connection.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Sends a POST request without a body, and returns the status of its answer after the whole
    /// answer was read.
    ///
    /// # Errors
    ///
    /// The connection broke, or the answer cannot be read. Later requests need a new connection.
    pub async fn post(&mut self, path: &str) -> io::Result<u16> {
        self.stream.write_all(head(path).as_bytes()).await?;
        let (length, status) = loop {
            if let Some(answer) = answer_length(&self.received)? {
                break answer;
            }
            self.receive().await?;
        };
        while self.received.len() < length {
            self.receive().await?;
        }
        self.received.drain(..length);
        Ok(status)
    }

    /// Sends the first `bytes` bytes of a request and closes the connection, as a client does that
    /// goes away.
    ///
    /// # Errors
    ///
    /// The connection broke before.
    pub async fn post_in_part(mut self, path: &str, bytes: usize) -> io::Result<()> {
        let head = head(path);
        self.stream.write_all(&head.as_bytes()[..bytes.min(head.len())]).await
    }

    /// Sends a whole request without waiting for its answer.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn post_only(&mut self, path: &str) -> io::Result<()> {
        self.stream.write_all(head(path).as_bytes()).await
    }

    async fn receive(&mut self) -> io::Result<()> {
        if self.received.len() > LONGEST_ANSWER {
            return Err(io::Error::other("the answer is too long"));
        }
        if self.stream.read_buf(&mut self.received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

fn head(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
}

/// The length of an answer and its status; `None` while its head is not complete.
fn answer_length(received: &[u8]) -> io::Result<Option<(usize, u16)>> {
    let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let read = || {
        let head = std::str::from_utf8(&received[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let length: usize = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        })?;
        Some((end + 4 + length, status))
    };
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "no status or content-length");
    read().map(Some).ok_or_else(unreadable)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn an_answer_is_read_when_its_head_is_complete() {
        let answer = b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}";
        for end in 0..answer.len() - 2 {
            assert_eq!(answer_length(&answer[..end]).unwrap(), None);
        }
        assert_eq!(answer_length(answer).unwrap(), Some((answer.len(), 409)));
        for unreadable in ["HTTP/1.1 200 OK\r\n\r\n", "SSH-2.0\r\ncontent-length: 0\r\n\r\n"] {
            assert!(answer_length(unreadable.as_bytes()).is_err(), "{unreadable}");
        }
    }

    /// A service that answers each request by these bytes, which come in two parts.
    async fn service(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; head("/one").len()];
            let (first, second) = answer.split_at(answer.len() / 2);
            while stream.read_exact(&mut request).await.is_ok() {
                stream.write_all(first.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
                stream.write_all(second.as_bytes()).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn one_connection_serves_several_requests() {
        let address = service("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes").await;
        let mut connection = Connection::open(address).await.unwrap();
        assert_eq!(connection.post("/one").await.unwrap(), 200);
        assert_eq!(connection.post("/two").await.unwrap(), 200);
    }

    #[tokio::test]
    async fn a_connection_that_ends_before_the_answer_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut connection = Connection::open(address).await.unwrap();
        drop(listener.accept().await.unwrap());
        connection.post("/one").await.unwrap_err();
    }

    #[tokio::test]
    async fn only_http_urls_with_a_port_are_resolved() {
        let address = resolve("http://127.0.0.1:3000/").await.unwrap();
        assert_eq!(address, "127.0.0.1:3000".parse().unwrap());
        assert!(resolve("https://127.0.0.1:3000").await.is_err());
        assert!(resolve("http://127.0.0.1").await.is_err());
    }
}
