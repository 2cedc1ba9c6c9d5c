//! A client that sends only the requests of the test.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An error of a [`ZookeeperClient`].
#[derive(Debug)]
pub enum ZookeeperError {
    /// The connection has ended.
    Connection(io::Error),
    /// The server has refused the request with this code, such as -101 (no node).
    Code(i32),
}

impl ZookeeperError {
    /// The path does not exist.
    pub const NO_NODE: i32 = -101;
    /// The session has no right to the path.
    pub const NO_AUTH: i32 = -102;
    /// The path exists.
    pub const NODE_EXISTS: i32 = -110;
    /// The session has ended.
    pub const SESSION_EXPIRED: i32 = -112;

    /// Returns whether this is the code of the server.
    pub fn is(&self, code: i32) -> bool {
        matches!(self, Self::Code(other) if *other == code)
    }
}

impl From<io::Error> for ZookeeperError {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

type Result<T> = std::result::Result<T, ZookeeperError>;

/// The kind of a new path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZookeeperKind {
    /// It stays until it is deleted.
    Persistent,
    /// It ends with the session.
    Ephemeral,
    /// It ends with the session, and the server appends a number to its name.
    EphemeralSequential,
    /// The server deletes it some time after its last child.
    Container,
}

/// The state of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZookeeperStat {
    /// The transaction that created the path.
    pub czxid: i64,
    /// The transaction that wrote the data last.
    pub mzxid: i64,
    /// The time of that transaction, in milliseconds since 1970.
    pub mtime: i64,
    /// The session that the path ends with; 0 for none.
    pub owner: i64,
    /// The last transaction that created or deleted a child.
    pub pzxid: i64,
}

/// A session over one connection. It sends nothing by itself, neither a ping nor anything else, so that a test decides
/// for how long the session is silent. Dropping the value ends the connection, and the server ends the session after its
/// timeout.
#[derive(Debug)]
pub struct ZookeeperClient {
    stream: TcpStream,
    next: i32,
    timeout: Duration,
    session: i64,
    password: Vec<u8>,
    last_zxid: i64,
}

impl ZookeeperClient {
    /// Begins a session at the server on this port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// The server does not accept the connection.
    pub async fn connect(port: u16, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        let password = vec![0; 16];
        let mut client = Self { stream, next: 0, timeout, session: 0, password, last_zxid: 0 };
        client.handshake().await?;
        Ok(client)
    }

    /// Continues the session over a new connection to the server on this port.
    ///
    /// # Errors
    ///
    /// The server does not accept the connection, or the session has ended.
    pub async fn reconnect(&mut self, port: u16) -> io::Result<()> {
        self.stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        self.handshake().await
    }

    async fn handshake(&mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let mut request = Request::default();
        request.int(0).long(self.last_zxid);
        request.int(i32::try_from(self.timeout.as_millis()).expect("a short timeout"));
        request.long(self.session).buffer(&self.password).0.push(0);
        self.write(&request).await?;
        let mut reply = self.read().await?;
        let _version = reply.int()?;
        self.timeout = Duration::from_millis(u64::from(reply.int()?.unsigned_abs()));
        self.session = reply.long()?;
        self.password = reply.buffer()?;
        if self.timeout.is_zero() {
            return Err(io::Error::other("the session has expired"));
        }
        Ok(())
    }

    /// Returns the session timeout that the server has chosen.
    pub fn session_timeout(&self) -> Duration {
        self.timeout
    }

    /// Adds the rights of a user (scheme `digest`) to the session.
    ///
    /// # Errors
    ///
    /// As for every request: the connection has ended, or the server refuses.
    pub async fn login(&mut self, user: &str, password: &str) -> Result<()> {
        let mut request = Request::default();
        request.int(-4).int(100).int(0).text("digest");
        request.buffer(format!("{user}:{password}").as_bytes());
        self.write(&request).await?;
        self.reply(-4).await.map(drop)
    }

    /// Sends a ping and waits for its reply.
    ///
    /// # Errors
    ///
    /// As for every request.
    pub async fn ping(&mut self) -> Result<()> {
        let mut request = Request::default();
        request.int(-2).int(11);
        self.write(&request).await?;
        self.reply(-2).await.map(drop)
    }

    /// Creates a path that everybody may use. Returns its name, which may have a number at its end.
    ///
    /// # Errors
    ///
    /// As for every request.
    pub async fn create(&mut self, path: &str, data: &[u8], kind: ZookeeperKind) -> Result<String> {
        let (operation, flags) = match kind {
            ZookeeperKind::Persistent => (1, 0),
            ZookeeperKind::Ephemeral => (1, 1),
            ZookeeperKind::EphemeralSequential => (1, 3),
            ZookeeperKind::Container => (19, 4),
        };
        let mut body = Request::default();
        body.text(path).buffer(data).acl("world", "anyone").int(flags);
        Ok(self.request(operation, &body).await?.text()?)
    }

    /// Takes a path away from everybody but the users that this session has logged in.
    ///
    /// # Errors
    ///
    /// As for every request.
    pub async fn make_private(&mut self, path: &str) -> Result<()> {
        let mut body = Request::default();
        body.text(path).acl("auth", "").int(-1);
        self.request(7, &body).await.map(drop)
    }

    /// Deletes a path.
    ///
    /// # Errors
    ///
    /// As for every request.
    pub async fn delete(&mut self, path: &str) -> Result<()> {
        let mut body = Request::default();
        body.text(path).int(-1);
        self.request(2, &body).await.map(drop)
    }

