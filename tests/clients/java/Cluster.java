import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.stream.IntStream;
import redis.clients.jedis.HostAndPort;

/**
 * Drives the cluster clients of jedis or lettuce against a fleet: its arguments are HOST PORT jedis|lettuce, PORT of
 * one server. Prints a line per check: {@code ok NAME} or {@code not ok NAME: REASON}. In the middle it prints
 * {@code ready} and waits for a line: the slots of the fleet have changed then. {@code absent N} says how many keys
 * were not found afterwards.
 */
public final class Cluster {
    private static final List<String> KEYS = IntStream.range(0, 1000).mapToObj(i -> "key:" + i).toList();
    private static final int TAGS = 50;
    private static String title;
    private static boolean failed;

    private Cluster() {}

    /** One door to either library. */
    private interface Door {
        String set(String key, String value);

        String get(String key);

        List<String> mget(String... keys);
    }

    private static Door jedis(String host, int port) {
        var client = redis.clients.jedis.RedisClusterClient.create(new HostAndPort(host, port));
        return new Door() {
            public String set(String key, String value) {
                return client.set(key, value);
            }

            public String get(String key) {
                return client.get(key);
            }

            public List<String> mget(String... keys) {
                return client.mget(keys);
            }
        };
    }

    private static Door lettuce(String host, int port) {
        RedisAdvancedClusterCommands<String, String> client =
                RedisClusterClient.create(RedisURI.create(host, port)).connect().sync();
        return new Door() {
            public String set(String key, String value) {
                return client.set(key, value);
            }

            public String get(String key) {
                return client.get(key);
            }

            public List<String> mget(String... keys) {
                List<String> values = new ArrayList<>();
                for (KeyValue<String, String> each : client.mget(keys)) {
                    values.add(each.getValueOrElse(null));
                }
                return values;
            }
        };
    }

    private static void check(String name, Callable<?> body) {
        try {
            body.call();
            System.out.println("ok " + title + " cluster: " + name);
        } catch (Throwable wrong) {
            failed = true;
            String reason = String.valueOf(wrong).replace("\n", " ");
            System.out.println("not ok " + title + " cluster: " + name + ": " + reason);
        }
    }

    private static void same(Object wanted, Object got) {
        if (!Objects.equals(wanted, got)) {
            throw new AssertionError("expected " + wanted + ", got " + got);
        }
    }

    private static Object storeAndRead(Door door, String word) {
        for (String key : KEYS) {
            same("OK", door.set(key, word + " of " + key));
        }
        for (String key : KEYS) {
            same(word + " of " + key, door.get(key));
        }
        return null;
    }

    private static Object severalKeys(Door door, String word) {
        for (int tag = 0; tag < TAGS; tag++) {
            String slot = "{tag" + tag + "}:";
            String[] keys = IntStream.range(0, 5).mapToObj(i -> slot + i).toArray(String[]::new);
            List<String> wanted = new ArrayList<>();
            for (String key : keys) {
                wanted.add(word + " of " + key);
                same("OK", door.set(key, word + " of " + key));
            }
            same(wanted, door.mget(keys));
            same(Arrays.asList(wanted.get(0), null), door.mget(keys[0], slot + "absent"));
        }
        return null;
    }

    /** Connects, checks, leaves with the exit status of the suite. */
    public static void main(String[] arguments) throws Exception {
        title = arguments[2];
        int port = Integer.parseInt(arguments[1]);
        Door door = title.equals("jedis") ? jedis(arguments[0], port) : lettuce(arguments[0], port);
        check("set and get", () -> storeAndRead(door, "value"));
        check("several keys of one slot", () -> severalKeys(door, "value"));
        System.out.println("ready");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        check("slots that moved", () -> {
            int absent = 0;
            for (String key : KEYS) {
                String value = door.get(key);
                if (value == null) {
                    absent++;
                } else {
                    same("value of " + key, value);
                }
            }
            System.out.println("absent " + absent);
            return storeAndRead(door, "new value");
        });
        check("several keys of a slot that moved", () -> severalKeys(door, "new value"));
        System.exit(failed ? 1 : 0);
    }
}
