import io.lettuce.core.ClientOptions;
import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanCursor;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.springframework.cache.Cache;
import org.springframework.data.redis.cache.RedisCacheConfiguration;
import org.springframework.data.redis.cache.RedisCacheManager;
import org.springframework.data.redis.cache.RedisCacheWriter;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.ScanOptions;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.RedisScript;
import org.springframework.data.redis.listener.ChannelTopic;
import org.springframework.data.redis.listener.PatternTopic;
import org.springframework.data.redis.listener.RedisMessageListenerContainer;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

/**
 * Drives jedis, lettuce or Spring Data Redis against a live server: its arguments are HOST PORT jedis|lettuce|spring.
 * Prints a line per check: {@code ok NAME} or {@code not ok NAME: REASON}.
 */
public final class Redis {
    private static final String RELEASE =
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
    private static final String VALUES = "return {KEYS[1], ARGV[1], 3.9, false, {}}";
    private static String title;
    private static boolean failed;

    private Redis() {}

    /** One check: it passes if the body throws nothing. */
    private static void check(String name, Callable<?> body) {
        try {
            body.call();
            System.out.println("ok " + title + " " + name);
        } catch (Throwable wrong) {
            failed = true;
            System.out.println("not ok " + title + " " + name + ": " + String.valueOf(wrong).replace("\n", " "));
        }
    }

    private static void same(Object wanted, Object got) {
        if (!Objects.deepEquals(wanted, got)) {
            throw new AssertionError("expected " + wanted + ", got " + got);
        }
    }

    /** Fails unless the body is refused with an error that has the word in it. */
    private static void refused(Class<? extends Exception> kind, String word, Callable<?> body) throws Exception {
        try {
            body.call();
        } catch (Exception error) {
            if (kind.isInstance(error) && String.valueOf(error.getMessage()).contains(word)) {
                return;
            }
            throw error;
        }
        throw new AssertionError("nothing was refused with " + word);
    }

