//! Compile-time checks: which types can be sent to another task.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use redlock_axum::{
    CommitUnderLock, CommitUnderLockService, FencedLock, HeldLock, LockGuard, LockLayer,
    LockPolicy, LockRejection, LockService, ResponseFuture, SetupError,
};

const fn is_error<E: Error + Send + Sync + 'static>() {}
const fn is_shared<T: Clone + Send + Sync + 'static>() {}
const fn is_sent<T: Send + 'static>() {}

/// Checks a list of types.
macro_rules! all {
    ($check:ident: $($type:ty),+ $(,)?) => {
        const _: () = {
            $($check::<$type>();)+
        };
    };
}

all!(is_error: LockRejection, SetupError);
// axum demands this of extensions, layers and services.
all!(is_shared: FencedLock, HeldLock, LockLayer, LockPolicy, LockRejection);
all!(is_shared: LockService<Router>, CommitUnderLock<LockLayer>, CommitUnderLockService<Router>);
all!(is_sent: ResponseFuture<Router>);

/// A handler can await each of these futures.
const _: fn(&HeldLock, &FencedLock, LockGuard) = |held, fenced, writer| {
    fn is_send<F: Future + Send>(_: F) {}

    is_send(held.extend(Duration::ZERO));
    is_send(held.lost());
    is_send(fenced.extend(Duration::ZERO));
    is_send(fenced.lost());
    is_send(writer.downgrade());
};
