import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;

import org.apache.zookeeper.server.DataNode;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/**
 * A server of ZooKeeper that counts on from any number. It runs in every version from 3.5 on, and deletes no empty containers.
 * Prints its port, executes the order in each input line, and answers it with one line.
 */
class ServerPeer {
    /** Argument: the folder of its data. */
    public static void main(String[] arguments) throws Exception {
        File data = new File(arguments[0]);
        ZooKeeperServer server = new ZooKeeperServer(data, data, 250);
        server.setMaxSessionTimeout(1200000);
        ServerCnxnFactory factory = ServerCnxnFactory.createFactory(new InetSocketAddress("127.0.0.1", 0), 0);
        factory.startup(server);
        System.out.println(factory.getLocalPort());
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            System.out.println(execute(server, line.split(" ")));
        }
        Runtime.getRuntime().halt(0);
    }

    private static String execute(ZooKeeperServer server, String[] order) {
        switch (order[0]) {
            // number <path> <number>: the next child gets this number.
            case "number":
                DataNode folder = server.getZKDatabase().getNode(order[1]);
                synchronized (folder) {
                    folder.stat.setCversion(Integer.parseInt(order[2]));
                }
                return "numbers";
            default:
                return "unknown order";
        }
    }
}
