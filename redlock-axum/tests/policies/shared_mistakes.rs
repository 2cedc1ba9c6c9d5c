//! Options of a policy that contradict a shared lock.

use http::Method;
use redlock_axum::{Dialect, LockLayer, LockManager, LockPolicy};

/// Returns the mistake in a policy.
fn check(policy: LockPolicy) -> Result<(), String> {
    let mistake = LockLayer::new(&LockManager::in_memory(), policy).map(drop);
    mistake.map_err(|mistake| mistake.to_string().replacen("lock policy 1 (k): ", "", 1))
}

#[test]
fn options_that_do_not_go_together_with_a_shared_lock_are_mistakes() {
    const READERS: [Method; 2] = [Method::GET, Method::HEAD];

    let policy = || LockPolicy::new("k");
    let message = |policy| check(policy).unwrap_err();
    assert_eq!(message(policy().shared(true).permits(3)), "permits cannot be combined with shared");
    assert_eq!(message(policy().permits(0)), "permits is 0, but must be from 1 to 1000");
    assert_eq!(
        message(policy().shared_on(READERS).shared(true)),
        "shared_on is GET, HEAD, but must be unset beside shared, which shares the lock on every \
         method"
    );
    assert_eq!(
        message(policy().permits(3).shared_on([Method::GET])),
        "shared_on is GET, but must be unset beside permits, which every method needs"
    );
    assert_eq!(
        message(policy().shared_on(READERS).dialect(Dialect::Redisson)),
        "shared_on is GET, HEAD, but must be unset beside the dialect redisson, which has no shared \
         locks"
    );
    assert_eq!(
        message(policy().shared(true).dialect(Dialect::Redisson)),
        "shared requires the dialect plain"
    );
    assert_eq!(
        message(policy().permits(3).dialect(Dialect::Redisson)),
        "permits requires the dialect plain"
    );
    let fenced = "fenced cannot be combined with";
    let numbers = "only exclusive holders have numbers";
    assert_eq!(message(policy().fenced(true).shared(true)), format!("{fenced} shared: {numbers}"));
    assert_eq!(message(policy().fenced(true).permits(3)), format!("{fenced} permits: {numbers}"));
    assert_eq!(
        message(policy().shared_on(READERS).fenced(true)),
        format!("shared_on is GET, HEAD, but must be unset beside fenced: {numbers}")
    );
}

/// The read would run without a lock.
#[test]
fn a_method_that_shares_the_lock_must_be_locked() {
    let shared = |methods: &[Method], shared_on: &[Method]| {
        let policy = LockPolicy::new("k").methods(methods.iter().cloned());
        check(policy.shared_on(shared_on.iter().cloned()))
    };
    let unlocked = shared(&[Method::PUT, Method::HEAD], &[Method::HEAD, Method::GET]);
    assert_eq!(
        unlocked.unwrap_err(),
        "shared_on is GET, but must be among the methods that are locked: PUT, HEAD"
    );
    shared(&[Method::GET, Method::PUT], &[Method::GET, Method::HEAD]).unwrap();
}
