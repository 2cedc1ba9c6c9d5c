import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Executes the order in each input line with the RLock of Redisson, and answers it with one line. */
class RedissonPeer {
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
            System.out.println(execute(redisson, line.split(" ")));
        }
        // Skips the shutdown of Redisson, which takes two seconds and saves nothing.
        Runtime.getRuntime().halt(0);
    }

    private static String execute(RedissonClient redisson, String[] order) throws InterruptedException {
        RLock lock = redisson.getLock(order[1]);
        switch (order[0]) {
            // lock <name> <wait> <lease>, in milliseconds; a lease of -1 is renewed by the watchdog.
            case "lock":
                long wait = Long.parseLong(order[2]);
                long lease = Long.parseLong(order[3]);
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
}
