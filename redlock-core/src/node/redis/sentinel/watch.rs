//! Watches one sentinel.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{ErrorKind, RedisError};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};

use super::SentinelGroup;
use super::view::MasterView;
use crate::error::NodeError;
use crate::jitter::jitter;
use crate::node::redis::error;
use crate::node::redis::link::open::Endpoint;
use crate::node::redis::link::{Event, Link};

/// The channel on which a sentinel announces a new master.
const CHANNEL: &str = "+switch-master";
/// The time between two questions, if the sentinel announces nothing.
const INTERVAL: Duration = Duration::from_secs(1);
/// The first and the longest pause before a sentinel is asked again that has failed.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Asks a sentinel for the master over and over again, and reports the replies to its group. Never completes.
pub(super) async fn watch(group: &SentinelGroup, index: usize) {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut has_replied = false;
        let report = |view| {
            has_replied = true;
            group.report(index, Ok(view));
        };
        let Err(error) = watch_connection(group, &group.sentinels[index], report).await;
        group.report(index, Err(error));
        if has_replied {
            pause = FIRST_PAUSE;
        }
        sleep(pause.mul_f64(jitter(0.75..1.25))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Connects to a sentinel, and reports its replies until the connection breaks or a question has no reply.
async fn watch_connection(
    group: &SentinelGroup,
    sentinel: &Endpoint,
    mut report: impl FnMut(MasterView),
) -> Result<Infallible, NodeError> {
    // A caller that waits for the connection to the master learns the reason before its own time is over.
    let limit = group.connect_timeout / 2;
    let announced = Arc::new(Notify::new());
    let notify = Arc::clone(&announced);
    let (sender, mut subscribed) = mpsc::unbounded_channel();
    let on_event = move |event| match event {
        Event::Push(..) => notify.notify_one(),
        Event::Subscribed { result, .. } => drop(sender.send(result)),
    };
    let link = sentinel.open(limit, false, on_event).await?;
    subscribe(group, sentinel, &link, &mut subscribed, limit).await?;
    loop {
        let ask = MasterView::ask(&link, &group.service);
        report(in_time(limit, ask, error::node_error).await?);
        // The next question fails if the connection has ended.
        tokio::select! {
            () = sleep(INTERVAL.mul_f64(jitter(0.75..1.25))) => {}
            () = announced.notified() => {}
            _ = link.ended() => {}
        }
    }
}

/// Subscribes to the announcements. Without the permission, the sentinel is only asked periodically.
async fn subscribe(
    group: &SentinelGroup,
    sentinel: &Endpoint,
    link: &Link,
    subscribed: &mut mpsc::UnboundedReceiver<Result<(), RedisError>>,
    limit: Duration,
) -> Result<(), NodeError> {
    link.subscribe(&CHANNEL.into(), 0);
    let closed = || Err((ErrorKind::Io, "the connection has ended").into());
    let subscribe = async { subscribed.recv().await.unwrap_or_else(closed) };
    match in_time(limit, subscribe, error::node_error).await {
        Err(NodeError::NotPermitted(reason)) => {
            if let Some(suppressed) = group.log_limit.admit("announcements", sentinel.name()) {
                tracing::warn!(
                    node = %group.name, sentinel = %sentinel.name(), %reason, suppressed,
                    "a sentinel denies the subscription to +switch-master, so that a failover is noticed up to a second later"
                );
            }
            Ok(())
        }
        reply => reply,
    }
}

async fn in_time<T>(
    limit: Duration,
    reply: impl Future<Output = Result<T, RedisError>>,
    convert: fn(&RedisError) -> NodeError,
) -> Result<T, NodeError> {
    match timeout(limit, reply).await {
        Ok(reply) => reply.map_err(|error| convert(&error)),
        Err(_) => Err(NodeError::NoReply(limit)),
    }
}
