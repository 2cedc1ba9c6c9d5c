//! Makes connections: to the first host that works, with the handshake, the login and the checks.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::seq::SliceRandom;
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time::{Instant, timeout_at};

use super::frames::ServerStream;
use super::jute::{JuteReader, JuteWriter};
use super::requests::{
    Acl, CreateKind, ErrorCode, ReplyHeader, RequestError, ZookeeperRequest, authenticate,
    close_session, create, exists,
};
use super::url::ZookeeperUrl;
use crate::access::Credentials;
use crate::clock::Moment;
use crate::error::NodeError;
use crate::log_limit::LogLimit;
use crate::log_limited;
use crate::node::{NodeSettings, ServerReport};
use crate::random::with_random;
use crate::store::kit::connect_time::ConnectTime;
#[cfg(feature = "tls")]
use crate::store::kit::encrypt::encrypt;
use crate::store::kit::provider::Provider;
use crate::store::kit::url::HostPort;

const PROTOCOL_VERSION: i32 = 0;
/// The `xid` of a login, and of another request before those of the driver.
const LOGIN_XID: i32 = -4;
const FIRST_XID: i32 = 1;
/// The name of a znode that does not exist.
const NOWHERE: &str = "redlock-nowhere";

/// A session of the ensemble. Its password is a secret: with it, a client can take the session over.
#[derive(Clone)]
pub(super) struct SessionKey {
    /// The number of the session in this process.
    pub(super) number: u64,
    /// The moment before the first connection.
    pub(super) began: Moment,
    id: i64,
    password: Vec<u8>,
}

/// A new connection.
pub(super) struct Established {
    pub(super) stream: ServerStream,
    pub(super) session: SessionKey,
    /// The moment before the handshake.
    pub(super) before: Moment,
    pub(super) server: ServerReport,
}

/// Makes the connections of a node.
pub(super) struct SessionConnector {
    pub(super) url: ZookeeperUrl,
    /// The greatest transaction number of all replies. A server that is behind it refuses the session.
    pub(super) last_zxid: i64,
    /// The end of the latest connection.
    pub(super) last_connected: Moment,
    /// The moment before the latest handshake that has shortened the session, although the server had just granted the timeout
    /// to another session. A balancer may have passed the two on to different servers.
    pub(super) shortened: Option<Moment>,
    settings: NodeSettings,
    session: Option<SessionKey>,
    /// The logins of all connections of the session. Its znodes belong to the login with which they were made, and a new password
    /// is a new login, so that each connection needs them all.
    logins: Vec<String>,
    /// The number of the latest session.
    number: u64,
    log_limit: LogLimit,
}

impl SessionConnector {
    pub(super) fn new(url: ZookeeperUrl, settings: NodeSettings) -> Self {
        let last_connected = Moment::default();
        Self {
            url,
            last_zxid: 0,
            last_connected,
            shortened: None,
            log_limit: LogLimit::new(Arc::clone(&settings.clock)),
            settings,
            session: None,
            logins: Vec::new(),
            number: 0,
        }
    }

    /// Connects to the first host that works, in random order. The session goes on, unless it has expired.
    pub(super) async fn connect(&mut self) -> Result<Established, NodeError> {
        let limit = self.settings.connect_timeout;
        let deadline = Instant::now() + limit * 7 / 8;
        if self.settings.clock.now().since(self.last_connected) > self.url.session_timeout * 2 {
            // All leases have ended. Servers whose data were lost would never get as far as the former ones.
            self.last_zxid = 0;
        }
        self.url.check_acl().map_err(|reason| NodeError::Credentials(reason.into()))?;
        let login = match &self.url.provider {
            Some(provider) => Some(login(provider, limit * 3 / 4).await?),
            None => None,
        };
        let mut servers = self.url.servers.clone();
        with_random(|random| servers.shuffle(random));
        let mut first_error = None;
        for (index, server) in servers.iter().enumerate() {
            let now = Instant::now();
            let rest = u32::try_from(servers.len() - index).unwrap_or(u32::MAX);
            let share = deadline.saturating_duration_since(now) / rest;
            let time = ConnectTime::begin(limit);
            let opened = timeout_at(now + share, self.open(server, login.as_deref())).await;
            match opened.unwrap_or_else(|_| Err(time.late())) {
                Ok(established) => return Ok(established),
                Err(error) if servers.len() == 1 => return Err(error),
                // A server that can be reached knows more about a mistake.
                Err(error) if !matches!(first_error, None | Some(NodeError::NotConnected(_))) => {
                    drop(error);
                }
                Err(error) => first_error = Some(error.at(&server.to_string())),
            }
        }
        Err(first_error.unwrap_or_else(|| NodeError::NotConnected("the URL has no host".into())))
    }

