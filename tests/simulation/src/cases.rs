//! What a server answers: the same requests to a simulated server and to a real one.
//!
//! A line is the connection, `>`, a request, `=>` and the reply; without a request, what comes in by
//! itself. `EVALSHA Name` stands for the script of this name. A reply is written as
//!
//! | | |
//! |---|---|
//! | `OK`, `nil`, `7`, `"text"`, `push message k 0` | itself |
//! | `~1000` | a number of milliseconds, up to this one and not far below |
//! | `a number from the clock` | the time in microseconds or later, as text |
//! | `seconds and microseconds` | the time, as two texts |
//! | `-NOSCRIPT` | an error that begins so |
//! | `has run_id:` | a text with this in it |

/// Each with what it shows.
pub(super) const CASES: &[(&str, &str)] = &[
    (
        "a key that is free is set, one that is not is refused",
        r#"
        a> SET k t NX PX 1000 => OK
        a> SET k u NX PX 1000 => nil
        a> GET k => "t"
        a> EVALSHA plain/inspect 1 k => ~1000
        "#,
    ),
    (
        "a key runs out",
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
        "an extension lengthens the owner's key and never shortens",
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
        "a release compares the owner",
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
        "a release is announced to those who listen",
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
        "a lock that has to stay is shortened and not removed",
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
        "a key of another type is none of ours",
        r"
        a> HSET k f v => 1
        a> EVALSHA plain/inspect 1 k => -3
        a> SET k t NX PX 1000 => nil
        a> EVALSHA plain/acquire_fenced 2 k c t 1000 => -3
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
        "a key without a time to live is told apart",
        r"
        a> SET k v => OK
        a> EVALSHA plain/inspect 1 k => -1
        a> EVALSHA plain/acquire_fenced 2 k c t 1000 => -1
        a> EVALSHA plain/extend 1 k v 1000 => 1
        a> PTTL k => ~1000
        ",
    ),
    (
        "a number is counted up, and never below the clock",
        r#"
        a> SET c 9000000000000000 => OK
        a> EVALSHA plain/acquire_fenced 2 k c t 1000 => "9000000000000001"
        a> PTTL k => ~1000
        a> PTTL c => -1
        a> GET k => "t"
        a> EVALSHA plain/acquire_fenced 2 k c u 1000 => ~1000
        a> GET c => "9000000000000001"
        a> DEL c => 1
        a> EVALSHA plain/acquire_fenced 2 l c t 1000 => a number from the clock
        a> GET c => a number from the clock
        "#,
    ),
    (
        "a number is written back where it is greater, by the owner",
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
        "a counter that is no number is an error, and nothing is set",
        r"
        a> SET c x => OK
        a> EVALSHA plain/acquire_fenced 2 k c t 1000 => -ERR
        a> EVALSHA redisson/acquire_fenced 2 k c t 1000 => -ERR
        a> PTTL k => -2
        a> SET k t NX PX 1000 => OK
        a> EVALSHA plain/confirm 2 k c t 7 => -ERR
        ",
    ),
    (
        "a lock of Redisson is acquired, refused, extended and released by its owner",
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
        "a lock of Redisson is numbered",
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
        "a string is no lock of Redisson",
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
        "a script that is not known is told, until it is loaded",
        r"
        a> SCRIPT FLUSH => OK
        a> EVALSHA plain/release 1 k t => -NOSCRIPT
        load
        a> EVALSHA plain/release 1 k t => 0
        ",
    ),
    (
        "a server tells who it is",
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
        "what makes no sense is an error",
        r"
        a> SET k t NX PX x => -ERR
        a> SET k t NX PX 0 => -ERR
        a> NONSENSE => -ERR
        a> GET k => nil
        ",
    ),
];
