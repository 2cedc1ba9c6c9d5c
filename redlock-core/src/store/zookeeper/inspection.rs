//! A look at a lock, and the removal of its holder.

use std::sync::Arc;

use super::requests::{self, ANY_VERSION, ErrorCode, RequestError};
use super::znodes::{HolderData, Listed, NO_NODE, Znodes};
use crate::error::{ForeignKind, NodeError, Vote};
use crate::lock::{HolderId, LockSpec};
use crate::node::{Found, FoundHolder, Removal};

/// How often the holder is read again, because it has left or was extended meanwhile.
const READS: usize = 8;

/// The first znode in the queue of a lock.
struct FirstZnode {
    path: String,
    /// The version of its data.
    version: i32,
    holder: FoundHolder,
    /// How many znodes are behind it.
    others: usize,
}

impl Znodes {
    /// Returns the holder of a lock, and how many znodes wait behind it.
    pub(super) async fn look(self: Arc<Self>, spec: LockSpec) -> Result<Found, NodeError> {
        match self.first(&self.folder(spec.name())).await {
            Ok(None) => Ok(Found::free()),
            Ok(Some(FirstZnode { holder, others, .. })) => {
                Ok(Found::exclusive(holder).with_waiting_writers(others))
            }
            Err(vote) => foreign(vote).map(Found::foreign),
        }
    }

    /// Removes the holder of a lock, if it is this one. No other znode has its path, and its data have the version with the
    /// compared id, so that neither its successor nor a waiter that has turned its place into the lock is removed.
    pub(super) async fn remove_holder(
        self: Arc<Self>,
        spec: LockSpec,
        holder: HolderId,
    ) -> Result<Removal, NodeError> {
        let folder = self.folder(spec.name());
        for _ in 0..READS {
            let first = match self.first(&folder).await {
                Ok(first) => first.filter(|first| first.holder.id == holder),
                Err(vote) => return foreign(vote).map(Removal::Foreign),
            };
            let Some(FirstZnode { path, version, holder, .. }) = first else {
                return Ok(Removal::NotHeld);
            };
            match self.session.send(requests::delete_version(&path, version))?.await {
                Ok(()) => return Ok(Removal::removed(holder.remaining)),
                Err(NO_NODE) => return Ok(Removal::NotHeld),
                Err(RequestError::Code(ErrorCode::BadVersion)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(unsteady())
    }

    /// Returns the first znode in the queue of a lock.
    async fn first(&self, folder: &str) -> Result<Option<FirstZnode>, Vote> {
        for _ in 0..READS {
            let children = self.list_now(folder).await.map_err(Vote::Failed)?;
            let Some(children) = children else { return Ok(None) };
            let Listed { queue, .. } = Listed::new(folder, children)?;
            let Some(name) = queue.first() else { return Ok(None) };
            let path = format!("{folder}/{name}");
            let data = self.session.send(requests::get_data(&path)).map_err(Vote::Failed)?;
            let (data, version) = match data.await {
                Ok((data, version)) => (HolderData::read(&data), version),
                Err(NO_NODE) => continue,
                // Its id is that of its name, which no other znode has.
                Err(RequestError::Code(ErrorCode::NoAuth)) => (HolderData::default(), ANY_VERSION),
                Err(error) => return Err(Vote::Failed(error.into())),
            };
            let HolderData { lease, holder, label, since } = data;
            let id = holder.unwrap_or_else(|| HolderId::of(name));
            let holder = FoundHolder::new(id, lease).of_owner(label, since);
            return Ok(Some(FirstZnode { path, version, holder, others: queue.others() }));
        }
        Err(Vote::Failed(unsteady()))
    }
}

/// Returns the kind of a value that is no lock, or the failure.
fn foreign(vote: Vote) -> Result<ForeignKind, NodeError> {
    match vote {
        Vote::Foreign { found } => Ok(found),
        Vote::Failed(reason) => Err(reason),
        _ => Err(NodeError::UnexpectedReply),
    }
}

fn unsteady() -> NodeError {
    NodeError::Server("the holder of the lock has changed again and again".into())
}
