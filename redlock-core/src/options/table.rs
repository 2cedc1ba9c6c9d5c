//! The table of the options, from which macros make the fields, the setters and the configuration of the options.

/// Passes the rows of the table to a macro: `lock_options!([path::to::macro] { tokens before the rows })`. A row is the
/// documentation of the setter, the name and the type of an option.
#[doc(hidden)]
#[macro_export]
macro_rules! lock_options {
    ([$($callback:tt)*] { $($before:tt)* }) => { $($callback)*! { $($before)*
        /// Sets the lease. The servers free the lock by themselves after this time, so that a crashed holder does not
        /// block the lock for ever.
        ///
        /// From 10 ms to 7 days. Servers measure leases in whole milliseconds, so a fraction of a millisecond is
        /// rounded up. The lease is not renewed, unless [`renew(true)`](method@Self::renew) is set too. Choose a lease that
        /// is longer than the work takes, or renew it. The end of the lease does not stop the work, but
        /// another caller can then get the lock. Defaults to the manager's
        /// [`expire`](crate::LockManagerBuilder::expire), 30 s, which is renewed.
        expire: ::core::time::Duration,
        /// Sets the longest time for which a caller waits while another holder has the lock.
        ///
        /// At most 7 days. Zero makes one attempt. An outage of the nodes may end the wait
        /// earlier, see [`outage_grace`](crate::LockManagerBuilder::outage_grace).
        ///
        /// The default depends on the caller. [`LockRequest::acquire`](crate::LockRequest::acquire) waits without a limit.
        /// Everything else makes one attempt: [`run`](crate::LockRequest::run),
        /// [`run_detached`](crate::LockRequest::run_detached), the attribute, the layers and the policies.
        /// [`try_acquire`](crate::LockRequest::try_acquire) ignores this option.
        wait_time: $crate::WaitTime,
        /// Sets whether the lease is renewed while the lock is held: after every third of the lease it is extended to
        /// its full length.
        ///
        /// Renewal ends with the guard. If it fails until the lease runs out, the lock is lost, see
        /// [`LockHandle::lost`](crate::LockHandle::lost). Defaults to `true` if no [`expire`](method@Self::expire) is
        /// set, otherwise to `false`.
        renew: bool,
        /// Sets the longest time, counted from the acquisition, for which the lease is renewed. After that the lease
        /// runs out, so that hanging work does not hold its lock for ever.
        ///
        /// Longer than zero. Requires [`renew`](method@Self::renew). Defaults to no limit.
        max_hold: ::core::time::Duration,
        /// Sets the shortest time, counted from the acquisition, for which the lock stays on the nodes, even if its
        /// holder releases it earlier. For work that must not be repeated sooner, on any machine.
        ///
        /// At most the lease. If [`reentrant`](method@Self::reentrant) requests join a lock, the latest end counts. The
        /// lock of a crashed holder still runs out after its lease. Defaults to zero.
        min_hold: ::core::time::Duration,
        /// Sets whether the lock stays on the nodes until its lease runs out, however the guard ends: at most one
        /// holder per key and lease.
        ///
        /// A release sends nothing and succeeds. A request with `keep` never takes over a lock with less than its whole
        /// lease. If [`reentrant`](method@Self::reentrant) requests join a lock, `keep` in one of them is enough. Cannot
        /// be combined with [`min_hold`](method@Self::min_hold). Defaults to `false`.
        keep: bool,
        /// Sets whether the request joins a lock that the same [scope](crate::scope()) holds already, instead of failing
        /// with [`LockError::AlreadyHeld`](crate::LockError::AlreadyHeld).
        ///
        /// The lock is released with the last of its guards. Joining it sends nothing and keeps the lease, unless the
        /// lease is too short for [`min_hold`](method@Self::min_hold) or [`keep`](method@Self::keep): then the lease is
        /// extended. A [`fenced`](method@Self::fenced) request joins only a fenced lock. A
        /// [`shared`](method@Self::shared) request also joins the exclusive lock of its scope, and an exclusive request
        /// never joins a shared lock. Defaults to `false`.
        reentrant: bool,
        /// Sets whether the lock is shared: any number of callers may hold it at the same time, but no
        /// [exclusive](crate::node::Mode) holder. The callers that read a resource share its lock, and the callers that
        /// write to it lock it exclusively.
        ///
        /// A reader with a lease of at least 200 ms joins the lock of another reader of its manager, if the acquisition of that
        /// lock began less than 20 ms ago. It does not ask the nodes then, and has up to 20 ms and a round trip less validity.
        ///
        /// [Readers and writers] of the guide has the rules. Cannot be combined with
        /// [`permits`](method@Self::permits), with [`fenced`](method@Self::fenced), or with the dialect
        /// [`Redisson`](crate::Dialect::Redisson). Defaults to `false`.
        ///
        /// [Readers and writers]: https://docs.rs/redlock-axum/latest/redlock_axum/guide/modes/index.html#readers-and-writers
        shared: bool,
        /// Sets the highest number of callers that may hold the lock at the same time: from 1 to 1000.
        ///
        /// Each caller compares the number of present holders with its own `permits`. [Permits] of the guide
        /// has the rules. Requires a manager with a single node. Cannot be combined with
        /// [`shared`](method@Self::shared), with [`fenced`](method@Self::fenced), or with the dialect
        /// [`Redisson`](crate::Dialect::Redisson). Defaults to an exclusive lock.
        ///
        /// [Permits]: https://docs.rs/redlock-axum/latest/redlock_axum/guide/modes/index.html#permits
        permits: u32,
        /// Sets whether the caller waits in a fair queue: in order of arrival between processes.
        ///
        /// A fair caller that does not [wait](method@Self::wait_time) is refused if a fair caller of any process
        /// waits. A caller that is not fair may overtake the queue. All nodes must have [fair
        /// queues](crate::node::FairOrder). [`LockRequest::acquire`](crate::LockRequest::acquire) describes the
        /// order. Defaults to `false`: an order in each process only.
        fair: bool,
        /// Sets the dialect: how the lock is written on the nodes. Services in other languages can use the same lock in
        /// their dialect. Defaults to the manager's [`dialect`](crate::LockManagerBuilder::dialect).
        dialect: $crate::Dialect,
        /// Sets whether each holder gets a [`FencingToken`](crate::FencingToken): a number that is greater than those
        /// of all earlier holders of each of its keys, so that the resource can refuse a late holder. The page of
        /// `FencingToken` states what the number guarantees.
        ///
        /// On several nodes a fenced lock costs one more round trip. The fencing counter is in the same slot as the
        /// lock, so that fenced locks work on servers in cluster mode too. If the manager's
        /// [`prefix`](crate::LockManagerBuilder::prefix) has a `{` that begins no hash tag, no name for the counter is in
        /// that slot, and the acquisition fails on Redis nodes with
        /// [`LockError::InvalidOption`](crate::LockError::InvalidOption). It fails in the same way if a node cannot
        /// number holders. A reentrant request cannot join a lock without a number: it fails with
        /// [`LockError::AlreadyHeld`](crate::LockError::AlreadyHeld). The servers' users need the rights to `TIME`, and
        /// to `GET` and `SET` the keys `redlock:fencing*` behind the manager's prefix. Cannot be combined with
        /// [`shared`](method@Self::shared) or [`permits`](method@Self::permits). Defaults to `false`.
        fenced: bool,
        /// Sets what happens to the work under the lock if the lock is lost while the work runs. A guard does not stop
        /// work, so [`LockRequest::acquire`](crate::LockRequest::acquire) ignores this option. Defaults to
        /// [`OnLost::KeepGoing`](crate::OnLost::KeepGoing).
        on_lost: $crate::OnLost,
    } };
}

