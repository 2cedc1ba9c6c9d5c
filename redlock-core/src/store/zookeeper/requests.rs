//! The requests of the protocol, their replies, and the errors of the server.
//!
//! Paths are those of the server: they begin with the chroot.

use std::fmt;
use std::sync::Arc;

use super::jute::{JuteReader, JuteWriter};
use crate::error::NodeError;

/// The version in a request that applies to any version.
pub(super) const ANY_VERSION: i32 = -1;

/// A request with replies of this type.
pub(super) struct ZookeeperRequest<T> {
    /// The content of the frame after the `xid`: the number of the operation (`ZooDefs.OpCode`), and the body.
    pub(super) content: Vec<u8>,
    /// Decodes a reply without an error. Returns `None` if the bytes are not a reply to this request.
    pub(super) decode: fn(&mut JuteReader<'_>) -> Option<T>,
}

/// The kind of a new node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CreateKind {
    /// Lives as long as the session. The server appends a number to the path.
    EphemeralSequential,
    /// The server deletes it some time after its last child was deleted.
    Container,
}

/// The rights to a new node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acl {
    /// Every client has all rights.
    Open,
    /// Every client with this login has all rights (`CREATOR_ALL_ACL`).
    CreatorAll,
}

/// The children of a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Children {
    pub(super) names: Vec<String>,
    /// The number of the last transaction that created or deleted a child.
    pub(super) pzxid: i64,
}

/// Creates a node, and returns its path.
pub(super) fn create(
    path: &str,
    data: &[u8],
    kind: CreateKind,
    acl: Acl,
) -> ZookeeperRequest<String> {
    let (op, flags) = match kind {
        CreateKind::EphemeralSequential => (1, 3),
        CreateKind::Container => (19, 4),
    };
    let (scheme, id) = match acl {
        Acl::Open => ("world", "anyone"),
        Acl::CreatorAll => ("auth", ""),
    };
    let all_rights = 31;
    let mut content = path_request(op, path);
    content.bytes(data).int(1).int(all_rights).text(scheme).text(id).int(flags);
    ZookeeperRequest { content: content.0, decode: |reply| reply.text().map(str::to_owned) }
}

/// Deletes a node of any version.
pub(super) fn delete(path: &str) -> ZookeeperRequest<()> {
    delete_version(path, ANY_VERSION)
}

/// Deletes a node whose data have this version. Otherwise the error is [`ErrorCode::BadVersion`].
pub(super) fn delete_version(path: &str, version: i32) -> ZookeeperRequest<()> {
    let mut content = path_request(2, path);
    content.int(version);
    without_value(content)
}

/// Succeeds if the node exists. Otherwise the error is [`ErrorCode::NoNode`].
pub(super) fn exists(path: &str) -> ZookeeperRequest<()> {
    without_value(read_request(3, path, false))
}

/// Returns the data of a node, and their version.
pub(super) fn get_data(path: &str) -> ZookeeperRequest<(Vec<u8>, i32)> {
    let decode =
        |reply: &mut JuteReader<'_>| Some((reply.bytes()?.to_vec(), decode_stat(reply)?.version));
    ZookeeperRequest { content: read_request(4, path, false).0, decode }
}

/// Replaces the data of a node, of any version. Returns the number of the transaction (`mzxid`).
pub(super) fn set_data(path: &str, data: &[u8]) -> ZookeeperRequest<i64> {
    let mut content = path_request(5, path);
    content.bytes(data).int(ANY_VERSION);
    ZookeeperRequest { content: content.0, decode: |reply| Some(decode_stat(reply)?.mzxid) }
}

/// Waits until the server has executed everything that the leader had executed before.
pub(super) fn sync(path: &str) -> ZookeeperRequest<()> {
    without_value(path_request(9, path))
}

/// Lists the children of a node.
pub(super) fn get_children(path: &str) -> ZookeeperRequest<Children> {
    let decode = |reply: &mut JuteReader<'_>| {
        Some(Children { names: reply.texts()?, pzxid: decode_stat(reply)?.pzxid })
    };
    ZookeeperRequest { content: read_request(12, path, false).0, decode }
}

/// Lists the children of an ephemeral node, which has none, with a watch. So the server reports the end of the node, and not the
/// changes of its data.
pub(super) fn watch_deletion(path: &str) -> ZookeeperRequest<()> {
    without_value(read_request(12, path, true))
}

/// Logs in by the scheme `digest`. The login is `user:password`.
pub(super) fn authenticate(login: &str) -> ZookeeperRequest<()> {
    let mut content = JuteWriter::default();
    content.int(100).int(0).text("digest").text(login);
    without_value(content)
}

