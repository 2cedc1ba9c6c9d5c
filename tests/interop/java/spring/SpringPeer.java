import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;

import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;

/**
 * Executes the order in each input line with the lock of a library, and answers it with one line.
 *
 * <p>acquire [library] [name] [lease] [wait], in milliseconds: acquired or refused.
 *
 * <p>release [library]: released.
 */
class SpringPeer {
    private static final Map<String, Runnable> HELD = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        LettuceConnectionFactory connections =
                new LettuceConnectionFactory("127.0.0.1", Integer.parseInt(arguments[0]));
        connections.afterPropertiesSet();
        connections.start();
        System.out.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] order = line.split(" ");
            if (order[0].equals("release")) {
                HELD.remove(order[1]).run();
                System.out.println("released");
                continue;
            }
            Runnable release =
                    acquire(
                            connections,
                            order[1],
                            order[2],
                            Long.parseLong(order[3]),
                            Long.parseLong(order[4]));
            if (release != null) {
                HELD.put(order[1], release);
            }
            System.out.println(release == null ? "refused" : "acquired");
        }
        Runtime.getRuntime().halt(0);
    }

    /** Returns how the lock is released, or null. */
    private static Runnable acquire(
            LettuceConnectionFactory connections, String library, String name, long lease, long wait)
            throws InterruptedException {
        if (library.equals("shedlock")) {
            Optional<SimpleLock> lock =
                    new RedisLockProvider(connections, "app")
                            .lock(
                                    new LockConfiguration(
                                            Instant.now(), name, Duration.ofMillis(lease), Duration.ZERO));
            return lock.<Runnable>map(held -> held::unlock).orElse(null);
        }
        RedisLockRegistry registry = new RedisLockRegistry(connections, "registry", lease);
        if (library.equals("spring-integration-pub-sub")) {
            registry.setRedisLockType(RedisLockType.PUB_SUB_LOCK);
        }
        Lock lock = registry.obtain(name);
        return lock.tryLock(wait, TimeUnit.MILLISECONDS) ? lock::unlock : null;
    }
}
