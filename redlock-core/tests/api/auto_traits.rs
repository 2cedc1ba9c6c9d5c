//! Compile-time checks: which types can be sent to another task, and which cannot be copied.

use std::error::Error;
use std::time::Duration;

use redlock_core::{
    ConnectError, HoldError, InvalidOption, KeyError, LockError, LockGuard, LockHandle,
    LockManager, LockManagerBuilder, LockOptions, LockRequest, LossCause, Lost, LostError,
    MemoryNode, NodeError, OnLost, ReleaseError, RunError, TemplateError, Votes, scope,
};

const fn is_error<E: Error + Send + Sync + 'static>() {}
const fn is_shared<T: Send + Sync + 'static>() {}
const fn is_sent<T: Send + Unpin + 'static>() {}

/// Checks a list of types.
macro_rules! all {
    ($check:ident: $($type:ty),+ $(,)?) => {
        const _: () = {
            $($check::<$type>();)+
        };
    };
}

// The error types fit into `anyhow::Error`, `Box<dyn Error + Send + Sync>` and the result of a task.
all!(is_error: ConnectError, HoldError, InvalidOption, KeyError, LockError, LostError, NodeError);
all!(is_error: ReleaseError, RunError, TemplateError);
all!(is_shared: LockGuard, LockHandle, LockManager, LockManagerBuilder, LockOptions);
all!(is_shared: LockRequest, LossCause, MemoryNode, OnLost, Votes);
all!(is_sent: Lost);

/// A handler or a spawned task can await each of these futures.
const _: fn(&LockManager, LockGuard) = |locks, guard| {
    fn is_send<F: Future + Send>(_: F) {}

    is_send(LockManager::builder().connect());
    is_send(locks.lock("a").try_acquire());
    is_send(locks.lock("a").try_acquire());
    is_send(locks.lock("a").run(async |lock| lock.lost().await));
    is_send(scope(locks.lock("a").try_acquire()));
    is_send(locks.wait_available());
    is_send(locks.shutdown());
    is_send(guard.extend(Duration::ZERO));
    is_send(guard.handle().extend(Duration::ZERO));
    is_send(guard.lost());
    is_send(guard.downgrade());
    is_send(guard.release());
};

/// A later option may have a value that is not `Copy`, so that dropping `Copy` would then be a breaking change.
/// `NotCopy` has one implementation for a type that is not `Copy`, and two for any other type: then its marker cannot be
/// inferred, and this does not compile.
const _: fn() = {
    trait NotCopy<Marker> {
        fn is_unambiguous() {}
    }
    struct IsCopy;
    impl<T: ?Sized> NotCopy<()> for T {}
    impl<T: Copy> NotCopy<IsCopy> for T {}

    <LockOptions as NotCopy<_>>::is_unambiguous
};
