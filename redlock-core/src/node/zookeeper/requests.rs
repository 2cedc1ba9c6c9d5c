//! The requests of the protocol, their replies, and the errors of the server.
//!
//! Paths are those of the server: they begin with the chroot.

use std::fmt;
use std::sync::Arc;

use super::jute::{JuteReader, JuteWriter};
use crate::error::NodeError;

/// A request. Its encoding follows the header of the frame.
pub(super) trait ZookeeperRequest {
    type Reply;

    /// Returns the number of the operation (`ZooDefs.OpCode`).
    fn op(&self) -> i32;
    fn encode(&self, out: &mut JuteWriter);
    /// Decodes a reply without an error. Returns `None` if the bytes are not a reply to this request.
    fn decode(reply: &mut JuteReader<'_>) -> Option<Self::Reply>;
}

/// Returns the content of a request's frame after the `xid`.
pub(super) fn encode<R: ZookeeperRequest>(request: &R) -> Vec<u8> {
    let mut out = JuteWriter::default();
    out.int(request.op());
    request.encode(&mut out);
    out.into_bytes()
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

/// Creates a node, and returns its path.
pub(super) struct Create {
    pub(super) path: String,
    pub(super) data: Vec<u8>,
    pub(super) kind: CreateKind,
    pub(super) acl: Acl,
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

impl ZookeeperRequest for Create {
    type Reply = String;

    fn op(&self) -> i32 {
        match self.kind {
            CreateKind::EphemeralSequential => 1,
            CreateKind::Container => 19,
        }
    }

    fn encode(&self, out: &mut JuteWriter) {
        let all_rights = 31;
        let (scheme, id) = match self.acl {
            Acl::Open => ("world", "anyone"),
            Acl::CreatorAll => ("auth", ""),
        };
        let flags = match self.kind {
            CreateKind::EphemeralSequential => 3,
            CreateKind::Container => 4,
        };
        out.text(&self.path).bytes(&self.data);
        out.int(1).int(all_rights).text(scheme).text(id).int(flags);
    }

    fn decode(reply: &mut JuteReader<'_>) -> Option<String> {
        reply.text().map(str::to_owned)
    }
}

/// Deletes a node of any version.
pub(super) struct Delete {
    pub(super) path: String,
}

impl ZookeeperRequest for Delete {
    type Reply = ();

    fn op(&self) -> i32 {
        2
    }

    fn encode(&self, out: &mut JuteWriter) {
        out.text(&self.path).int(ANY_VERSION);
    }

    fn decode(_: &mut JuteReader<'_>) -> Option<()> {
        Some(())
    }
}

/// Lists the children of a node.
pub(super) struct GetChildren {
    pub(super) path: String,
}

/// The children of a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Children {
    pub(super) names: Vec<String>,
    /// The number of the last transaction that created or deleted a child.
    pub(super) pzxid: i64,
}

impl ZookeeperRequest for GetChildren {
    type Reply = Children;

    fn op(&self) -> i32 {
        12
    }

    fn encode(&self, out: &mut JuteWriter) {
        out.text(&self.path).boolean(false);
    }

    fn decode(reply: &mut JuteReader<'_>) -> Option<Children> {
        Some(Children { names: reply.texts()?, pzxid: Stat::decode(reply)?.pzxid })
    }
}

/// Lists the children of an ephemeral node, which has none, with a watch. So the server reports the end of the node, and not the
/// changes of its data.
pub(super) struct WatchDeletion {
    pub(super) path: String,
}

impl ZookeeperRequest for WatchDeletion {
    type Reply = ();

    fn op(&self) -> i32 {
        12
    }

    fn encode(&self, out: &mut JuteWriter) {
        out.text(&self.path).boolean(true);
    }

    fn decode(_: &mut JuteReader<'_>) -> Option<()> {
        Some(())
    }
}

/// Returns the data of a node.
pub(super) struct GetData {
    pub(super) path: String,
}

impl ZookeeperRequest for GetData {
    type Reply = Vec<u8>;

    fn op(&self) -> i32 {
        4
    }

    fn encode(&self, out: &mut JuteWriter) {
        out.text(&self.path).boolean(false);
    }

    fn decode(reply: &mut JuteReader<'_>) -> Option<Vec<u8>> {
        reply.bytes().map(<[u8]>::to_vec)
    }
}

/// Replaces the data of a node, of any version. Returns the number of the transaction (`mzxid`).
pub(super) struct SetData {
    pub(super) path: String,
    pub(super) data: Vec<u8>,
}

impl ZookeeperRequest for SetData {
    type Reply = i64;

    fn op(&self) -> i32 {
        5
    }

    fn encode(&self, out: &mut JuteWriter) {
        out.text(&self.path).bytes(&self.data).int(ANY_VERSION);
    }

    fn decode(reply: &mut JuteReader<'_>) -> Option<i64> {
        Some(Stat::decode(reply)?.mzxid)
    }
}

/// Waits until the server has executed all that the leader had executed before.
pub(super) struct Sync {
    pub(super) path: String,
}

impl ZookeeperRequest for Sync {
    type Reply = ();

    fn op(&self) -> i32 {
        9
    }

    fn encode(&self, out: &mut JuteWriter) {
        out.text(&self.path);
    }

    fn decode(_: &mut JuteReader<'_>) -> Option<()> {
        Some(())
    }
}

/// Succeeds if the node exists. Otherwise the error is [`ErrorCode::NoNode`].
pub(super) struct Exists {
    pub(super) path: String,
}

impl ZookeeperRequest for Exists {
    type Reply = ();

    fn op(&self) -> i32 {
        3
    }

    fn encode(&self, out: &mut JuteWriter) {
        out.text(&self.path).boolean(false);
    }

    fn decode(_: &mut JuteReader<'_>) -> Option<()> {
        Some(())
    }
}

/// Logs in by the scheme `digest`.
pub(super) struct Authenticate {
    /// `user:password`.
    pub(super) login: String,
}

impl Authenticate {
    /// The number of this request.
    pub(super) const XID: i32 = -4;
}

impl ZookeeperRequest for Authenticate {
    type Reply = ();

    fn op(&self) -> i32 {
        100
    }

    fn encode(&self, out: &mut JuteWriter) {
        out.int(0).text("digest").text(&self.login);
    }

    fn decode(_: &mut JuteReader<'_>) -> Option<()> {
        Some(())
    }
}

/// Ends the session, and deletes its ephemeral nodes.
pub(super) struct CloseSession;

impl ZookeeperRequest for CloseSession {
    type Reply = ();

    fn op(&self) -> i32 {
        -11
    }

    fn encode(&self, _: &mut JuteWriter) {}

    fn decode(_: &mut JuteReader<'_>) -> Option<()> {
        Some(())
    }
}

/// The version in a request that applies to any version.
const ANY_VERSION: i32 = -1;

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
