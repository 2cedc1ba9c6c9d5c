#!/usr/bin/env bash
# A Lock of kazoo and a mutex of Curator at one path do not exclude each other.
#
# One would expect: both follow the lock recipe of ZooKeeper's documentation (the lowest number of the children holds the
# lock), so that a Python service and a Java service that use one path exclude each other.
#
# What happens (kazoo 2.11.0, Curator 5.7.1, ZooKeeper 3.9.4): each looks only at children whose names have its own middle
# part, `__lock__` or `-lock-`. Both hold at once, whoever comes first. `extra_lock_patterns=["-lock-"]` lets kazoo see the
# children of Curator, and so keeps kazoo out while Curator holds. Curator has no such setting: it enters beside kazoo.
#
# Why it matters: a shared path looks like a shared lock. It is one in one direction only, and only with the pattern.
. "$(dirname "$0")/environment.sh"
. "$(dirname "$0")/java.sh"
install kazoo==2.11.0
libraries org.apache.zookeeper:zookeeper:3.9.4 io.dropwizard.metrics:metrics-core:4.2.25 \
    org.xerial.snappy:snappy-java:1.1.10.5 org.apache.curator:curator-recipes:5.7.1 org.slf4j:slf4j-nop:2.0.13
cat >"$folder/kazoo_lock.py" <<'PYTHON'
"""Acquires the lock without waiting, prints whether that worked, and holds it until standard input ends."""
import sys

from kazoo.client import KazooClient

client = KazooClient(hosts=sys.argv[1])
client.start()
print(client.Lock(sys.argv[2], extra_lock_patterns=sys.argv[3:]).acquire(blocking=False), flush=True)
sys.stdin.read()
client.stop()
PYTHON
run_java <<'JAVA'
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

class Finding {
    static final String LOCK = "/locks/order";

    /** A process with kazoo that asks for the lock. */
    static class Kazoo implements AutoCloseable {
        final Process process;
        final boolean holds;

        Kazoo(String folder, String address, String... patterns) throws Exception {
            List<String> command = new ArrayList<>(List.of(folder + "/python/bin/python", folder + "/kazoo_lock.py", address, LOCK));
            command.addAll(List.of(patterns));
            process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            holds = "True".equals(new BufferedReader(new InputStreamReader(process.getInputStream())).readLine());
        }

        @Override
        public void close() throws Exception {
            process.getOutputStream().close();
            process.waitFor();
        }
    }

    public static void main(String[] arguments) throws Exception {
        String folder = arguments[0];
        ZookeeperServer server = new ZookeeperServer();
        CuratorFramework client = CuratorFrameworkFactory.newClient(server.address, new RetryOneTime(50));
        client.start();
        InterProcessMutex mutex = new InterProcessMutex(client, LOCK);

        mutex.acquire();
        try (Kazoo kazoo = new Kazoo(folder, server.address)) {
            ZookeeperServer.check(kazoo.holds, "kazoo gets the lock that Curator holds");
        }
        try (Kazoo kazoo = new Kazoo(folder, server.address, "-lock-")) {
            ZookeeperServer.check(!kazoo.holds, "with the pattern of Curator, kazoo is refused");
        }
        mutex.release();
        try (Kazoo kazoo = new Kazoo(folder, server.address, "-lock-")) {
            ZookeeperServer.check(kazoo.holds, "kazoo gets the free lock");
            boolean enters = mutex.acquire(300, TimeUnit.MILLISECONDS);
            ZookeeperServer.check(enters, "Curator gets the lock that kazoo holds, with the pattern or without");
        }
        Runtime.getRuntime().halt(0);
    }
}
JAVA