/// Ends the session, and deletes its ephemeral nodes.
pub(super) fn close_session() -> ZookeeperRequest<()> {
    let mut content = JuteWriter::default();
    content.int(-11);
    without_value(content)
}

fn path_request(op: i32, path: &str) -> JuteWriter {
    let mut content = JuteWriter::default();
    content.int(op).text(path);
    content
}

fn read_request(op: i32, path: &str, watch: bool) -> JuteWriter {
    let mut content = path_request(op, path);
    content.boolean(watch);
    content
}

fn without_value(content: JuteWriter) -> ZookeeperRequest<()> {
    ZookeeperRequest { content: content.0, decode: |_| Some(()) }
}

/// Some fields of a node's `Stat`.
struct Stat {
    /// The number of the last transaction that has written the data.
    mzxid: i64,
    /// How often the data were written.
    version: i32,
    /// The number of the last transaction that created or deleted a child.
    pzxid: i64,
}

fn decode_stat(reply: &mut JuteReader<'_>) -> Option<Stat> {
    let [_czxid, mzxid] = [reply.long()?, reply.long()?];
    let [_ctime, _mtime] = [reply.long()?, reply.long()?];
    let version = reply.int()?;
    // Two versions, the owner, the length of the data, and the number of children.
    reply.skip(24)?;
    Some(Stat { mzxid, version, pzxid: reply.long()? })
}

/// The header of a reply.
pub(super) struct ReplyHeader {
    /// The number of the request.
    pub(super) xid: i32,
    /// The number of the last transaction that the server has executed.
    pub(super) zxid: i64,
    pub(super) error: Option<ErrorCode>,
}

impl ReplyHeader {
    pub(super) fn decode(reply: &mut JuteReader<'_>) -> Option<Self> {
        let (xid, zxid, code) = (reply.int()?, reply.long()?, reply.int()?);
        Some(Self { xid, zxid, error: (code != 0).then(|| ErrorCode::new(code)) })
    }
}

/// An error code of the server (`KeeperException.Code`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorCode {
    NoNode,
    NoAuth,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NotEmpty,
    SessionExpired,
    SessionMoved,
    EphemeralOnLocalSession,
    QuotaExceeded,
    Unimplemented,
    Other(i32),
}

impl ErrorCode {
    pub(super) fn new(code: i32) -> Self {
        match code {
            -6 => Self::Unimplemented,
            -101 => Self::NoNode,
            -102 => Self::NoAuth,
            -103 => Self::BadVersion,
            -108 => Self::NoChildrenForEphemerals,
            -110 => Self::NodeExists,
            -111 => Self::NotEmpty,
            -112 => Self::SessionExpired,
            -118 => Self::SessionMoved,
            -120 => Self::EphemeralOnLocalSession,
            -125 => Self::QuotaExceeded,
            code => Self::Other(code),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAuth => f.write_str("NoAuth: the ACL of the node permits it to other logins"),
            Self::NoNode => f.write_str("NoNode: the chroot of the URL does not exist"),
            Self::EphemeralOnLocalSession => f.write_str(
                "EphemeralOnLocalSession: a local session cannot have locks; set localSessionsUpgradingEnabled=true or \
                 localSessionsEnabled=false on the servers",
            ),
            Self::QuotaExceeded => f.write_str(
                "QuotaExceeded: a quota forbids another znode; raise it (`listquota` and `setquota` in zkCli.sh), or give the \
                 locks a chroot without a quota",
            ),
            Self::Unimplemented => f.write_str("Unimplemented: ZooKeeper 3.5.3 or later is needed"),
            Self::Other(code) => write!(f, "error {code} of the server"),
            name => write!(f, "{name:?}"),
        }
    }
}

/// The reason why a request has no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestError {
    /// The server replied with an error.
    Code(ErrorCode),
    /// The connection broke before the reply. It is unknown whether the server executed the request.
    ConnectionBroke(Arc<str>),
    /// The bytes of the reply are not a reply to this request.
    Unexpected,
}

impl From<RequestError> for NodeError {
    fn from(error: RequestError) -> Self {
        use ErrorCode::{NoAuth, Other, SessionExpired, SessionMoved};
        match error {
            RequestError::Code(code) => {
                let text = code.to_string().into();
                match code {
                    NoAuth => Self::NotPermitted(text),
                    // Codes above -100 are failures of the system, such as a lost connection or a time-out.
                    SessionExpired | SessionMoved | Other(-99..) => Self::ConnectionBroke(text),
                    _ => Self::Server(text),
                }
            }
            RequestError::ConnectionBroke(reason) => Self::ConnectionBroke(reason),
            RequestError::Unexpected => Self::UnexpectedReply,
        }
    }
}
