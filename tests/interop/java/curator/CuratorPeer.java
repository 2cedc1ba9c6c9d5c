import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;

/**
 * Executes the order in each input line with the locks of Curator, and answers it with one line. Times are nanoseconds of
 * the monotonic clock.
 */
class CuratorPeer {
    private final CuratorFramework curator;
    private final Map<String, InterProcessMutex> locks = new HashMap<>();
    private final List<Future<List<String>>> callers = new ArrayList<>();
    private volatile boolean stopped;

    private CuratorPeer(String servers, int sessionTimeout) {
        curator = CuratorFrameworkFactory.newClient(servers, sessionTimeout, 15000, new RetryForever(50));
        curator.start();
    }

    /** Arguments: the servers with the chroot, and the session timeout in milliseconds. */
    public static void main(String[] arguments) throws Exception {
        CuratorPeer peer = new CuratorPeer(arguments[0], Integer.parseInt(arguments[1]));
        if (!peer.curator.blockUntilConnected(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not connected");
        }
        System.out.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            System.out.println(peer.execute(line.split(" ", 4)));
        }
        Runtime.getRuntime().halt(0);
    }

    private String execute(String[] order) throws Exception {
        switch (order[0]) {
            // acquire <wait in milliseconds> <path>
            case "acquire":
                boolean acquired = lock(order[2]).acquire(Long.parseLong(order[1]), TimeUnit.MILLISECONDS);
                return acquired ? "acquired " + System.nanoTime() : "refused";
            // release <path>
            case "release":
                try {
                    long now = System.nanoTime();
                    lock(order[1]).release();
                    return "released " + now;
                } catch (IllegalMonitorStateException notOwned) {
                    return "not owned";
                }
            // expire: ends the session as if it had expired. The server ends it after its timeout.
            case "expire":
                curator.getZookeeperClient().getZooKeeper().getTestable().injectSessionExpiration();
                return "expired";
            // turns <callers> <hold in milliseconds> <path>: callers that never rest, until "stop".
            case "turns":
                stopped = false;
                int count = Integer.parseInt(order[1]);
                ExecutorService threads = Executors.newFixedThreadPool(count);
                for (int caller = 0; caller < count; caller++) {
                    callers.add(threads.submit(() -> turns(Long.parseLong(order[2]), order[3])));
                }
                threads.shutdown();
                return "started";
            // stop: answers the begin and the end of each turn.
            case "stop":
                stopped = true;
                List<String> turns = new ArrayList<>();
                for (Future<List<String>> caller : callers) {
                    turns.addAll(caller.get());
                }
                callers.clear();
                return String.join(" ", turns);
            // pairs <duration in milliseconds> <path>: answers the median time of an acquisition with its release.
            case "pairs":
                return String.valueOf(pairs(TimeUnit.MILLISECONDS.toNanos(Long.parseLong(order[1])), order[2]));
            default:
                return "unknown order";
        }
    }

    private InterProcessMutex lock(String path) {
        return locks.computeIfAbsent(path, key -> new InterProcessMutex(curator, key));
    }

    private List<String> turns(long hold, String path) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(curator, path);
        List<String> turns = new ArrayList<>();
        while (!stopped) {
            // A caller that waits when the others stop gets its turn, too.
            mutex.acquire();
            long begin = System.nanoTime();
            Thread.sleep(hold);
            turns.add(begin + "-" + System.nanoTime());
            mutex.release();
        }
        return turns;
    }

    private long pairs(long duration, String path) throws Exception {
        InterProcessMutex mutex = lock(path);
        List<Long> times = new ArrayList<>();
        long begun = System.nanoTime();
        for (long start = begun; start - begun < duration; start = System.nanoTime()) {
            mutex.acquire();
            mutex.release();
            times.add(System.nanoTime() - start);
        }
        Long[] sorted = times.toArray(new Long[0]);
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }
}
