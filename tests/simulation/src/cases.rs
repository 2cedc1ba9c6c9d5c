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
//! | `refused at 2 ~1000` | a refusal of several keys: the index of a key, and its time to live |
//! | `-NOSCRIPT` | an error that begins with this word |
//! | `has run_id:` | a text that contains `run_id:` |

/// The cases: the behaviour that a case shows, and its lines.
pub(super) const CASES: &[(&str, &str)] = &[
    (
        "tickets are ordered by their arrival, and a change of the first one is published",
        r#"
        a> EVALSHA fair/inspect 1 q A 3000000 => has "" 0]
        a> EVALSHA fair/enter 1 q A 3000000 1 0 => has 0 "A:1" 3000000]
        b> SUBSCRIBE q:A => push subscribe q:A 1
        a> EVALSHA fair/enter 1 q B 3000000 1 0 2 5000000 => has 0 "B:2"
        b> => push message q:A 0
        a> EVALSHA fair/enter 1 q B 3000000 2 0 => has 1 "B:2"
        a> PTTL q => ~3000
        a> EVALSHA fair/leave 1 q B 3000000 2 => has 1 "A:1"
        b> => push message q:A 0
        a> EVALSHA fair/inspect 1 q C 3000000 => has 0 "A:1"
        a> EVALSHA fair/leave 1 q A 3000000 1 => has 1 "B:1"
        b> PING => PONG
        a> EVALSHA fair/leave 1 q B 3000000 1 => has 1 "" 0]
        a> PTTL q => -2
        "#,
    ),
    (
        "a process whose presence is over loses its tickets, and a refresh prolongs the presence",
        r#"
        a> EVALSHA fair/enter 1 q A 1500000 1 9 2 9 => has "A:1"
        a> EVALSHA fair/enter 1 q B 3000000 1 0 => has 0 "A:1"
        wait 700
        a> EVALSHA fair/refresh 1 q B 3000000 => has 1 "A:1"
        wait 900
        a> EVALSHA fair/refresh 1 q B 3000000 => has 1 "B:1"
        a> EVALSHA fair/refresh 1 q A 1500000 => has 0 "B:1"
        a> EVALSHA fair/leave 1 q B 3000000 1 => has "" 0]
        a> PTTL q => -2
        "#,
    ),
    (
        "a fair queue of another type is an error",
        r"
        a> SET q t => OK
        a> EVALSHA fair/inspect 1 q A 3000000 => -WRONGTYPE
        ",
    ),
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
        "several keys are set together, or none of them",
        r#"
        a> EVALSHA several/acquire 3 k l m t 1000 3 _ _ => OK
        a> GET k => "t"
        a> GET m => "t"
        a> PTTL l => ~1000
        a> EVALSHA several/acquire 3 a l m u 9000 3 _ _ => refused at 1 ~1000
        a> GET a => nil
        a> EVALSHA several/acquire 3 k l m t 9000 3 _ _ => refused at 0 ~1000
        a> PTTL l => ~1000
        a> DEL l => 1
        a> EVALSHA several/acquire 3 k l m t 5000 3 _ _ => OK
        a> PTTL k => ~5000
        a> PTTL l => ~5000
        a> HSET h f v => 1
        a> EVALSHA several/acquire 2 a h u 1000 2 _ _ => refused at 1 -3
        a> SET s v => OK
        a> EVALSHA several/acquire 3 a b s u 1000 3 _ _ => refused at 2 -1
        a> GET a => nil
        "#,
    ),
    (
        "several keys are extended and released together by their owner",
        r"
        b> SUBSCRIBE k l => push subscribe k 1
        b> => push subscribe l 2
        c> SUBSCRIBE l => push subscribe l 1
        a> EVALSHA several/acquire 2 k l t 1000 2 _ _ => OK
        a> EVALSHA several/extend 2 k l t 5000 => 1
        a> EVALSHA several/extend 2 k l t 100 => 1
        a> EVALSHA several/extend 2 k l u 9000 => 0
        a> PTTL k => ~5000
        a> PTTL l => ~5000
        a> EVALSHA several/shorten 2 k l u 1000 => 0
        a> EVALSHA several/shorten 2 k l t 3000 => 3
        b> => push message k 0
        b> => push message l 0
        c> => push message l 0
        a> PTTL l => ~3000
        a> EVALSHA several/release 2 k l u => 0
        a> EVALSHA several/release 2 k l t => 3
        a> GET k => nil
        a> GET l => nil
        a> EVALSHA several/release 2 k l t => 0
        ",
    ),
    (
        "the owner of only some of several keys does not extend them, and releases them",
        r#"
        b> SUBSCRIBE k l => push subscribe k 1
        b> => push subscribe l 2
        a> EVALSHA several/acquire 3 k l m t 1000 3 _ _ => OK
        a> SET l u => OK
        a> EVALSHA several/extend 3 k l m t 9000 => 0
        a> EVALSHA several/confirm 4 k l m c t 7 3 => 0
        a> PTTL k => ~1000
        a> GET c => nil
        a> EVALSHA several/shorten 3 k l m t 500 => 0
        b> => push message k 0
        a> PTTL m => ~500
        a> EVALSHA several/release 3 k l m t => 0
        b> => push message k 0
        a> GET k => nil
        a> GET l => "u"
        a> GET m => nil
        a> SET k t => OK
        a> HSET h f v => 1
        a> EVALSHA several/extend 2 k h t 9000 => -3
        a> PTTL k => -1
        a> EVALSHA several/release 3 k h l t => -3
        a> GET k => nil
        "#,
    ),
    (
        "several keys have one fencing number, which each of their counters gives out",
        r#"
        a> SET c 9000000000000000 => OK
        a> EVALSHA several/acquire_fenced 4 k l c d t 1000 2 _ _ => "9000000000000001"
        a> GET c => "9000000000000001"
        a> GET d => "9000000000000001"
        a> GET l => "t"
        a> EVALSHA several/acquire_fenced 4 k l c d u 1000 2 _ _ => refused at 0 ~1000
        a> EVALSHA several/confirm 4 k l c d t 9000000000000007 2 => 1
        a> EVALSHA several/confirm 4 k l c d t 9000000000000003 2 => 1
        a> EVALSHA several/confirm 4 k l c d u 9000000000000009 2 => 0
        a> GET d => "9000000000000007"
        a> SET d x => OK
        a> EVALSHA several/acquire_fenced 4 a b c d t 1000 2 _ _ => -ERR
        a> EVALSHA several/confirm 4 k l c d t 9000000000000009 2 => -ERR
        a> GET a => nil
        a> GET c => "9000000000000007"
        a> EVALSHA several/acquire_fenced 3 a b e t 1000 2 _ _ => a number from the clock
        "#,
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
