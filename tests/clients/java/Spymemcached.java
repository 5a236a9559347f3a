import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;
import net.spy.memcached.transcoders.SerializingTranscoder;

/**
 * Drives spymemcached against a live server: its arguments are HOST PORT text|binary [USER PASSWORD].
 * Prints a line per check: {@code ok NAME} or {@code not ok NAME: REASON}.
 */
public final class Spymemcached {
    private static MemcachedClient client;
    private static String title;
    private static boolean failed;

    private Spymemcached() {}

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
        if (!Objects.equals(wanted, got)) {
            throw new AssertionError("expected " + wanted + ", got " + got);
        }
    }

    private static void sameBytes(byte[] wanted, Object got) {
        if (!(got instanceof byte[]) || !Arrays.equals(wanted, (byte[]) got)) {
            throw new AssertionError("expected " + wanted.length + " other bytes");
        }
    }

    private static byte[] everyByte(int times) {
        byte[] bytes = new byte[256 * times];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) i;
        }
        return bytes;
    }

    private static Object setGet() throws Exception {
        same(true, client.set("a", 0, "hello").get());
        same("hello", client.get("a"));
        same(null, client.get("absent"));
        same(true, client.set("number", 0, 42).get());
        same(42, client.get("number"));
        return null;
    }

    private static Object several() throws Exception {
        List<String> keys = new ArrayList<>();
        for (int i = 0; i < 300; i++) {
            keys.add("m" + i);
            client.set("m" + i, 0, i);
        }
        keys.add("absent");
        Map<String, Object> got = client.getBulk(keys);
        same(300, got.size());
        same(7, got.get("m7"));
        return null;
    }

    private static Object addReplace() throws Exception {
        same(false, client.replace("b", 0, "x").get());
        same(true, client.add("b", 0, "x").get());
        same(false, client.add("b", 0, "y").get());
        same(true, client.replace("b", 0, "z").get());
        same("z", client.get("b"));
        return null;
    }

    private static Object appendPrepend() throws Exception {
        client.set("c", 0, "mid").get();
        same(true, client.append("c", ">").get());
        same(true, client.prepend("c", "<").get());
        same("<mid>", client.get("c"));
        same(false, client.append("absent", "x").get());
        return null;
    }

    private static Object compareAndSwap() throws Exception {
        client.set("d", 0, "1").get();
        CASValue<Object> value = client.gets("d");
        same("1", value.getValue());
        same(CASResponse.OK, client.cas("d", value.getCas(), "2"));
        same(CASResponse.EXISTS, client.cas("d", value.getCas(), "3"));
        same(CASResponse.NOT_FOUND, client.cas("absent", value.getCas(), "3"));
        same("2", client.get("d"));
        return null;
    }

    private static Object arithmetic() throws Exception {
        client.set("n", 0, "10").get();
        same(15L, client.incr("n", 5));
        same(0L, client.decr("n", 20));
        same(-1L, client.incr("absent", 1));
        same(100L, client.incr("counter", 1, 100));
        same(101L, client.incr("counter", 1, 100));
        return null;
    }

    private static Object touch() throws Exception {
        client.set("t", 0, "x").get();
        same(true, client.touch("t", 100).get());
        same(false, client.touch("absent", 100).get());
        return null;
    }

    private static Object expiry() throws Exception {
        client.set("e", 1, "x").get();
        client.set("f", 100, "x").get();
        Thread.sleep(2200);
        same(null, client.get("e"));
        same("x", client.get("f"));
        return null;
    }

    private static Object awkwardAndLarge() throws Exception {
        byte[] awkward = everyByte(1);
        byte[] end = "\r\nEND\r\nVALUE a 0 1\r\n".getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(end, 0, awkward, 100, end.length);
        client.set("bin", 0, awkward).get();
        sameBytes(awkward, client.get("bin"));
        byte[] large = everyByte(3900);
        client.set("large", 0, large).get();
        sameBytes(large, client.get("large"));
        client.set("empty", 0, "").get();
        same("", client.get("empty"));
        return null;
    }

    private static Object compressed() throws Exception {
        String long_ = String.join("", Collections.nCopies(50000, "repeated "));
        client.set("zip", 0, long_).get();
        same(long_, client.get("zip"));
        return null;
    }

    private static Object keys() throws Exception {
        String longest = String.join("", Collections.nCopies(250, "k"));
        client.set(longest, 0, "x").get();
        same("x", client.get(longest));
        client.set("grüße-世界", 0, "x").get();
        same("x", client.get("grüße-世界"));
        return null;
    }

    private static Object delete() throws Exception {
        client.set("x", 0, "x").get();
        same(true, client.delete("x").get());
        same(false, client.delete("x").get());
        return null;
    }

    private static Object statsAndVersion() throws Exception {
        Map<String, String> stats = client.getStats().values().iterator().next();
        same(true, stats.containsKey("pid") && stats.containsKey("curr_items"));
        same(1, client.getVersions().size());
        return null;
    }

    private static Object flush() throws Exception {
        client.set("z", 0, "x").get();
        same(true, client.flush().get());
        same(null, client.get("z"));
        return null;
    }

    /** Connects, checks, leaves with the exit status of the suite. */
    public static void main(String[] arguments) throws Exception {
        System.setOut(new java.io.PrintStream(System.out, true, "UTF-8"));
        SerializingTranscoder transcoder = new SerializingTranscoder(2_000_000);
        transcoder.setCompressionThreshold(100_000);
        ConnectionFactoryBuilder factory = new ConnectionFactoryBuilder()
            .setProtocol(ConnectionFactoryBuilder.Protocol.valueOf(arguments[2].toUpperCase()))
            .setOpTimeout(20_000)
            .setTranscoder(transcoder);
        title = "spymemcached " + arguments[2];
        if (arguments.length > 3) {
            title += " with a login";
            factory.setAuthDescriptor(new AuthDescriptor(
                new String[] {"PLAIN"}, new PlainCallbackHandler(arguments[3], arguments[4])));
        }
        client = new MemcachedClient(
            factory.build(),
            Collections.singletonList(new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]))));
        check("set and get", Spymemcached::setGet);
        check("several keys", Spymemcached::several);
        check("add and replace", Spymemcached::addReplace);
        check("append and prepend", Spymemcached::appendPrepend);
        check("compare and swap", Spymemcached::compareAndSwap);
        check("arithmetic", Spymemcached::arithmetic);
        check("touch", Spymemcached::touch);
        check("expiry", Spymemcached::expiry);
        check("awkward and large values", Spymemcached::awkwardAndLarge);
        check("compressed values", Spymemcached::compressed);
        check("keys", Spymemcached::keys);
        check("delete", Spymemcached::delete);
        check("stats and version", Spymemcached::statsAndVersion);
        check("flush", Spymemcached::flush);
        client.shutdown(5, TimeUnit.SECONDS);
        System.exit(failed ? 1 : 0);
    }
}
