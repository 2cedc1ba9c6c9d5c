//! The state that a node, its operations and its tasks share.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;

use super::link::Event;
use super::map::Map;
use super::pending::PendingSends;
use super::server::connection::Connection;
use super::server::{Observer, ServerSettings};
use super::subscriptions::{RETRY_PAUSE, Subscriptions};
use super::url::RedisUrl;
use crate::node::StatusSender;

/// The state that a node, its operations and its tasks share.
pub(super) struct Shared {
    pub(super) map: Arc<Map>,
    pub(super) pending: PendingSends,
    pub(super) subscriptions: Arc<Subscriptions>,
    weak_self: Weak<Self>,
}

impl Shared {
    pub(super) fn new(
        url: RedisUrl,
        settings: ServerSettings,
        status: StatusSender,
        runtime: &Handle,
    ) -> Arc<Self> {
        Arc::new_cyclic(|weak_self: &Weak<Self>| {
            let observer: Weak<dyn Observer> = Weak::<Self>::clone(weak_self);
            let map = Map::new(url, settings, status, observer, runtime);
            Self {
                pending: PendingSends::new(map.is_cluster()),
                map: Arc::new(map),
                subscriptions: Arc::default(),
                weak_self: Weak::clone(weak_self),
            }
        })
    }

    /// Returns the connection to the owner of a slot.
    pub(super) fn connection(&self, slot: usize) -> Option<Arc<Connection>> {
        self.map.owner_of(slot)?.connection().ok()
    }
}

impl Observer for Shared {
    fn status_changed(&self, is_lost: bool) {
        if is_lost {
            // Another server may own the slots by now.
            self.map.request_refresh();
        }
        self.map.publish_status();
        self.pending.forget_ended();
        self.subscriptions.follow(|slot| self.connection(slot));
    }

    fn received(&self, event: Event) {
        if self.subscriptions.handle(event, &self.map.settings.voter, &self.map.settings.log_limit)
        {
            let shared = Weak::clone(&self.weak_self);
            tokio::spawn(async move {
                tokio::time::sleep(RETRY_PAUSE).await;
                if let Some(shared) = shared.upgrade() {
                    shared.subscriptions.retry(|slot| shared.connection(slot));
                }
            });
        }
    }
}
