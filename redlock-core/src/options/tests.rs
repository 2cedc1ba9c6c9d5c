//! The rules of the options, their defaults, and their configuration.

use std::sync::Arc;
use std::time::Duration;

use super::{LockOptions, assert_valid, is_same};
use crate::clock::fake::RuntimeClock;
use crate::node::Node;
use crate::node::fake::FakeNode;
use crate::{Dialect, LockError, LockManager, LockManagerBuilder};

const NANOSECOND: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(10);
const TOO_SHORT: Duration = Duration::from_nanos(9_999_999);
const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const NONE: LockOptions = LockOptions::new();

fn message(options: &LockOptions) -> String {
    options.check().unwrap_err().to_string()
}

#[test]
fn the_limits_are_inclusive() {
    for options in [
        NONE,
        NONE.expire(SHORTEST),
        NONE.expire(LONGEST),
        NONE.wait_time(Duration::ZERO),
        NONE.wait_time(LONGEST),
        NONE.wait_forever(),
        NONE.max_hold(NANOSECOND),
        NONE.expire(SECOND).renew(true).max_hold(NANOSECOND),
        NONE.expire(SECOND).min_hold(SECOND),
        NONE.keep(true).min_hold(Duration::ZERO),
        NONE.keep(false).min_hold(SECOND),
    ] {
        assert_eq!(options.check(), Ok(()), "{options:?}");
    }
}

#[test]
fn an_option_out_of_its_range_is_named_with_its_value_and_the_range() {
    for (options, expected) in [
        (NONE.expire(Duration::ZERO), "expire is 0ns, but must be from 10 ms to 7 days"),
        (NONE.expire(TOO_SHORT), "expire is 9.999999ms, but must be from 10 ms to 7 days"),
        (
            NONE.expire(LONGEST + NANOSECOND),
            "expire is 604800.000000001s, but must be from 10 ms to 7 days",
        ),
        (
            NONE.wait_time(LONGEST + NANOSECOND),
            "wait_time is 604800.000000001s, but must be at most 7 days, or forever",
        ),
        (NONE.max_hold(Duration::ZERO), "max_hold is 0ns, but must be longer than zero"),
    ] {
        assert_eq!(message(&options), expected);
        assert_eq!(options.check_ranges(), options.check());
    }
}

/// Another option can complete each of these combinations, so an unfinished builder does not report
/// them.
#[test]
fn conflicting_options_are_named() {
    for (options, option, expected) in [
        (NONE.expire(SECOND).max_hold(SECOND), "max_hold", "max_hold requires renew"),
        (NONE.renew(false).max_hold(SECOND), "max_hold", "max_hold requires renew"),
        (
            NONE.fenced(true).shared(true),
            "fenced",
            "fenced cannot be combined with shared: only exclusive holders have numbers",
        ),
        (
            NONE.permits(2).fenced(true),
            "fenced",
            "fenced cannot be combined with permits: only exclusive holders have numbers",
        ),
        (
            NONE.keep(true).min_hold(SECOND),
            "min_hold",
            "min_hold cannot be combined with keep, which holds the lock for its whole lease",
        ),
        (
            NONE.expire(SECOND).min_hold(SECOND + NANOSECOND),
            "min_hold",
            "min_hold is 1.000000001s, but must be at most the lease (expire) of 1s",
        ),
    ] {
        let error = options.check().unwrap_err();
        assert_eq!((error.option(), error.to_string()), (option, expected.to_owned()));
        assert_eq!(options.check_ranges(), Ok(()));
    }
}

/// For constant options a broken rule is a compile error.
#[test]
fn valid_options_are_valid_at_compile_time() {
    const OPTIONS: LockOptions =
        NONE.expire(SECOND).renew(true).max_hold(SECOND).dialect(Dialect::Redisson);
    const _: () = assert_valid(&OPTIONS, "max_hold");
    assert_eq!(OPTIONS.check(), Ok(()));
}

#[test]
fn a_broken_rule_is_reported_for_its_own_option_only() {
    let options = NONE.expire(SECOND).max_hold(SECOND);
    for other in ["expire", "max_hol", "max_hold_", ""] {
        assert_valid(&options, other);
    }
    let panic = std::panic::catch_unwind(|| assert_valid(&options, "max_hold")).unwrap_err();
    assert_eq!(
        panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap(),
        "max_hold requires renew"
    );
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_checks_its_options() {
    let locks = LockManager::in_memory();
    for options in [
        NONE.expire(TOO_SHORT),
        NONE.wait_time(LONGEST + NANOSECOND),
        NONE.max_hold(Duration::ZERO),
        NONE.expire(SECOND).max_hold(SECOND),
        NONE.keep(true).min_hold(SECOND),
        // The default lease of the manager is 30 s.
        NONE.min_hold(30 * SECOND + NANOSECOND),
    ] {
        let error = locks.lock("a").options(options.clone()).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidOption(_)), "{options:?}: {error}");
        let error =
            locks.lock("a").options(options.clone()).fenced(true).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidOption(_)), "{options:?}: {error}");
    }
}

