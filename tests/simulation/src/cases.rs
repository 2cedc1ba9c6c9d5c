//! Requests with the replies that a simulated server and a real server both have to give.
//!
//! A line consists of the connection, `>`, a request, `=>` and the expected reply. A line without a request
//! expects a push message. `EVALSHA name` calls the script of that name. In a request, `_` is an empty text, and `@1000`
//! the time in so many milliseconds on the server's clock. The expected reply is written as
//!
//! | | |
//! |---|---|
//! | `OK`, `nil`, `7`, `"text"`, `push message k 0` | itself |
//! | `~1000` | a number of milliseconds: at most this one, and at most 450 below it |
//! | `@1000` | a text: a time on the server's clock, in so many milliseconds from now, or up to 450 earlier |
//! | `[~1000]` | a list of one such reply |
//! | `a number from the clock` | a text: the server's time in microseconds, or a greater number |
//! | `seconds and microseconds` | the server's time as two texts |
//! | `-NOSCRIPT` | an error that begins with this word |
//! | `has run_id:` | a text that contains `run_id:` |

/// The cases: the behaviour that a case shows, and its lines.
pub(super) const CASES: &[(&str, &str)] = &[
    (
        "a SET with NX sets a free key, and is refused on a held key",
        r#"
        a> SET k t NX PX 1000 => OK
        a> SET k u NX PX 1000 => nil
        a> GET k => "t"
        a> EVALSHA plain/inspect 1 k => ~1000
        "#,
    ),
    (
        "a key expires",
        r"
        a> SET k t NX PX 20 => OK
        wait 60
        a> GET k => nil
        a> EVALSHA plain/inspect 1 k => -2
        a> EVALSHA plain/extend 1 k t 1000 => 0
        a> EVALSHA plain/release 1 k t => 0
        a> EVALSHA plain/shorten 1 k t 1 => 0
        a> SET k u NX PX 1000 => OK
        ",
    ),
    (
        "an extension by the owner prolongs the lease and never shortens it",
        r"
        a> SET k t NX PX 1000 => OK
        a> EVALSHA plain/extend 1 k t 5000 => 1
        a> PTTL k => ~5000
        a> EVALSHA plain/extend 1 k t 100 => 1
        a> PTTL k => ~5000
        a> EVALSHA plain/extend 1 k u 9000 => 0
        a> PTTL k => ~5000
        ",
    ),
    (
        "only the owner releases",
        r#"
        a> SET k t NX PX 1000 => OK
        a> EVALSHA plain/release 1 k u => 0
        a> GET k => "t"
        a> EVALSHA plain/release 1 k t => 1
        a> GET k => nil
        a> EVALSHA plain/release 1 k t => 0
        "#,
    ),
    (
        "a release is published to the subscribers",
        r"
        b> SUBSCRIBE k other => push subscribe k 1
        b> => push subscribe other 2
        c> SUBSCRIBE k => push subscribe k 1
        a> SET k t NX PX 1000 => OK
        a> EVALSHA plain/release 1 k t => 3
        b> => push message k 0
        c> => push message k 0
        b> UNSUBSCRIBE k => push unsubscribe k 1
        a> SET k t NX PX 1000 => OK
        a> EVALSHA plain/shorten 1 k t 500 => 2
        c> => push message k 0
        a> PUBLISH other hello => 1
        b> => push message other hello
        b> UNSUBSCRIBE other => push unsubscribe other 0
        a> PUBLISH other hello => 0
        ",
    ),
    (
        "a lock with a minimum hold is shortened and not removed",
        r"
        a> SET k t NX PX 5000 => OK
        a> EVALSHA plain/shorten 1 k u 1000 => 0
        a> PTTL k => ~5000
        a> EVALSHA plain/shorten 1 k t 1000 => 1
        a> PTTL k => ~1000
        a> EVALSHA plain/shorten 1 k t 3000 => 1
        a> PTTL k => ~1000
        ",
    ),
    (
        "a key of another type is reported as a foreign key",
        r"
        a> HSET k f v => 1
        a> EVALSHA plain/inspect 1 k => -3
        a> SET k t NX PX 1000 => nil
        a> EVALSHA plain/take_fenced 2 k c t 1000 _ _ => -3
        a> EVALSHA plain/confirm 2 k c t 7 => -3
        a> EVALSHA plain/extend 1 k t 1000 => -3
        a> EVALSHA plain/release 1 k t => -3
        a> EVALSHA plain/shorten 1 k t 1 => -3
        a> PTTL k => -1
        a> GET k => -WRONGTYPE
        a> GET c => nil
        ",
    ),
    (
        "a key without a time to live is reported by -1",
        r"
        a> SET k v => OK
        a> EVALSHA plain/inspect 1 k => -1
        a> EVALSHA plain/take_fenced 2 k c t 1000 _ _ => -1
        a> EVALSHA plain/extend 1 k v 1000 => 1
        a> PTTL k => ~1000
        ",
    ),
    (
        "the fencing counter grows, and never falls below the clock",
        r#"
        a> SET c 9000000000000000 => OK
        a> EVALSHA plain/take_fenced 2 k c t 1000 _ _ => "9000000000000001"
        a> PTTL k => ~1000
        a> PTTL c => -1
        a> GET k => "t"
        a> EVALSHA plain/take_fenced 2 k c u 1000 _ _ => ~1000
        a> GET c => "9000000000000001"
        a> DEL c => 1
        a> EVALSHA plain/take_fenced 2 l c t 1000 _ _ => a number from the clock
        a> GET c => a number from the clock
        "#,
    ),
    (
        "the owner raises the fencing counter by a confirmation and never lowers it",
        r#"
        a> SET k t NX PX 1000 => OK
        a> EVALSHA plain/confirm 2 k c t 7 => 1
        a> GET c => "7"
        a> EVALSHA plain/confirm 2 k c t 5 => 1
        a> GET c => "7"
        a> EVALSHA plain/confirm 2 k c u 9 => 0
        a> EVALSHA plain/confirm 2 l c t 9 => 0
        a> GET c => "7"
        "#,
    ),
    (
        "a fencing counter that is no number is an error, and no key is set",
        r"
        a> SET c x => OK
        a> EVALSHA plain/take_fenced 2 k c t 1000 _ _ => -ERR
        a> EVALSHA redisson/acquire_fenced 2 k c t 1000 => -ERR
        a> PTTL k => -2
        a> SET k t NX PX 1000 => OK
        a> EVALSHA plain/confirm 2 k c t 7 => -ERR
        ",
    ),
    (
        "a Redisson lock is acquired, refused to others, and extended and released by its owner",
        r"
        b> SUBSCRIBE channel => push subscribe channel 1
        a> EVALSHA redisson/acquire 1 k t 1000 => OK
        a> PTTL k => ~1000
        a> EVALSHA redisson/acquire 1 k u 1000 => ~1000
        a> EVALSHA redisson/acquire 1 k t 1000 => ~1000
        a> EVALSHA redisson/extend 1 k u 5000 => 0
        a> EVALSHA redisson/extend 1 k t 5000 => 1
        a> EVALSHA redisson/extend 1 k t 100 => 1
        a> PTTL k => ~5000
        a> EVALSHA redisson/shorten 1 k u 1000 channel => 0
        a> EVALSHA redisson/shorten 1 k t 1000 channel => 2
        b> => push message channel 0
        a> PTTL k => ~1000
        a> EVALSHA redisson/release 1 k u channel => 0
        a> EVALSHA redisson/release 1 k t channel => 2
        b> => push message channel 0
        a> PTTL k => -2
        a> EVALSHA redisson/release 1 k t channel => 0
        ",
    ),
    (
        "a Redisson lock has a fencing number",
        r#"
        a> SET c 9000000000000000 => OK
        a> EVALSHA redisson/acquire_fenced 2 k c t 1000 => "9000000000000001"
        a> PTTL k => ~1000
        a> EVALSHA redisson/acquire_fenced 2 k c u 1000 => ~1000
        a> EVALSHA redisson/confirm 2 k c t 9000000000000007 => 1
        a> EVALSHA redisson/confirm 2 k c t 9000000000000003 => 1
        a> EVALSHA redisson/confirm 2 k c u 9000000000000009 => 0
        a> GET c => "9000000000000007"
        "#,
    ),
    (
        "a string is reported as a foreign key by the Redisson scripts",
        r"
        a> SET k v => OK
        a> EVALSHA redisson/acquire 1 k t 1000 => -3
        a> EVALSHA redisson/acquire_fenced 2 k c t 1000 => -3
        a> EVALSHA redisson/confirm 2 k c t 7 => -3
        a> EVALSHA redisson/extend 1 k t 1000 => -3
        a> EVALSHA redisson/release 1 k t channel => -3
        a> EVALSHA redisson/shorten 1 k t 1 channel => -3
        a> HSET k f v => -WRONGTYPE
        ",
    ),
    (
        "an unknown script is an error until it is loaded",
        r"
        a> SCRIPT FLUSH => OK
        a> EVALSHA plain/release 1 k t => -NOSCRIPT
        load
        a> EVALSHA plain/release 1 k t => 0
        ",
    ),
    (
        "a server reports its identity and its time",
        r"
        a> CLIENT SETNAME x => OK
        a> PING => PONG
        a> TIME => seconds and microseconds
        a> INFO server => has run_id:
        a> INFO server => has uptime_in_seconds:
        a> INFO memory => has maxmemory_policy:noeviction
        ",
    ),
    (
        "an invalid request is an error",
        r"
        a> SET k t NX PX x => -ERR
        a> SET k t NX PX 0 => -ERR
        a> NONSENSE => -ERR
        a> GET k => nil
        ",
    ),
];
