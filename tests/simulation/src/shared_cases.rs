//! The [cases](super::cases) of shared locks, and of exclusive locks that meet them.

/// The cases: the behaviour that a case shows, and its lines.
pub(super) const SHARED_CASES: &[(&str, &str)] = &[
    (
        "readers share a lock, and each has its own end",
        r#"
        a> EVALSHA shared/acquire 1 k one 2000 0 => OK
        a> PTTL k => ~2000
        a> EVALSHA shared/acquire 1 k two 1000 0 => OK
        a> HGET k mode => "shared"
        a> HGET k r:one => @2000
        a> HGET k r:two => @1000
        a> HLEN k => 3
        a> PTTL k => ~2000
        a> EVALSHA shared/acquire 1 k two 500 0 => OK
        a> HGET k r:two => @1000
        a> EVALSHA shared/acquire 1 k two 5000 0 => OK
        a> HGET k r:two => @5000
        a> PTTL k => ~5000
        a> SET k x NX PX 1000 => nil
        a> EVALSHA plain/inspect 1 k => -4
        "#,
    ),
    (
        "a reader is refused beside an exclusive lock of any library",
        r#"
        a> SET k x PX 1000 => OK
        a> EVALSHA shared/acquire 1 k one 500 0 => ~1000
        a> EVALSHA shared/acquire 1 k one 500 2 => ~1000
        a> SET k x => OK
        a> EVALSHA shared/acquire 1 k one 500 0 => -1
        a> GET k => "x"
        "#,
    ),
    (
        "entries that have ended are removed by the next change, and the key ends with its last entry",
        r"
        a> HSET k mode shared r:one @-1000 p:two @-1 w:three @-5 t @-50 => 5
        a> EVALSHA shared/acquire 1 k four 1000 0 => OK
        a> HLEN k => 2
        a> PTTL k => ~1000
        a> HSET k r:one @3000 => 1
        a> HSET k r:two @-1000 => 1
        a> EVALSHA shared/release 1 k four => 1
        a> HLEN k => 2
        a> HGET k r:two => nil
        a> PTTL k => ~3000
        a> EVALSHA shared/release 1 k one => 1
        a> PTTL k => -2
        a> EVALSHA shared/acquire 1 k one 20 0 => OK
        wait 60
        a> EVALSHA shared/extend 1 k one 1000 => 0
        a> PTTL k => -2
        ",
    ),
    (
        "an entry that has ended cannot be extended, shortened or released",
        r"
        a> HSET k mode shared r:one @-1000 r:two @5000 => 3
        a> EVALSHA shared/extend 1 k one 1000 => 0
        a> EVALSHA shared/shorten 1 k one 1000 => 0
        a> EVALSHA shared/release 1 k one => 0
        a> EVALSHA shared/downgrade 1 k one => 0
        a> HGET k r:two => @5000
        a> EVALSHA shared/acquire 1 k one 1000 0 => OK
        a> HGET k r:one => @1000
        ",
    ),
    (
        "a mark stops new readers, but not the extensions of present ones",
        r"
        a> EVALSHA shared/acquire 1 k one 5000 0 => OK
        a> HSET k w:mark @1000 => 1
        a> EVALSHA shared/acquire 1 k two 500 0 => ~1000
        a> EVALSHA shared/acquire 1 k two 500 2 => ~1000
        a> EVALSHA shared/acquire 1 k one 6000 0 => OK
        a> HGET k r:one => @6000
        a> EVALSHA shared/extend 1 k one 7000 => 1
        a> EVALSHA shared/extend 1 k one 1000 => 1
        a> HGET k r:one => @7000
        a> PTTL k => ~7000
        a> HSET k w:mark @-1 => 0
        a> EVALSHA shared/extend 1 k one 1000 => 1
        a> HGET k w:mark => nil
        a> EVALSHA shared/acquire 1 k two 500 0 => OK
        ",
    ),
    (
        "in their turn, readers and holders of permits pass a mark",
        r"
        a> HSET k mode shared w:mark @1000 t @-1 => 3
        a> EVALSHA shared/acquire 1 k one 500 0 => ~1000
        a> HSET k t @700 => 0
        a> EVALSHA shared/acquire 1 k one 500 0 => OK
        a> HLEN k => 4
        a> PTTL k => ~1000
        a> HSET l mode shared w:mark @1000 t @700 => 3
        a> EVALSHA shared/acquire 1 l one 500 1 => OK
        ",
    ),
    (
        "an exclusive lock is taken over marks, and over entries that have ended",
        r#"
        a> HSET k mode shared w:mark @5000 w:other @6000 r:one @-1 p:two @-1 t @-1 => 6
        a> EVALSHA plain/take 1 k t 1000 mark 1000 => OK
        a> GET k => "t"
        a> PTTL k => ~1000
        a> EVALSHA plain/take 1 l t 2000 mark 1000 => OK
        a> PTTL l => ~2000
        "#,
    ),
    (
        "an exclusive lock is refused by readers, holders of permits and their turn, and leaves its mark",
        r"
        a> HSET k mode shared r:one @2000 r:two @3000 => 3
        a> EVALSHA plain/take 1 k t 1000 mark 1000 => [~3000]
        a> HGET k w:mark => @1000
        a> PTTL k => ~3000
        a> EVALSHA plain/take 1 k t 1000 mark 4000 => [~3000]
        a> HGET k w:mark => @4000
        a> PTTL k => ~4000
        a> HSET l mode shared p:one @2000 r:two @-10 => 3
        a> EVALSHA plain/take 1 l t 1000 mark 1000 => [~2000]
        a> HLEN l => 3
        a> HSET m mode shared t @2000 => 2
        a> EVALSHA plain/take 1 m t 1000 mark 1000 => [~2000]
        a> HGET m w:mark => @1000
        ",
    ),
    (
        "several keys are refused by the readers of one, which gets a mark if no key is held exclusively",
        r#"
        a> HSET l mode shared r:one @2000 => 2
        a> PEXPIREAT l 32503680000000 => 1
        a> HSET m mode shared w:other @2000 p:one @-10 => 3
        a> EVALSHA several/acquire 3 k l m t 1000 3 mark 4000 => refused at 1 ~2000 by readers
        a> HGET l w:mark => @4000
        a> EVALSHA several/acquire 3 k l m t 1000 3 mark 1000 => refused at 1 ~2000 by readers
        a> HGET l w:mark => @4000
        a> HLEN m => 3
        a> EVALSHA several/acquire_fenced 4 k l m c t 1000 3 _ _ => refused at 1 ~2000 by readers
        a> SET z other PX 3000 => OK
        a> EVALSHA several/acquire 3 k l z t 1000 3 late 1000 => refused at 2 ~3000
        a> HGET l w:late => nil
        a> EVALSHA several/acquire 2 k m t 1000 2 mark 1000 => OK
        a> GET m => "t"
        a> HSET h mode shared x 1 => 2
        a> EVALSHA several/acquire 2 a h t 1000 2 _ _ => refused at 1 -3
        "#,
    ),
    (
        "a caller that does not wait leaves no mark",
        r"
        a> HSET k mode shared r:one @2000 => 2
        a> EVALSHA plain/take 1 k t 1000 _ _ => [~2000]
        a> HLEN k => 2
        a> PTTL k => -1
        a> EVALSHA plain/take_fenced 2 k c t 1000 _ _ => [~2000]
        a> GET c => nil
        ",
    ),
    (
        "an exclusive lock is refused by an exclusive lock, also by its own",
        r#"
        a> SET k t PX 1000 => OK
        a> EVALSHA plain/take 1 k u 5000 mark 1000 => ~1000
        a> EVALSHA plain/take 1 k t 5000 mark 1000 => ~1000
        a> EVALSHA plain/take_fenced 2 k c u 5000 mark 1000 => ~1000
        a> GET k => "t"
        "#,
    ),
    (
        "a fenced lock is taken over marks and refused by readers",
        r#"
        a> SET c 9000000000000000 => OK
        a> HSET k mode shared w:mark @5000 => 2
        a> EVALSHA plain/take_fenced 2 k c t 1000 mark 1000 => "9000000000000001"
        a> GET k => "t"
        a> PTTL k => ~1000
        a> HSET l mode shared p:one @2000 => 2
        a> EVALSHA plain/take_fenced 2 l c t 1000 mark 1000 => [~2000]
        a> HGET l w:mark => @1000
        a> GET c => "9000000000000001"
        "#,
    ),
    (
        "permits limit the holders, each caller by its own number",
        r"
        a> EVALSHA shared/acquire 1 k one 1000 3 => OK
        a> EVALSHA shared/acquire 1 k two 2000 3 => OK
        a> EVALSHA shared/acquire 1 k six 500 1 => ~2000
        a> EVALSHA shared/acquire 1 k six 500 2 => ~1000
        a> EVALSHA shared/acquire 1 k six 3000 3 => OK
        a> EVALSHA shared/acquire 1 k ten 500 3 => ~1000
        a> EVALSHA shared/acquire 1 k ten 500 2 => ~2000
        a> EVALSHA shared/acquire 1 k one 1500 1 => OK
        a> HGET k p:one => @1500
        a> EVALSHA shared/release 1 k one => 1
        a> EVALSHA shared/acquire 1 k ten 500 3 => OK
        a> HLEN k => 4
        a> HSET k p:two @-1 => 0
        a> EVALSHA shared/acquire 1 k new 500 3 => OK
        a> EVALSHA shared/extend 1 k new 4000 => 1
        a> HGET k p:new => @4000
        ",
    ),
    (
        "readers and holders of permits exclude each other",
        r"
        a> EVALSHA shared/acquire 1 k one 1000 0 => OK
        a> EVALSHA shared/acquire 1 k two 500 5 => ~1000
        a> EVALSHA shared/release 1 k one => 1
        a> EVALSHA shared/acquire 1 k two 1000 5 => OK
        a> EVALSHA shared/acquire 1 k one 500 0 => ~1000
        ",
    ),
    (
        "the last reader's release is published to all waiters, or to the writers if one waits",
        r"
        b> SUBSCRIBE k => push subscribe k 1
        a> HSET k mode shared r:one @1000 r:two @2000 r:three @3000 => 4
        a> EVALSHA shared/release 1 k two => 1
        a> EVALSHA shared/release 1 k three => 1
        a> EVALSHA shared/release 1 k one => 2
        b> => push message k 0
        a> HSET k mode shared r:one @2000 r:two @3000 w:mark @1000 => 4
        a> EVALSHA shared/release 1 k one => 1
        a> HSET k r:one @2000 => 1
        a> EVALSHA shared/release 1 k two => 2
        b> => push message k w
        a> PTTL k => ~2000
        a> EVALSHA shared/release 1 k one => 2
        b> => push message k w
        a> PTTL k => ~1000
        a> HLEN k => 2
        ",
    ),
    (
        "the release of a permit is published to the waiters for permits, or to the writers if it was the last to end",
        r"
        b> SUBSCRIBE k => push subscribe k 1
        a> HSET k mode shared p:one @1000 p:two @2000 p:three @3000 p:four @1000 w:mark @500 => 6
        a> EVALSHA shared/release 1 k one => 1
        a> EVALSHA shared/release 1 k three => 2
        b> => push message k w
        a> HSET k w:mark @-1 => 0
        a> EVALSHA shared/release 1 k four => 2
        b> => push message k r
        a> EVALSHA shared/release 1 k two => 2
        b> => push message k 0
        a> PTTL k => -2
        ",
    ),
    (
        "a release of an exclusive lock gives impatient readers a turn if it was noticed",
        r"
        a> SET k t PX 1000 => OK
        c> SUBSCRIBE k:readers => push subscribe k:readers 1
        a> EVALSHA plain/release 1 k t => 1
        a> PTTL k => -2
        b> SUBSCRIBE k => push subscribe k 1
        a> SET k t PX 1000 => OK
        a> EVALSHA plain/release 1 k t => 2
        b> => push message k 0
        c> => push message k:readers 0
        a> HGET k t => @50
        a> HLEN k => 2
        wait 120
        a> PTTL k => -2
        a> SET k one PX 1000 => OK
        a> EVALSHA shared/release 1 k one => 2
        b> => push message k 0
        c> => push message k:readers 0
        a> HGET k t => @50
        c> UNSUBSCRIBE k:readers => push unsubscribe k:readers 0
        wait 120
        a> SET k one PX 1000 => OK
        a> EVALSHA shared/release 1 k one => 2
        b> => push message k 0
        a> PTTL k => -2
        ",
    ),
    (
        "a release of several keys gives impatient readers of each key a turn",
        r"
        b> SUBSCRIBE k => push subscribe k 1
        b> SUBSCRIBE m => push subscribe m 2
        c> SUBSCRIBE k:readers => push subscribe k:readers 1
        c> SUBSCRIBE l:readers => push subscribe l:readers 2
        a> EVALSHA several/acquire 3 k l m t 1000 3 _ _ => OK
        a> EVALSHA several/shorten 3 k l m t 500 => 2
        b> => push message k 0
        b> => push message m 0
        a> EVALSHA several/release 3 k l m t => 2
        b> => push message k 0
        b> => push message m 0
        c> => push message k:readers 0
        a> HGET k t => @50
        a> HLEN k => 2
        a> PTTL l => -2
        a> PTTL m => -2
        wait 120
        a> PTTL k => -2
        ",
    ),
    (
        "a reader's lease is shortened and never prolonged",
        r"
        b> SUBSCRIBE k => push subscribe k 1
        a> HSET k mode shared r:one @5000 p:two @4000 => 3
        a> EVALSHA shared/shorten 1 k one 9000 => 2
        b> => push message k 0
        a> HGET k r:one => @5000
        a> EVALSHA shared/shorten 1 k one 1000 => 2
        b> => push message k 0
        a> HGET k r:one => @1000
        a> PTTL k => ~4000
        a> EVALSHA shared/shorten 1 k two 2000 => 2
        b> => push message k 0
        a> PTTL k => ~2000
        a> EVALSHA shared/shorten 1 k none 1000 => 0
        ",
    ),
    (
        "a downgrade keeps the end of the lock and lets readers in",
        r"
        b> SUBSCRIBE k => push subscribe k 1
        a> SET k one PX 3000 => OK
        a> EVALSHA shared/downgrade 1 k two => 0
        a> EVALSHA shared/downgrade 1 k one => 1
        b> => push message k 0
        a> HGET k r:one => @3000
        a> PTTL k => ~3000
        a> EVALSHA shared/downgrade 1 k one => 1
        a> EVALSHA shared/downgrade 1 k two => 0
        a> EVALSHA shared/downgrade 1 m one => 0
        a> PTTL m => -2
        ",
    ),
    (
        "the operations of a reader cover the exclusive lock that a downgrade has not reached, and no other",
        r#"
        a> SET k one PX 1000 => OK
        a> EVALSHA shared/extend 1 k one 3000 => 1
        a> PTTL k => ~3000
        a> EVALSHA shared/extend 1 k one 1000 => 1
        a> PTTL k => ~3000
        a> EVALSHA shared/shorten 1 k one 9000 => 1
        a> PTTL k => ~3000
        a> EVALSHA shared/shorten 1 k one 1000 => 1
        a> PTTL k => ~1000
        a> EVALSHA shared/extend 1 k on 3000 => 0
        a> EVALSHA shared/release 1 k on => 0
        a> EVALSHA shared/shorten 1 k on 10 => 0
        a> GET k => "one"
        a> EVALSHA shared/release 1 k one => 1
        a> PTTL k => -2
        "#,
    ),
    (
        "a mark is withdrawn, and the readers are notified of the last one",
        r#"
        b> SUBSCRIBE k => push subscribe k 1
        a> HSET k mode shared r:one @3000 w:m1 @5000 w:m2 @4000 => 4
        a> EVALSHA shared/withdraw 1 k none => 1
        a> EVALSHA shared/withdraw 1 k m1 => 1
        a> PTTL k => ~4000
        a> EVALSHA shared/withdraw 1 k m2 => 1
        b> => push message k r
        a> PTTL k => ~3000
        a> HLEN k => 2
        a> HSET l mode shared w:m1 @5000 => 2
        a> EVALSHA shared/withdraw 1 l m1 => 1
        a> PTTL l => -2
        a> SET l w:m1 PX 1000 => OK
        a> EVALSHA shared/withdraw 1 l m1 => 1
        a> GET l => "w:m1"
        "#,
    ),
    (
        "the scripts of an exclusive lock leave a shared lock alone",
        r"
        a> HSET k mode shared r:t @5000 => 2
        a> EVALSHA plain/confirm 2 k c t 7 => 0
        a> EVALSHA plain/extend 1 k t 1000 => 0
        a> EVALSHA plain/release 1 k t => 0
        a> EVALSHA plain/shorten 1 k t 1 => 0
        a> HLEN k => 2
        a> GET c => nil
        ",
    ),
    (
        "a hash that is no shared lock is a foreign key, and is left alone",
        r"
        a> HSET k f 1 => 1
        a> EVALSHA plain/take 1 k t 1000 mark 1000 => -3
        a> EVALSHA plain/take_fenced 2 k c t 1000 mark 1000 => -3
        a> EVALSHA shared/acquire 1 k t 1000 0 => -3
        a> EVALSHA shared/extend 1 k t 1000 => -3
        a> EVALSHA shared/release 1 k t => -3
        a> EVALSHA shared/shorten 1 k t 1 => -3
        a> EVALSHA shared/downgrade 1 k t => -3
        a> EVALSHA shared/withdraw 1 k m => -3
        a> HSET k mode read => 1
        a> EVALSHA plain/take 1 k t 1000 mark 1000 => -3
        a> EVALSHA plain/inspect 1 k => -3
        a> HLEN k => 2
        a> HSET l mode shared r:x text => 2
        a> EVALSHA shared/acquire 1 l t 1000 0 => -3
        a> HSET l r:x 1000000000000000 => 0
        a> EVALSHA shared/acquire 1 l t 1000 0 => -3
        a> HSET l r:x 999999999999999 => 0
        a> EVALSHA shared/acquire 1 l t 1000 0 => OK
        a> HGET l r:t => @1000
        ",
    ),
];
