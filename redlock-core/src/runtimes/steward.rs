//! The task of a member that emits heartbeats and watches the heartbeats of the home.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::Runtimes;
use super::member::Member;

/// The interval between two heartbeats of a steward.
pub(super) const BEAT: Duration = Duration::from_millis(50);
/// The work leaves a home that has emitted no heartbeat for this time.
pub(super) const LATE: Duration = Duration::from_millis(250);
/// How many heartbeats a steward has to emit itself while the home emits none. In a process that was held up
/// as a whole, no steward emits this many before the home emits one.
pub(super) const BEATS: u32 = 5;

/// A steward's view of the home.
#[derive(Default)]
pub(super) struct Watch {
    /// The number of the home's heartbeats at the steward's last check.
    signs: u64,
    /// The number of checks since the home's last heartbeat.
    looks: u32,
}

impl Watch {
    /// Checks the home. Returns whether the home has stalled.
    pub(super) fn stands_still(&mut self, home: &Member) -> bool {
        let life = home.life.lock();
        if life.signs != self.signs {
            *self = Self { signs: life.signs, looks: 0 };
        }
        self.looks = self.looks.saturating_add(1);
        self.looks > BEATS && life.last_sign.elapsed() > LATE
    }
}

/// Records the end of the runtime when the runtime drops its steward.
struct Presence {
    member: Arc<Member>,
    news: Arc<Notify>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.member.end();
        self.news.notify_waiters();
    }
}

/// Returns the steward task of a member.
pub(super) fn attend(
    runtimes: Weak<Runtimes>,
    member: Arc<Member>,
) -> impl Future<Output = ()> + Send {
    let news = runtimes.upgrade().map(|runtimes| Arc::clone(&runtimes.news)).unwrap_or_default();
    // Created outside of the task: a runtime that has already ended drops the task without polling it.
    let presence = Presence { member: Arc::clone(&member), news: Arc::clone(&news) };
    async move {
        let _presence = presence;
        let mut watch = Watch::default();
        loop {
            let heard = news.notified();
            tokio::pin!(heard);
            heard.as_mut().enable();
            member.beat();
            let Some(members) = runtimes.upgrade().map(|runtimes| {
                runtimes.move_if(|home| home.is_gone() || watch.stands_still(home), &member);
                runtimes.members()
            }) else {
                return;
            };
            if members > 1 {
                let _ = tokio::time::timeout(BEAT, heard).await;
            } else {
                heard.await;
            }
        }
    }
}
