import com.github.fppt.jedismock.RedisServer;

/** Serves jedis-mock on a free port, which it prints, until its standard input ends. */
public class JedisMockServer {
    public static void main(String[] arguments) throws Exception {
        RedisServer server = RedisServer.newRedisServer().start();
        System.out.println(server.getBindPort());
        while (System.in.read() != -1) {
        }
        server.stop();
    }
}