/// By default a lease that the caller sets is not renewed, and the manager's default lease is
/// renewed.
#[tokio::test(start_paused = true)]
async fn the_default_of_renew_depends_on_expire() {
    let node: Arc<dyn Node> = FakeNode::start("node");
    let locks = LockManagerBuilder::with_nodes(vec![node], Arc::new(RuntimeClock::new()));
    for (options, is_renewed) in [
        (NONE, true),
        (NONE.renew(false), false),
        (NONE.expire(SECOND), false),
        (NONE.expire(SECOND).renew(true), true),
    ] {
        let guard = locks.lock("a").options(options.clone()).acquire().await.unwrap();
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(guard.is_valid(), is_renewed, "{options:?}");
        let _ = guard.release().await;
    }
}

#[test]
fn texts_are_the_same_if_all_their_characters_are() {
    for (one, other) in [("", "a"), ("keep", "keep_going"), ("expire", "expira"), ("a", "b")] {
        assert!(!is_same(one, other) && !is_same(other, one), "{one} {other}");
        assert!(is_same(one, one) && is_same(other, other), "{one} {other}");
    }
}

#[cfg(feature = "serde")]
mod configuration {
    use super::*;
    use crate::WaitTime;

    fn toml(text: &str) -> Result<LockOptions, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn every_option_is_a_field() {
        let options = toml(
            r#"
            expire = "1m 30s"
            wait_time = 2
            renew = true
            max_hold = "1h"
            min_hold = "500ms"
            keep = false
            reentrant = true
            fair = true
            dialect = "redisson"
            "#,
        );
        let expected = NONE
            .expire(90 * SECOND)
            .wait_time(2 * SECOND)
            .renew(true)
            .max_hold(3600 * SECOND)
            .min_hold(SECOND / 2)
            .keep(false)
            .reentrant(true)
            .fair(true)
            .dialect(Dialect::Redisson);
        assert_eq!(options, Ok(expected));
        assert_eq!(toml("wait_time = \"forever\"").unwrap().wait_time, Some(WaitTime::Forever));
        assert_eq!(toml(""), Ok(NONE));
        let null: LockOptions = serde_json::from_str("{\"expire\": null}").unwrap();
        assert_eq!(null, NONE);
    }

    #[test]
    fn a_misspelt_option_is_an_error_with_line_and_column() {
        let error = toml("expire = 5\nwait_tmie = 2\n").unwrap_err();
        assert!(error.contains("line 2, column 1"), "{error}");
        assert!(error.contains("unknown field `wait_tmie`, expected one of `expire`"), "{error}");
        let error = serde_json::from_str::<LockOptions>("{\n\"expire\": 5,\n\"renw\": true}");
        let error = error.unwrap_err();
        assert_eq!((error.line(), error.column()), (3, 6), "{error}");
    }

    #[test]
    fn a_value_of_another_type_is_an_error_with_line_and_column() {
        for (line, expected) in [
            ("expire = \"soon\"", "expected a time such as \"500ms\" or \"5s\""),
            ("expire = -5", "expected a time such as \"500ms\" or \"5s\""),
            ("wait_time = \"never\"", "or a whole number of seconds, or \"forever\""),
            ("renew = \"yes\"", "expected a boolean"),
            (
                "dialect = \"redlock\"",
                "invalid value: string \"redlock\", expected `plain` or `redisson`",
            ),
        ] {
            let error = toml(&format!("keep = true\n{line}")).unwrap_err();
            let column = line.find('=').unwrap() + 3;
            assert!(error.contains(&format!("line 2, column {column}")), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_option_that_is_given_twice_is_an_error() {
        for first in ["true", "null"] {
            let json = format!("{{\"keep\": {first}, \"keep\": true}}");
            let error = serde_json::from_str::<LockOptions>(&json).unwrap_err();
            assert!(error.to_string().starts_with("duplicate field `keep`"), "{error}");
        }
    }

    #[derive(Debug, serde::Deserialize)]
    struct Nested {
        lock: LockOptions,
    }

    #[test]
    fn nested_options_keep_the_line_and_column_of_an_error() {
        let nested: Nested = toml::from_str("[lock]\nexpire = 5").unwrap();
        assert_eq!(nested.lock, NONE.expire(5 * SECOND));
        let error = toml::from_str::<Nested>("[lock]\nexpire = 5\nwait_tmie = 2").unwrap_err();
        assert!(error.to_string().contains("line 3, column 1"), "{error}");
    }
}
