//! The task of a member that shows signs of life, and looks for those of the home.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::Runtimes;
use super::member::Member;

/// How often a steward shows a sign of life.
pub(super) const BEAT: Duration = Duration::from_millis(50);
/// A home without a sign of life for this time is left.
pub(super) const LATE: Duration = Duration::from_millis(250);
/// How many signs of life a steward has to give in this time. In a process that was held up as a whole,
/// no steward gives that many before the home gives one.
pub(super) const BEATS: u32 = 5;

/// A steward's view of the home.
#[derive(Default)]
pub(super) struct Watch {
    /// How many signs of life the home had shown when its steward looked last.
    signs: u64,
    /// How often the steward has looked since the last of them.
    looks: u32,
}

impl Watch {
    /// Looks at the home. Returns whether it stands still.
    pub(super) fn stands_still(&mut self, home: &Member) -> bool {
        let life = home.life.lock();
        if life.signs != self.signs {
            *self = Self { signs: life.signs, looks: 0 };
        }
        self.looks = self.looks.saturating_add(1);
        self.looks > BEATS && life.last_sign.elapsed() > LATE
    }
}

/// Notes when the runtime has dropped its steward.
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

/// The steward of a member.
pub(super) fn attend(
    runtimes: Weak<Runtimes>,
    member: Arc<Member>,
) -> impl Future<Output = ()> + Send {
    let news = runtimes.upgrade().map(|runtimes| Arc::clone(&runtimes.news)).unwrap_or_default();
    // Outside of the task, which a runtime that has ended drops without a poll.
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