    /** Looks again and again until it happens; fails if that takes a minute. */
    private static void until(Callable<Boolean> happens) throws Exception {
        long end = System.nanoTime() + 60_000_000_000L;
        while (!happens.call()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("it never happened");
            }
            Thread.sleep(20);
        }
    }

    private static byte[] everyByte(int count) {
        byte[] bytes = new byte[count];
        for (int i = 0; i < count; i++) {
            bytes[i] = (byte) i;
        }
        return bytes;
    }

    private static void jedis(String host, int port) {
        Jedis client = new Jedis(host, port, 20_000);
        Class<JedisDataException> error = JedisDataException.class;
        check("set and get", () -> {
            same("OK", client.set("a", "hello"));
            same("hello", client.get("a"));
            same(null, client.get("absent"));
            same(null, client.set("a", "x", SetParams.setParams().nx()));
            same("OK", client.set("a", "x", SetParams.setParams().xx().px(60_000)));
            same(60L, client.ttl("a"));
            same("x", client.getDel("a"));
            return null;
        });
        check("values", () -> {
            for (int count : new int[] {0, 300, 900_000}) {
                client.set("bytes".getBytes(), everyByte(count));
                same(true, Arrays.equals(everyByte(count), client.get("bytes".getBytes())));
            }
            client.set("grüße-世界", "wide");
            same("wide", client.get("grüße-世界"));
            refused(error, "maximum allowed size", () -> client.set("huge".getBytes(), everyByte(2_000_000)));
            same(null, client.get("huge"));
            return null;
        });
        check("several keys and arithmetic", () -> {
            same("OK", client.mset("m1", "1", "m2", "2"));
            same(Arrays.asList("1", null, "2"), client.mget("m1", "absent", "m2"));
            same(43L, client.incrBy("m1", 42));
            same(2.5, client.incrByFloat("m2", 0.5));
            same(2L, client.del("m1", "m2", "absent"));
            return null;
        });
        check("expiry", () -> {
            client.psetex("short", 150, "x");
            Thread.sleep(400);
            same(null, client.get("short"));
            same(-2L, client.pttl("short"));
            return null;
        });
        check("pipelines", () -> {
            Pipeline pipe = client.pipelined();
            List<Response<String>> replies = new ArrayList<>();
            for (int i = 0; i < 1000; i++) {
                pipe.set("p" + i, "" + i);
                replies.add(pipe.get("p" + i));
            }
            pipe.sync();
            for (int i = 0; i < 1000; i++) {
                same("" + i, replies.get(i).get());
            }
            return null;
        });
        check("a scan", () -> {
            java.util.Set<String> found = new java.util.HashSet<>();
            String cursor = "0";
            do {
                var page = client.scan(cursor, new ScanParams().match("p*").count(100));
                found.addAll(page.getResult());
                cursor = page.getCursor();
            } while (!cursor.equals("0"));
            same(1000, found.size());
            return null;
        });
        check("transactions", () -> {
            client.set("balance", "10");
            Transaction first = client.multi();
            first.incrBy("balance", 5);
            same(List.of(15L), first.exec());
            client.watch("balance");
            try (Jedis other = new Jedis(host, port)) {
                other.set("balance", "99");
            }
            Transaction second = client.multi();
            second.set("balance", "1");
            same(null, second.exec());
            same("99", client.get("balance"));
            return null;
        });
        check("scripts", () -> {
            client.set("lock", "mine");
            same(0L, client.eval(RELEASE, 1, "lock", "theirs"));
            same("OK", client.scriptFlush());
            String name = client.scriptLoad(RELEASE);
            same(1L, client.evalsha(name, List.of("lock"), List.of("mine")));
            same(List.of(true, false), client.scriptExists(name, "0".repeat(40)));
            same(Arrays.asList("k", "v", 3L, null, List.of()), client.eval(VALUES, 1, "k", "v"));
            same(true, Arrays.equals(everyByte(300), (byte[]) client.eval("return ARGV[1]".getBytes(), List.of(),
                List.of(everyByte(300)))));
            refused(error, "NOSCRIPT", () -> client.evalsha("0".repeat(40)));
            refused(error, "read-only", () -> client.evalReadonly(
                "return redis.call('SET', KEYS[1], 1)", List.of("lock"), List.of()));
            Pipeline pipe = client.pipelined();
            Response<Object> reply = pipe.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, "sum", "5");
            pipe.sync();
            same(5L, reply.get());
            return null;
        });
        check("what is refused", () -> {
            refused(error, "no lists", () -> client.lpush("list", "x"));
            refused(error, "keeps no functions", () -> client.fcall("f", List.of(), List.of()));
            return null;
        });
        check("publish and subscribe", () -> {
            for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
                jedisSubscriber(client, new HostAndPort(host, port), protocol);
            }
            return null;
        });
        check("a cache on the side of the client", () -> {
            jedisCache(client, new HostAndPort(host, port));
            return null;
        });
        check("flush", () -> {
            same("OK", client.flushAll());
            same(0L, client.dbSize());
            return null;
        });
        client.close();
    }

    /** Subscribes in a thread of its own, as Jedis does, and publishes by the other client. */
    private static void jedisSubscriber(Jedis client, HostAndPort place, RedisProtocol protocol) throws Exception {
        List<String> heard = new CopyOnWriteArrayList<>();
        JedisPubSub subscriber = new JedisPubSub() {
            @Override
            public void onMessage(String channel, String message) {
                heard.add(channel + "=" + message);
            }

            @Override
            public void onPMessage(String pattern, String channel, String message) {
                heard.add(pattern + ":" + channel + "=" + message);
            }
        };
        Thread thread = new Thread(() -> {
            try (Jedis own = new Jedis(place, DefaultJedisClientConfig.builder().protocol(protocol).build())) {
                own.subscribe(subscriber, "news", "grüße");
            }
        });
        thread.start();
        until(() -> client.pubsubNumSub("grüße").get("grüße") == 1L);
        subscriber.psubscribe("n?ws");
        until(() -> client.pubsubNumPat() == 1L);
        same(2L, client.publish("news", "x"));
        same(1L, client.publish("grüße", "世界"));
        same(0L, client.publish("none", "x"));
        until(() -> heard.size() == 3);
        same(List.of("news=x", "n?ws:news=x", "grüße=世界"), heard);
        same(List.of("news"), client.pubsubChannels("n*"));
        subscriber.unsubscribe();
        subscriber.punsubscribe();
        thread.join(60_000);
        same(false, thread.isAlive());
        same(0L, client.publish("news", "x"));
    }

    /** It reads from memory until the server says that a key has changed. */
    private static void jedisCache(Jedis client, HostAndPort place) throws Exception {
        try (redis.clients.jedis.RedisClient own = redis.clients.jedis.RedisClient.builder().hostAndPort(place)
                .clientConfig(DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP3).build())
                .cacheConfig(CacheConfig.builder().maxSize(100).build()).build()) {
            client.set("cached", "x");
            for (int i = 0; i < 10; i++) {
                same("x", own.get("cached"));
            }
            same(9L, own.getCache().getStats().getHitCount());
            client.set("cached", "y");
            until(() -> "y".equals(own.get("cached")));
            client.pexpire("cached", 100);
            until(() -> own.get("cached") == null);
            client.set("cached", "z");
            until(() -> "z".equals(own.get("cached")));
            client.flushAll();
            until(() -> own.get("cached") == null);
        }
    }

    private static void lettuce(String host, int port) {
        RedisClient client = RedisClient.create(RedisURI.create(host, port));
        StatefulRedisConnection<String, String> connection = client.connect();
        RedisCommands<String, String> sync = connection.sync();
        Class<RedisCommandExecutionException> error = RedisCommandExecutionException.class;
        check("set and get", () -> {
            same("OK", sync.set("a", "hello"));
            same("hello", sync.get("a"));
            same(null, sync.get("absent"));
            same(null, sync.set("a", "x", SetArgs.Builder.nx()));
            same("hello", sync.setGet("a", "x", SetArgs.Builder.px(60_000)));
            same(60L, sync.ttl("a"));
            same("x", sync.getdel("a"));
            return null;
        });
        check("values", () -> {
            try (StatefulRedisConnection<byte[], byte[]> bytes = client.connect(ByteArrayCodec.INSTANCE)) {
                for (int count : new int[] {0, 300, 900_000}) {
                    bytes.sync().set("bytes".getBytes(), everyByte(count));
                    same(true, Arrays.equals(everyByte(count), bytes.sync().get("bytes".getBytes())));
                }
                refused(error, "maximum allowed size", () -> bytes.sync().set("huge".getBytes(), everyByte(2_000_000)));
            }
            same(null, sync.get("huge"));
            return null;
        });
        check("several requests in flight", () -> {
            List<RedisFuture<String>> replies = new ArrayList<>();
            for (int i = 0; i < 1000; i++) {
                connection.async().set("p" + i, "" + i);
                replies.add(connection.async().get("p" + i));
            }
            for (int i = 0; i < 1000; i++) {
                same("" + i, replies.get(i).get());
            }
            return null;
        });
        check("a scan", () -> {
            java.util.Set<String> found = new java.util.HashSet<>();
            KeyScanCursor<String> page = sync.scan(ScanArgs.Builder.matches("p*").limit(100));
            found.addAll(page.getKeys());
            while (!page.isFinished()) {
                page = sync.scan(ScanCursor.of(page.getCursor()), ScanArgs.Builder.matches("p*").limit(100));
                found.addAll(page.getKeys());
            }
            same(1000, found.size());
            return null;
        });
        check("expiry and arithmetic", () -> {
            sync.psetex("short", 150, "x");
            same(42L, sync.incrby("n", 42));
            same(42.5, sync.incrbyfloat("n", 0.5));
            Thread.sleep(400);
            same(null, sync.get("short"));
            return null;
        });
        check("transactions", () -> {
            sync.multi();
            sync.set("w", "1");
            sync.incr("w");
            same(2L, sync.exec().get(1));
            sync.watch("w");
            try (StatefulRedisConnection<String, String> other = client.connect()) {
                other.sync().set("w", "9");
            }
            sync.multi();
            sync.set("w", "3");
            same(true, sync.exec().wasDiscarded());
            same("9", sync.get("w"));
            return null;
        });
        check("scripts", () -> {
            sync.set("lock", "mine");
            String[] lock = {"lock"};
            same(0L, sync.eval(RELEASE, ScriptOutputType.INTEGER, lock, "theirs"));
            same("OK", sync.scriptFlush());
            String name = sync.scriptLoad(RELEASE);
            same(sync.digest(RELEASE), name);
            same(true, sync.evalsha(name, ScriptOutputType.BOOLEAN, lock, "mine"));
            same(List.of(true, false), sync.scriptExists(name, "0".repeat(40)));
            same(Arrays.asList("lock", "v", 3L, null, List.of()), sync.eval(VALUES, ScriptOutputType.MULTI, lock, "v"));
            same("OK", sync.eval("return redis.call('SET', KEYS[1], ARGV[1])", ScriptOutputType.STATUS, lock, "x"));
            same("x", sync.evalReadOnly("return redis.call('GET', KEYS[1])", ScriptOutputType.VALUE, lock));
            refused(error, "NOSCRIPT", () -> sync.evalsha("0".repeat(40), ScriptOutputType.VALUE));
            return null;
        });
        check("what is refused", () -> {
            refused(error, "no lists", () -> sync.lpush("list", "x"));
            refused(error, "keeps no functions", () -> sync.fcall("f", ScriptOutputType.VALUE, new String[] {"k"}));
            return null;
        });
        check("a killed connection", () -> {
            StatefulRedisConnection<String, String> other = client.connect();
            Long id = other.sync().clientId();
            same(1L, sync.clientKill(io.lettuce.core.KillArgs.Builder.id(id)));
            same("9", other.sync().get("w"));
            other.close();
            return null;
        });
        check("publish and subscribe", () -> {
            for (ProtocolVersion version : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) {
                client.setOptions(ClientOptions.builder().protocolVersion(version).build());
                lettuceSubscriber(sync, client.connectPubSub());
            }
            return null;
        });
        check("a cache on the side of the client", () -> {
            try (StatefulRedisConnection<String, String> own = client.connect()) {
                Map<String, String> memory = new ConcurrentHashMap<>();
                CacheFrontend<String, String> cache = ClientSideCaching.enable(CacheAccessor.forMap(memory), own,
                    TrackingArgs.Builder.enabled());
                for (String value : List.of("x", "y", "z")) {
                    sync.set("cached", value);
                    until(() -> value.equals(cache.get("cached")));
                    same(value, memory.get("cached"));
                }
                sync.pexpire("cached", 100);
                until(() -> cache.get("cached") == null);
                same("made", cache.get("cached", () -> "made"));
                same("made", sync.get("cached"));
                same("made", cache.get("cached"));
                sync.del("cached");
                until(memory::isEmpty);
            }
            return null;
        });
        check("flush", () -> {
            same("OK", sync.flushall());
            same(0L, sync.dbsize());
            return null;
        });
        connection.close();
        client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
    }

    /** Subscribes to a channel, a pattern and a channel of a shard, and again after it has lost its connection. */
    private static void lettuceSubscriber(RedisCommands<String, String> sync,
            StatefulRedisPubSubConnection<String, String> connection) throws Exception {
        List<String> heard = new CopyOnWriteArrayList<>();
        connection.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(String channel, String message) {
                heard.add(channel + "=" + message);
            }

            @Override
            public void message(String pattern, String channel, String message) {
                heard.add(pattern + ":" + channel + "=" + message);
            }

            @Override
            public void smessage(String channel, String message) {
                heard.add("shard:" + channel + "=" + message);
            }
        });
        connection.sync().subscribe("news", "grüße");
        connection.sync().psubscribe("n?ws");
        connection.sync().ssubscribe("news");
        same(List.of(2L, 1L, 1L), List.of(sync.publish("news", "x"), sync.publish("grüße", "世界"),
            sync.spublish("news", "y")));
        until(() -> heard.size() == 4);
        same(List.of("news=x", "n?ws:news=x", "grüße=世界", "shard:news=y"), heard);
        same(Map.of("news", 1L, "none", 0L), sync.pubsubNumsub("news", "none"));
        same(List.of(List.of("news"), 1L), List.of(sync.pubsubChannels("n*"), sync.pubsubNumpat()));
        sync.clientKill(io.lettuce.core.KillArgs.Builder.typePubsub());
        until(() -> sync.publish("news", "again") == 2L);
        until(() -> heard.contains("n?ws:news=again"));
        connection.sync().unsubscribe("news", "grüße");
        connection.sync().punsubscribe("n?ws");
        same(0L, sync.publish("news", "x"));
        connection.close();
    }

    private static void spring(String host, int port) {
        LettuceConnectionFactory factory = new LettuceConnectionFactory(host, port);
        factory.afterPropertiesSet();
        factory.start();
        StringRedisTemplate template = new StringRedisTemplate(factory);
        // By default it answers before the server has: the next read may still find what was there before.
        RedisCacheWriter writer = RedisCacheWriter.create(factory, with -> with.immediateWrites());
        RedisCacheManager manager = RedisCacheManager.builder(writer)
            .cacheDefaults(RedisCacheConfiguration.defaultCacheConfig().entryTtl(Duration.ofSeconds(100)))
            .withCacheConfiguration("short",
                RedisCacheConfiguration.defaultCacheConfig().entryTtl(Duration.ofMillis(300)))
            .build();
        manager.afterPropertiesSet();
        check("values of a template", () -> {
            template.opsForValue().set("a", "hello", Duration.ofMillis(60_000));
            same("hello", template.opsForValue().get("a"));
            same(60L, template.getExpire("a"));
            same(false, template.opsForValue().setIfAbsent("a", "x"));
            same(5L, template.opsForValue().increment("n", 5));
            template.opsForValue().multiSet(java.util.Map.of("m1", "1", "m2", "2"));
            same(Arrays.asList("1", null, "2"), template.opsForValue().multiGet(List.of("m1", "absent", "m2")));
            same(true, template.delete("a"));
            try (var keys = template.scan(ScanOptions.scanOptions().match("m?").build())) {
                same(2L, keys.stream().distinct().count());
            }
            return null;
        });
        check("scripts of a template", () -> {
            RedisScript<Long> release = RedisScript.of(RELEASE, Long.class);
            RedisScript<Boolean> add = RedisScript.of("return redis.call('INCR', KEYS[1]) == 1", Boolean.class);
            template.delete("sum");
            template.opsForValue().set("lock", "mine");
            same(0L, template.execute(release, List.of("lock"), "theirs"));
            same(1L, template.execute(release, List.of("lock"), "mine"));
            same(true, template.execute(add, List.of("sum")));
            same(true, Boolean.FALSE.equals(template.execute(add, List.of("sum"))));
            return null;
        });
        check("a cache", () -> {
            Cache books = manager.getCache("books");
            books.put(1, "Emma");
            same("Emma", books.get(1, String.class));
            same(null, books.get(2));
            same("made", books.get(3, () -> "made"));
            same("Emma", books.putIfAbsent(1, "Persuasion").get());
            books.put(4, null);
            same(true, books.get(4) != null && books.get(4).get() == null);
            books.evict(1);
            same(null, books.get(1));
            return null;
        });
        check("a cache that expires", () -> {
            Cache cache = manager.getCache("short");
            cache.put("x", "y");
            same("y", cache.get("x", String.class));
            Thread.sleep(700);
            same(null, cache.get("x"));
            return null;
        });
        check("clearing one cache", () -> {
            Cache left = manager.getCache("left");
            left.put("x", "stays");
            for (int i = 0; i < 500; i++) {
                manager.getCache("books").put(i, "x");
            }
            manager.getCache("books").clear();
            same(null, manager.getCache("books").get(7));
            same("stays", left.get("x", String.class));
            return null;
        });
        check("a listener", () -> {
            List<String> heard = new CopyOnWriteArrayList<>();
            RedisMessageListenerContainer container = new RedisMessageListenerContainer();
            container.setConnectionFactory(factory);
            container.addMessageListener((message, pattern) -> heard.add(message.toString()),
                List.of(new ChannelTopic("news"), new PatternTopic("oth*")));
            container.afterPropertiesSet();
            container.start();
            until(() -> template.convertAndSend("news", "x") == 1L && template.convertAndSend("other", "y") == 1L);
            until(() -> heard.contains("x") && heard.contains("y"));
            container.destroy();
            until(() -> template.convertAndSend("news", "z") == 0L);
            return null;
        });
        factory.destroy();
    }

    /** Connects, checks, leaves with the exit status of the suite. */
    public static void main(String[] arguments) throws Exception {
        System.setOut(new java.io.PrintStream(System.out, true, "UTF-8"));
        String host = arguments[0];
        int port = Integer.parseInt(arguments[1]);
        title = arguments[2];
        switch (title) {
            case "jedis" -> jedis(host, port);
            case "lettuce" -> lettuce(host, port);
            default -> spring(host, port);
        }
        System.exit(failed ? 1 : 0);
    }
}
