import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.config.Config;

/** Executes the order in each input line with the locks of Redisson, and answers it with one line. */
class RedissonPeer {
    private static String kind = "lock";

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.setThreads(2).setNettyThreads(2);
        config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + arguments[0])
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1);
        RedissonClient redisson = Redisson.create(config);
        System.out.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            System.out.println(answer(redisson, line.split(" ")));
        }
        // Skips the shutdown of Redisson, which takes two seconds and saves nothing.
        Runtime.getRuntime().halt(0);
    }

    /** Returns WRONGTYPE if the key has a value that is no lock of Redisson. */
    private static String answer(RedissonClient redisson, String[] order) throws InterruptedException {
        try {
            return execute(redisson, order);
        } catch (RedisException error) {
            if (String.valueOf(error.getMessage()).contains("WRONGTYPE")) {
                return "WRONGTYPE";
            }
            throw error;
        }
    }

    private static String execute(RedissonClient redisson, String[] order) throws InterruptedException {
        // use <kind>: the kind of lock for all further orders, see lock().
        if (order[0].equals("use")) {
            kind = order[1];
            return kind;
        }
        RLock lock = lock(redisson, order[1]);
        switch (order[0]) {
            // lock <name> <wait> <lease>, in milliseconds; waits for ever with a wait of -1. A lease of -1 is renewed
            // by the watchdog.
            case "lock":
                long wait = Long.parseLong(order[2]);
                long lease = Long.parseLong(order[3]);
                if (wait < 0) {
                    lock.lock(lease, TimeUnit.MILLISECONDS);
                    return "acquired";
                }
                return lock.tryLock(wait, lease, TimeUnit.MILLISECONDS) ? "acquired" : "refused";
            case "unlock":
                try {
                    lock.unlock();
                    return "released";
                } catch (IllegalMonitorStateException notOwned) {
                    return "not owned";
                }
            case "remaining":
                return String.valueOf(lock.remainTimeToLive());
            case "locked":
                return String.valueOf(lock.isLocked());
            default:
                return "unknown order";
        }
    }

    private static RLock lock(RedissonClient redisson, String name) {
        switch (kind) {
            case "read":
                return redisson.getReadWriteLock(name).readLock();
            case "write":
                return redisson.getReadWriteLock(name).writeLock();
            case "fair":
                return redisson.getFairLock(name);
            case "spin":
                return redisson.getSpinLock(name);
            case "fenced":
                return redisson.getFencedLock(name);
            default:
                return redisson.getLock(name);
        }
    }
}