    async fn open(
        &mut self,
        server: &HostPort,
        login: Option<&str>,
    ) -> Result<Established, NodeError> {
        let timeout = self.url.session_timeout;
        let mut is_repeated = false;
        loop {
            let is_new = self.session.is_none();
            if is_new {
                self.check_tick(server).await?;
            }
            let (mut stream, address) =
                self.dial(&server.host, (server.host.as_str(), server.port)).await?;
            if !is_new {
                // Of the same server, which has accepted this connection already.
                let granted = self.granted_timeout(&server.host, address, timeout).await?;
                self.check_limit(server, granted)?;
            }
            let before = self.settings.clock.now();
            let accepted =
                handshake(&mut stream, timeout, self.last_zxid, self.session.as_ref()).await?;
            let Some(accepted) = accepted else {
                if self.session.take().is_none() {
                    return Err(refused());
                }
                self.logins.clear();
                continue;
            };
            if is_new {
                // The servers store the timeout with which a session was made. After the failure of a leader, the next one counts
                // from it, even if another server has granted a longer one since then. So a session that begins with a shorter
                // timeout is never used.
                self.check_limit(server, accepted.timeout)?;
            }
            let granted = accepted.timeout;
            let session = self.session.get_or_insert_with(|| {
                self.number += 1;
                let Accepted { id, password, .. } = accepted;
                SessionKey { number: self.number, began: before, id, password }
            });
            let session = session.clone();
            if accepted.timeout < timeout {
                self.shortened = Some(before);
                self.check_limit(server, accepted.timeout)?;
            }
            // A slow handshake proves a moment long ago. The next one may be faster.
            if self.settings.clock.now().since(before) > timeout / 16
                && !std::mem::replace(&mut is_repeated, true)
            {
                continue;
            }
            self.prepare(&mut stream, login, is_new).await?;
            let mut report = ServerReport::new(server.to_string(), true);
            // As the servers log it.
            report.session = Some(format!("0x{:x}", session.id));
            (report.product, report.session_timeout) = (Some("ZooKeeper"), Some(granted));
            return Ok(Established { stream, session, before, server: report });
        }
    }

    /// Checks the tick by the shortest session of the server, which is two ticks. A tick in the URL was checked with it.
    async fn check_tick(&self, HostPort { host, port }: &HostPort) -> Result<(), NodeError> {
        if self.url.tick.is_some() {
            return Ok(());
        }
        let shortest = Duration::from_millis(1);
        let granted = self.granted_timeout(host, (host.as_str(), *port), shortest).await?;
        let checked = self.url.check_tick(granted / 2);
        checked.map_err(|reason| NodeError::Server(reason.into()))
    }

    /// Opens a session of its own for a moment, and returns the timeout that it gets in place of this one.
    ///
    /// A server that is asked to continue a session with a timeout above its limit shortens the session, although its locks
    /// rely on the longer one. So a server is asked in this way first.
    async fn granted_timeout(
        &self,
        host: &str,
        address: impl ToSocketAddrs,
        timeout: Duration,
    ) -> Result<Duration, NodeError> {
        let (mut stream, _) = self.dial(host, address).await?;
        let accepted = handshake(&mut stream, timeout, 0, None).await?.ok_or_else(refused)?;
        ask(&mut stream, FIRST_XID, close_session()).await?;
        Ok(accepted.timeout)
    }

    /// Checks that a server grants the session timeout. Another server may work, so the operator learns of this one now.
    fn check_limit(&self, server: &HostPort, granted: Duration) -> Result<(), NodeError> {
        let timeout = self.url.session_timeout;
        if granted >= timeout {
            return Ok(());
        }
        let server = server.to_string();
        log_limited!(
            self.log_limit, "limit", &server, warn, %server, maxSessionTimeout = ?granted, session_timeout = ?timeout,
            "a server is not used, because it allows only shorter sessions than the session_timeout"
        );
        Err(NodeError::Server(format!(
            "the server allows a session timeout of at most {granted:?}, and not the session_timeout of {timeout:?}: \
             add session_timeout={}ms to the URL, or increase maxSessionTimeout of the server",
            granted.as_millis()
        ).into()))
    }