/// Defines one setter for each option: `self => place; end`, where `place` is an expression for the
/// [`LockOptions`](crate::LockOptions) in `self`, and a setter returns `end`. `self => place; const` defines `const`
/// setters that return `self`.
#[doc(hidden)]
#[macro_export]
macro_rules! lock_option_setters {
    ($self:ident => $options:expr; const) => {
        $crate::lock_options!([$crate::lock_option_setters] { @rows [$self, $options, $self, const] });
    };
    ($self:ident => $options:expr; $end:expr) => {
        $crate::lock_options!([$crate::lock_option_setters] { @rows [$self, $options, $end,] });
    };
    (@rows $context:tt $($(#[$doc:meta])* $name:ident: $ty:ty,)*) => {
        $($crate::lock_option_setters!(@row $context $(#[$doc])* $name: $ty);)*
    };
    (@row [$self:ident, $options:expr, $end:expr, $($const:ident)?] $(#[$doc:meta])* wait_time: $ty:ty) => {
        $(#[$doc])*
        pub $($const)? fn wait_time(mut $self, wait_time: ::core::time::Duration) -> Self {
            $options.wait_time = ::core::option::Option::Some($crate::WaitTime::UpTo(wait_time));
            $end
        }

        /// Lets the caller wait for ever: while another holder has the lock, and while no quorum of nodes answers,
        /// also if that is so when the wait begins, or because the nodes refuse the password. The log has a line when the
        /// wait meets an outage, and when the outage is over. The caller, or its client, may give up long before the lock
        /// is free.
        ///
        /// The wait ends without the lock by a [drain](crate::LockManager::drain), a
        /// [shutdown](crate::LockManager::shutdown), the end of the [runtime](crate::LockManager#runtime), a
        /// [foreign key](crate::LockError::ForeignKey), a full [queue](crate::LockError::TooManyWaiters), a lock of the
        /// [same scope](crate::LockError::AlreadyHeld), and by mistakes that
        /// [`connect`](crate::LockManagerBuilder::connect) refuses too: a right that the user of the nodes lacks
        /// ([`NodeError::NotPermitted`](crate::NodeError::NotPermitted)), or the same server twice.
        pub $($const)? fn wait_forever(mut $self) -> Self {
            $options.wait_time = ::core::option::Option::Some($crate::WaitTime::Forever);
            $end
        }
    };
    (@row [$self:ident, $options:expr, $end:expr, $($const:ident)?] $(#[$doc:meta])* $name:ident: $ty:ty) => {
        $(#[$doc])*
        pub $($const)? fn $name(mut $self, $name: $ty) -> Self {
            $options.$name = ::core::option::Option::Some($name);
            $end
        }
    };
}
