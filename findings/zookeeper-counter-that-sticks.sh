#!/usr/bin/env bash
# A lock of ZooKeeper has several holders when the counter of its folder has reached 2147483647.
#
# One would expect: the servers number the children of a folder in the order of their creation, so that exactly one child
# is the first. After 2147483647, they refuse another child, or go on with negative numbers, as ZooKeeper 3.5 does.
#
# What happens (ZooKeeper 3.9.4, Curator 5.7.1; 3.6.4 is the same): the counter stays at 2147483647. All further children
# have this number, and a recipe that looks for the lowest number finds as many lowest ones as it has children. The order
# among them is that of the rest of their names, or of the list that the server returns.
#
# Why it matters: 1,000 acquisitions of one lock in a second reach the number in 25 days. Nobody is told; two services work
# on one thing. The number begins anew when the folder is deleted: a container that is empty when the server looks, once in
# a minute, or any empty folder by `delete`.
. "$(dirname "$0")/environment.sh"
. "$(dirname "$0")/java.sh"
libraries org.apache.zookeeper:zookeeper:3.9.4 io.dropwizard.metrics:metrics-core:4.2.25 \
    org.xerial.snappy:snappy-java:1.1.10.5 org.apache.curator:curator-recipes:5.7.1 org.slf4j:slf4j-nop:2.0.13
run_java <<'JAVA'
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

class Finding {
    static final String LOCK = "/locks/order";

    public static void main(String[] arguments) throws Exception {
        ZookeeperServer server = new ZookeeperServer();
        List<CuratorFramework> clients = new ArrayList<>();
        for (int client = 0; client < 8; client++) {
            clients.add(CuratorFrameworkFactory.newClient(server.address, new RetryOneTime(50)));
            clients.get(client).start();
        }
        CuratorFramework first = clients.get(0);
        InterProcessMutex before = new InterProcessMutex(first, LOCK);
        before.acquire();
        boolean enters = new InterProcessMutex(clients.get(1), LOCK).acquire(100, TimeUnit.MILLISECONDS);
        ZookeeperServer.check(!enters, "with low numbers, a second client waits");
        before.release();

        server.countFrom(LOCK, 2147483646);
        TreeSet<String> numbers = new TreeSet<>();
        for (int child = 0; child < 4; child++) {
            String path = first.create().withMode(org.apache.zookeeper.CreateMode.EPHEMERAL_SEQUENTIAL).forPath(LOCK + "/child-" + child + "-");
            numbers.add(path.substring(path.length() - 10));
            first.delete().forPath(path);
        }
        ZookeeperServer.check(numbers.toString().equals("[2147483646, 2147483647]"), "four children have the numbers " + numbers);

        // One after another, and none of them leaves.
        int holders = 0;
        for (CuratorFramework client : clients) {
            holders += new InterProcessMutex(client, LOCK).acquire(300, TimeUnit.MILLISECONDS) ? 1 : 0;
        }
        ZookeeperServer.check(holders > 1, "of eight clients of one lock, " + holders + " hold it at the same time");
        Runtime.getRuntime().halt(0);
    }
}
JAVA
