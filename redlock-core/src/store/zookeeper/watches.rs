//! The watches of holders: they are notified when the znode of their lock is gone.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::locks::ZookeeperLocks;
use super::requests::RequestError;
use super::znodes::NO_NODE;
use crate::lock::Token;
use crate::node::{Notify, Subscription};

impl ZookeeperLocks {
    /// Watches the znode of a lock until the returned subscription is dropped.
    pub(super) fn watch(self: &Arc<Self>, token: Token, notify: Notify) -> Subscription {
        let locks = Arc::clone(self);
        let watch = async move {
            if locks.is_gone(token).await {
                notify();
            }
        };
        let task = AbortOnDropHandle::new(self.znodes.spawn(watch));
        Subscription::new(move || drop(task))
    }

    /// Waits until the znode of a lock does not exist. Returns false if the server does not say it.
    async fn is_gone(&self, token: Token) -> bool {
        loop {
            // The session outlives its connections, and the watches do not.
            let session = self.znodes.session.connected().await;
            let Some(znode) = self.znode_of(token) else { return true };
            if znode.session != session {
                return true;
            }
            let Some(path) = znode.path else { return false };
            let Ok((watching, gone)) =
                self.znodes.session.link().and_then(|link| link.watch(&path))
            else {
                continue;
            };
            match watching.await {
                // The znode is deleted, or the connection ends. The next watch tells which.
                Ok(()) => gone.await,
                Err(NO_NODE) => return true,
                Err(RequestError::ConnectionBroke(_)) => {}
                Err(_) => return false,
            }
        }
    }
}