    /// Logs in, and checks that the session can have locks, and that the chroot exists.
    async fn prepare(
        &mut self,
        stream: &mut ServerStream,
        login: Option<&str>,
        is_new: bool,
    ) -> Result<(), NodeError> {
        let new = login.filter(|login| !self.logins.iter().any(|known| known == login));
        for login in self.logins.iter().map(String::as_str).chain(new) {
            if let Some(code) = ask(stream, LOGIN_XID, authenticate(login)).await? {
                let text = format!("the server refuses the login: {code}");
                return Err(NodeError::Credentials(text.into()));
            }
        }
        self.logins.extend(new.map(str::to_owned));
        let chroot = &self.url.chroot;
        if is_new {
            // The server refuses it by the kind of the session, or makes the session global, before it looks for the parent.
            let path = format!("{chroot}/{NOWHERE}/{NOWHERE}");
            let kind = CreateKind::EphemeralSequential;
            let created = ask(stream, FIRST_XID, create(&path, &[], kind, Acl::Open)).await?;
            if let Some(code @ ErrorCode::EphemeralOnLocalSession) = created {
                self.session = None;
                return Err(RequestError::Code(code).into());
            }
        }
        if chroot.is_empty() {
            return Ok(());
        }
        match ask(stream, FIRST_XID, exists(chroot)).await? {
            None => Ok(()),
            Some(ErrorCode::NoNode) => Err(NodeError::NotSetUp(
                format!(
                    "the chroot {chroot} does not exist: create it, with `create {chroot}` in zkCli.sh"
                )
                .into(),
            )),
            Some(code) => Err(RequestError::Code(code).into()),
        }
    }

    /// Connects to an address of a host.
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "the host is for TLS"))]
    async fn dial(
        &self,
        host: &str,
        address: impl ToSocketAddrs,
    ) -> Result<(ServerStream, SocketAddr), NodeError> {
        let socket = TcpStream::connect(address).await.map_err(not_connected)?;
        socket.set_nodelay(true).map_err(not_connected)?;
        let address = socket.peer_addr().map_err(not_connected)?;
        let stream = match &self.url.tls {
            #[cfg(feature = "tls")]
            Some(options) => ServerStream::new(encrypt(socket, host, options).await?),
            _ => ServerStream::new(socket),
        };
        Ok((stream, address))
    }
}

/// The answer of a server that has accepted a session.
struct Accepted {
    timeout: Duration,
    id: i64,
    password: Vec<u8>,
}

/// Asks for a session, or for the continuation of a former one. Returns `None` if the former session has expired.
async fn handshake(
    stream: &mut ServerStream,
    timeout: Duration,
    last_zxid: i64,
    session: Option<&SessionKey>,
) -> Result<Option<Accepted>, NodeError> {
    let (id, password) = session.map_or((0, &[0; 16][..]), |key| (key.id, &key.password));
    let mut request = JuteWriter::default();
    let is_read_only = false;
    request.int(PROTOCOL_VERSION).long(last_zxid);
    request.int(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
    request.long(id).bytes(password).boolean(is_read_only);
    let frame = stream.exchange(&[&request.0]).await.map_err(|error| {
        let text = format!(
            "no answer to the handshake: {error}; a port with TLS needs zookeepers://, and a server closes connections beyond its maxClientCnxns"
        );
        NodeError::NotConnected(text.into())
    })?;
    let mut reader = JuteReader(&frame);
    let mut read = || {
        let _version = reader.int()?;
        let timeout = u64::try_from(reader.int()?).ok()?;
        Some((timeout, reader.long()?, reader.bytes()?.to_vec()))
    };
    let (timeout, id, password) = read().ok_or(NodeError::UnexpectedReply)?;
    let timeout = Duration::from_millis(timeout);
    let is_alive = !timeout.is_zero() && id != 0;
    Ok(is_alive.then_some(Accepted { timeout, id, password }))
}

/// Sends a request, and returns the error in its reply. A new connection has no watch, and so no events.
async fn ask<T>(
    stream: &mut ServerStream,
    xid: i32,
    request: ZookeeperRequest<T>,
) -> Result<Option<ErrorCode>, NodeError> {
    let frame = stream.exchange(&[&xid.to_be_bytes(), &request.content]).await;
    let frame = frame.map_err(not_connected)?;
    match ReplyHeader::decode(&mut JuteReader(&frame)) {
        Some(header) if header.xid == xid => Ok(header.error),
        _ => Err(NodeError::UnexpectedReply),
    }
}

/// Gets the login as `user:password`. The error explains why there is none.
async fn login(provider: &Provider, limit: Duration) -> Result<String, NodeError> {
    let missing = |reason: String| NodeError::Credentials(reason.into());
    let Credentials { username, password, .. } =
        provider.credentials(limit).await.map_err(missing)?;
    let is_user = |user: &str| !user.is_empty() && !user.contains(':');
    match (provider, username) {
        (Provider::File(path), _) => match password.split_once(':') {
            Some((user, _)) if is_user(user) => Ok(password),
            _ => Err(missing(format!("{} must contain user:password", path.display()))),
        },
        (Provider::Function(..), Some(user)) if is_user(&user) => Ok(format!("{user}:{password}")),
        (Provider::Function(..), _) => {
            Err(missing("the provider must return a username, without a colon".into()))
        }
    }
}

fn refused() -> NodeError {
    NodeError::Server("the server refuses a new session".into())
}

#[expect(clippy::needless_pass_by_value, reason = "as an argument of `map_err`")]
fn not_connected(error: io::Error) -> NodeError {
    NodeError::NotConnected(error.to_string().into())
}
