import java.io.File;
import java.net.InetSocketAddress;
import java.nio.file.Files;

import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/** A server of ZooKeeper in this process, on a free port of the loopback. */
class ZookeeperServer {
    private final ZooKeeperServer server;
    final String address;

    ZookeeperServer() throws Exception {
        File data = Files.createTempDirectory("data").toFile();
        server = new ZooKeeperServer(data, data, 250);
        ServerCnxnFactory factory = ServerCnxnFactory.createFactory(new InetSocketAddress("127.0.0.1", 0), 0);
        factory.startup(server);
        address = "127.0.0.1:" + factory.getLocalPort();
    }

    /** The next child of a node gets this number. */
    void countFrom(String path, int number) {
        server.getZKDatabase().getNode(path).stat.setCversion(number);
    }

    /** Ends the program if the behaviour is not the one that the finding describes. */
    static void check(boolean behaves, String what) {
        System.out.println((behaves ? "seen: " : "CHANGED: ") + what);
        if (!behaves) {
            Runtime.getRuntime().halt(1);
        }
    }
}