    /// Returns the state of a path.
    ///
    /// # Errors
    ///
    /// As for every request.
    pub async fn exists(&mut self, path: &str) -> Result<ZookeeperStat> {
        Ok(self.read_path(3, path).await?.stat()?)
    }

    /// Returns the data and the state of a path.
    ///
    /// # Errors
    ///
    /// As for every request.
    pub async fn get(&mut self, path: &str) -> Result<(Vec<u8>, ZookeeperStat)> {
        let mut reply = self.read_path(4, path).await?;
        Ok((reply.buffer()?, reply.stat()?))
    }

    /// Writes the data of a path.
    ///
    /// # Errors
    ///
    /// As for every request.
    pub async fn set(&mut self, path: &str, data: &[u8]) -> Result<ZookeeperStat> {
        let mut body = Request::default();
        body.text(path).buffer(data).int(-1);
        Ok(self.request(5, &body).await?.stat()?)
    }

    /// Returns the names of the children of a path, and the state of the path.
    ///
    /// # Errors
    ///
    /// As for every request.
    pub async fn children(&mut self, path: &str) -> Result<(Vec<String>, ZookeeperStat)> {
        let mut reply = self.read_path(12, path).await?;
        let count = reply.int()?;
        let names = (0..count).map(|_| reply.text()).collect::<io::Result<_>>()?;
        Ok((names, reply.stat()?))
    }

    /// Waits until the server has what the leader has executed before.
    ///
    /// # Errors
    ///
    /// As for every request.
    pub async fn sync(&mut self, path: &str) -> Result<()> {
        let mut body = Request::default();
        body.text(path);
        self.request(9, &body).await.map(drop)
    }

    /// Ends the session at once.
    ///
    /// # Errors
    ///
    /// As for every request.
    pub async fn close(mut self) -> Result<()> {
        self.request(-11, &Request::default()).await.map(drop)
    }

    /// Requests that read a path end with a flag: whether to set a watch.
    async fn read_path(&mut self, operation: i32, path: &str) -> Result<Reply> {
        let mut body = Request::default();
        body.text(path).0.push(0);
        self.request(operation, &body).await
    }

    async fn request(&mut self, operation: i32, body: &Request) -> Result<Reply> {
        self.next += 1;
        let mut request = Request::default();
        request.int(self.next).int(operation).0.extend_from_slice(&body.0);
        self.write(&request).await?;
        self.reply(self.next).await
    }

    async fn write(&mut self, request: &Request) -> io::Result<()> {
        let mut frame = Request::default();
        frame.buffer(&request.0);
        self.stream.write_all(&frame.0).await
    }

    async fn read(&mut self) -> io::Result<Reply> {
        let length = self.stream.read_u32().await?;
        let mut bytes = vec![0; usize::try_from(length).expect("a short reply")];
        self.stream.read_exact(&mut bytes).await?;
        Ok(Reply { bytes, at: 0 })
    }

    /// Reads the reply to a request. A future of an earlier request that was dropped leaves its reply behind.
    async fn reply(&mut self, request: i32) -> Result<Reply> {
        loop {
            let mut reply = self.read().await?;
            let (to, zxid, code) = (reply.int()?, reply.long()?, reply.int()?);
            self.last_zxid = self.last_zxid.max(zxid);
            if to == request {
                return if code == 0 { Ok(reply) } else { Err(ZookeeperError::Code(code)) };
            }
        }
    }
}

/// The bytes of a request.
#[derive(Debug, Default)]
struct Request(Vec<u8>);

impl Request {
    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn buffer(&mut self, bytes: &[u8]) -> &mut Self {
        self.int(i32::try_from(bytes.len()).expect("a short value"));
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.buffer(text.as_bytes())
    }

    /// One entry with all rights.
    fn acl(&mut self, scheme: &str, id: &str) -> &mut Self {
        self.int(1).int(31).text(scheme).text(id)
    }
}

/// The bytes of a reply.
#[derive(Debug)]
struct Reply {
    bytes: Vec<u8>,
    at: usize,
}

impl Reply {
    fn take(&mut self, count: usize) -> io::Result<&[u8]> {
        let taken = self.bytes.get(self.at..self.at + count).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.at += count;
        Ok(taken)
    }

    fn int(&mut self) -> io::Result<i32> {
        Ok(i32::from_be_bytes(self.take(4)?.try_into().expect("4 bytes")))
    }

    fn long(&mut self) -> io::Result<i64> {
        Ok(i64::from_be_bytes(self.take(8)?.try_into().expect("8 bytes")))
    }

    /// A length of -1 stands for no value.
    fn buffer(&mut self) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.int()?).unwrap_or_default();
        Ok(self.take(length)?.to_vec())
    }

    fn text(&mut self) -> io::Result<String> {
        String::from_utf8(self.buffer()?).map_err(io::Error::other)
    }

    fn stat(&mut self) -> io::Result<ZookeeperStat> {
        let (czxid, mzxid, _ctime, mtime) =
            (self.long()?, self.long()?, self.long()?, self.long()?);
        // The versions of the data, of the children and of the rights.
        self.take(12)?;
        let owner = self.long()?;
        // The length of the data, and the number of children.
        self.take(8)?;
        Ok(ZookeeperStat { czxid, mzxid, mtime, owner, pzxid: self.long()? })
    }
}
