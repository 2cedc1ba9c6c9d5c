//! The requests of the protocol, their replies, and the errors of the server.
//!
//! Paths are those of the server: they begin with the chroot.

use std::fmt;
use std::sync::Arc;

use super::jute::{JuteReader, JuteWriter};
use crate::error::NodeError;

/// A request, and how its reply is decoded.
pub(super) struct Request<T> {
    /// The content of its frame after the `xid`.
    pub(super) content: Vec<u8>,
    pub(super) decode: Decode<T>,
}

/// Decodes a reply without an error. Returns `None` if the bytes are not a reply to this request.
pub(super) type Decode<T> = fn(&mut JuteReader<'_>) -> Option<T>;

impl<T> Request<T> {
    /// Encodes a request with this number (`ZooDefs.OpCode`).
    fn new(
        op: i32,
        decode: Decode<T>,
        encode: impl for<'a> FnOnce(&'a mut JuteWriter) -> &'a mut JuteWriter,
    ) -> Self {
        let mut content = JuteWriter::default();
        encode(content.int(op));
        Self { content: content.into_bytes(), decode }
    }
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

/// The version in a request that applies to any version.
const ANY_VERSION: i32 = -1;

/// The rights to a new node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acl {
    /// Every client has all rights.
    Open,
    /// Every client with this login has all rights (`CREATOR_ALL_ACL`).
    CreatorAll,
}

/// Creates a node that lives as long as the session, and returns its path. The server appends a number to the path.
pub(super) fn create_ephemeral(path: &str, data: &[u8], acl: Acl) -> Request<String> {
    create(1, 3, path, data, acl)
}

/// Creates a node that the server deletes some time after its last child was deleted.
pub(super) fn create_container(path: &str, acl: Acl) -> Request<String> {
    create(19, 4, path, &[], acl)
}

fn create(op: i32, flags: i32, path: &str, data: &[u8], acl: Acl) -> Request<String> {
    const ALL_RIGHTS: i32 = 31;
    let (scheme, id) = match acl {
        Acl::Open => ("world", "anyone"),
        Acl::CreatorAll => ("auth", ""),
    };
    let decode = |reply: &mut JuteReader<'_>| reply.text().map(str::to_owned);
    Request::new(op, decode, |out| {
        out.text(path).bytes(data).int(1).int(ALL_RIGHTS).text(scheme).text(id).int(flags)
    })
}

/// Deletes a node of any version.
pub(super) fn delete(path: &str) -> Request<()> {
    Request::new(2, nothing, |out| out.text(path).int(ANY_VERSION))
}

/// Fails with [`ErrorCode::NoNode`] if the node does not exist.
pub(super) fn exists(path: &str) -> Request<()> {
    Request::new(3, nothing, |out| out.text(path).boolean(false))
}

/// Returns the data of a node.
pub(super) fn get_data(path: &str) -> Request<Vec<u8>> {
    let decode = |reply: &mut JuteReader<'_>| reply.bytes().map(<[u8]>::to_vec);
    Request::new(4, decode, |out| out.text(path).boolean(false))
}

/// Replaces the data of a node, of any version. Returns the number of the transaction (`mzxid`).
pub(super) fn set_data(path: &str, data: &[u8]) -> Request<i64> {
    let decode = |reply: &mut JuteReader<'_>| Some(Stat::decode(reply)?.mzxid);
    Request::new(5, decode, |out| out.text(path).bytes(data).int(ANY_VERSION))
}

/// Waits until the server has executed all that the leader had executed before.
pub(super) fn sync(path: &str) -> Request<()> {
    Request::new(9, nothing, |out| out.text(path))
}

/// The children of a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Children {
    pub(super) names: Vec<String>,
    /// The number of the last transaction that created or deleted a child.
    pub(super) pzxid: i64,
}

/// Lists the children of a node.
pub(super) fn get_children(path: &str) -> Request<Children> {
    let decode = |reply: &mut JuteReader<'_>| {
        Some(Children { names: reply.texts()?, pzxid: Stat::decode(reply)?.pzxid })
    };
    Request::new(12, decode, |out| out.text(path).boolean(false))
}

/// Lists the children of an ephemeral node, which has none, with a watch. So the server reports the end of the node, and not the
/// changes of its data.
pub(super) fn watch_deletion(path: &str) -> Request<()> {
    Request::new(12, nothing, |out| out.text(path).boolean(true))
}

/// The `xid` of [`authenticate`].
pub(super) const AUTHENTICATE_XID: i32 = -4;

/// Logs in by the scheme `digest`. The login is `user:password`.
pub(super) fn authenticate(login: &str) -> Request<()> {
    Request::new(100, nothing, |out| out.int(0).text("digest").text(login))
}

/// Ends the session, and deletes its ephemeral nodes.
pub(super) fn close_session() -> Request<()> {
    Request::new(-11, nothing, |out| out)
}

#[expect(clippy::unnecessary_wraps, reason = "as the other decoders")]
fn nothing(_: &mut JuteReader<'_>) -> Option<()> {
    Some(())
}

/// The fields of a node's `Stat` that the replies need.
struct Stat {
    mzxid: i64,
    pzxid: i64,
}

impl Stat {
    fn decode(reply: &mut JuteReader<'_>) -> Option<Self> {
        let [_czxid, mzxid, _ctime, _mtime] =
            [reply.long()?, reply.long()?, reply.long()?, reply.long()?];
        let _versions = [reply.int()?, reply.int()?, reply.int()?];
        let _ephemeral_owner = reply.long()?;
        let _lengths = [reply.int()?, reply.int()?];
        Some(Self { mzxid, pzxid: reply.long()? })
    }
}

/// An error code of the server (`KeeperException.Code`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorCode {
    NoNode,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NotEmpty,
    SessionExpired,
    AuthFailed,
    SessionMoved,
    Unimplemented,
    Other(i32),
}

impl ErrorCode {
    pub(super) fn new(code: i32) -> Self {
        match code {
            -6 => Self::Unimplemented,
            -101 => Self::NoNode,
            -102 => Self::NoAuth,
            -108 => Self::NoChildrenForEphemerals,
            -110 => Self::NodeExists,
            -111 => Self::NotEmpty,
            -112 => Self::SessionExpired,
            -115 => Self::AuthFailed,
            -118 => Self::SessionMoved,
            code => Self::Other(code),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNode => "the node does not exist",
            Self::NoAuth => "the ACL of the node does not permit it",
            Self::NoChildrenForEphemerals => "the parent is an ephemeral node",
            Self::NodeExists => "the node exists already",
            Self::NotEmpty => "the node has children",
            Self::SessionExpired => "the session has expired",
            Self::AuthFailed => "the server refuses the login",
            Self::SessionMoved => "the session has moved to another server",
            Self::Unimplemented => {
                "the server does not know the operation; ZooKeeper 3.5.3 or later is needed"
            }
            Self::Other(code) => return write!(f, "error {code} of the server"),
        })
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
