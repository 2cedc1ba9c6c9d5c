//! The subscribers of channels without a server.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::store::redis::played_node::{node, settings};

/// An abandoned attempt leaves nothing behind. While a node is down, no task cleans up after
/// its waiters.
#[test]
fn waiters_that_give_up_while_the_node_is_down_leave_nothing_behind() {
    let channels = &node("redis://localhost").prepare(&settings(None)).subscriptions;
    let listen = |name: &str| channels.subscribe(&name.into(), 0, false, Arc::new(|| {}));
    let stays = listen("lock:0");
    for number in 0..1000 {
        drop(listen(&format!("lock:{number}")));
    }
    let names = || channels.channels.lock().keys().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(), ["lock:0"]);
    drop(stays);
    assert!(names().is_empty());
}

/// A waiter that is notified for nothing asks all nodes.
#[test]
fn a_release_for_one_kind_of_waiters_notifies_only_that_kind() {
    let channels = &node("redis://localhost").prepare(&settings(None)).subscriptions;
    let notified = Arc::new(Mutex::new(Vec::new()));
    let listen = |is_shared| {
        let notified = Arc::clone(&notified);
        let notify = Arc::new(move || notified.lock().push(is_shared));
        channels.subscribe(&"lock".into(), 0, is_shared, notify)
    };
    let (_reader, _writer) = (listen(true), listen(false));
    for (message, expected) in
        [(FOR_READERS, &[true][..]), (FOR_WRITERS, &[false]), (b"1", &[true, false])]
    {
        channels.notify_subscribers("lock", message);
        assert_eq!(std::mem::take(&mut *notified.lock()), expected, "{message:?}");
    }
}

/// A release by a holder without a label deletes the key, and is published.
#[test]
fn a_change_of_the_key_and_its_release_notify_once() {
    let channels = &node("redis://localhost").prepare(&settings(None)).subscriptions;
    let notified = Arc::new(AtomicUsize::new(0));
    let on_notified = Arc::clone(&notified);
    let notify = Arc::new(move || {
        on_notified.fetch_add(1, Ordering::SeqCst);
    });
    let _waiter = channels.subscribe(&"lock".into(), 0, false, notify);
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let change = || Event::Push(PushKind::Invalidate, vec![Value::Array(vec![text("lock")])]);
    let release = || Event::Push(PushKind::Message, vec![text("lock"), text("0")]);
    let flush = || Event::Push(PushKind::Invalidate, vec![Value::Nil]);
    for (is_foreign, events, expected) in [
        (false, vec![change(), flush()], 0),
        (true, vec![change()], 1),
        (true, vec![flush()], 1),
        (true, vec![change(), change(), flush()], 1),
        (true, vec![change(), release()], 1),
        (true, vec![release()], 1),
    ] {
        channels.channels.lock().get_mut("lock").unwrap().is_foreign = is_foreign;
        let what = format!("{is_foreign} {events:?}");
        for event in events {
            channels.handle(event);
        }
        channels.handle(Event::AllRead);
        assert_eq!(notified.swap(0, Ordering::SeqCst), expected, "{what}");
    }
}
