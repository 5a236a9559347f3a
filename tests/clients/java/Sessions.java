import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.cache.Cache;
import org.springframework.cache.annotation.CacheEvict;
import org.springframework.cache.annotation.CachePut;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.data.redis.cache.BatchStrategies;
import org.springframework.data.redis.cache.BatchStrategy;
import org.springframework.data.redis.cache.RedisCache;
import org.springframework.data.redis.cache.RedisCacheConfiguration;
import org.springframework.data.redis.cache.RedisCacheManager;
import org.springframework.data.redis.cache.RedisCacheWriter;
import org.springframework.data.redis.cache.ResetStrategy;
import org.springframework.data.redis.connection.RedisConnection;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.ReactiveRedisTemplate;
import org.springframework.data.redis.core.ReactiveStringRedisTemplate;
import org.springframework.data.redis.core.RedisTemplate;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.listener.ChannelTopic;
import org.springframework.data.redis.listener.PatternTopic;
import org.springframework.data.redis.listener.RedisMessageListenerContainer;
import org.springframework.data.redis.serializer.RedisSerializationContext;
import org.springframework.data.redis.serializer.RedisSerializer;
import org.springframework.session.FindByIndexNameSessionRepository;
import org.springframework.session.FlushMode;
import org.springframework.session.ReactiveSessionRepository;
import org.springframework.session.Session;
import org.springframework.session.SessionRepository;
import org.springframework.session.data.redis.ReactiveRedisIndexedSessionRepository;
import org.springframework.session.data.redis.ReactiveRedisSessionRepository;
import org.springframework.session.data.redis.RedisIndexedSessionRepository;
import org.springframework.session.data.redis.RedisSessionRepository;
import org.springframework.session.data.redis.SortedSetRedisSessionExpirationStore;
import org.springframework.session.data.redis.config.ConfigureNotifyKeyspaceEventsAction;
import org.springframework.session.events.SessionCreatedEvent;

/**
 * Drives Spring Session and Spring Cache against a live server: its arguments are HOST PORT. Prints a line per check:
 * {@code ok NAME} or {@code not ok NAME: REASON}. What Spring Session does on keyspace events is not checked.
 */
public final class Sessions {
    private static final String USER = FindByIndexNameSessionRepository.PRINCIPAL_NAME_INDEX_NAME;
    private static final Duration WAIT_MAX = Duration.ofSeconds(60);
    private static boolean failed;

    private final LettuceConnectionFactory factory;
    private final StringRedisTemplate strings;
    private final RedisTemplate<String, Object> objects = new RedisTemplate<>();
    private final ExecutorService threads = Executors.newCachedThreadPool();

    private Sessions(String host, int port) {
        factory = new LettuceConnectionFactory(host, port);
        factory.afterPropertiesSet();
        factory.start();
        strings = new StringRedisTemplate(factory);
        objects.setKeySerializer(RedisSerializer.string());
        objects.setHashKeySerializer(RedisSerializer.string());
        objects.setConnectionFactory(factory);
        objects.afterPropertiesSet();
    }

    /** One check: it passes if the body throws nothing. */
    private static void check(String name, Callable<?> body) {
        try {
            body.call();
            System.out.println("ok spring-session " + name);
        } catch (Throwable wrong) {
            failed = true;
            System.out.println("not ok spring-session " + name + ": " + String.valueOf(wrong).replace("\n", " "));
        }
    }

    private static void same(Object wanted, Object got) {
        if (!Objects.deepEquals(wanted, got)) {
            throw new AssertionError("expected " + wanted + ", got " + got);
        }
    }

    private static void between(long least, long most, long got) {
        if (got < least || got > most) {
            throw new AssertionError("expected " + least + " to " + most + ", got " + got);
        }
    }

    /** Fails unless the body throws an exception of this kind. */
    private static void refused(Class<? extends Exception> kind, Callable<?> body) throws Exception {
        try {
            body.call();
        } catch (Exception error) {
            if (kind.isInstance(error)) {
                return;
            }
            throw error;
        }
        throw new AssertionError("no " + kind.getSimpleName() + " was thrown");
    }

    /** Looks again and again until it happens; fails if that takes too long. */
    private static void until(Callable<Boolean> happens) throws Exception {
        long end = System.nanoTime() + WAIT_MAX.toNanos();
        while (!happens.call()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("it never happened");
            }
            Thread.sleep(20);
        }
    }

    /** Calls the body in each of several threads at once, with the number of the thread. */
    private void together(int count, Numbered body) throws Exception {
        CyclicBarrier start = new CyclicBarrier(count);
        List<Future<?>> all = new CopyOnWriteArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            all.add(threads.submit(() -> {
                start.await();
                body.call(number);
                return null;
            }));
        }
        for (Future<?> each : all) {
            each.get(WAIT_MAX.toSeconds(), TimeUnit.SECONDS);
        }
    }

    /** What a thread does. */
    private interface Numbered {
        void call(int number) throws Exception;
    }

    private static byte[] everyByte(int count) {
        byte[] bytes = new byte[count];
        for (int i = 0; i < count; i++) {
            bytes[i] = (byte) i;
        }
        return bytes;
    }

    /** The same repository, for sessions whose class has no name outside its package. */
    @SuppressWarnings("unchecked")
    private static SessionRepository<Session> open(SessionRepository<?> repository) {
        return (SessionRepository<Session>) repository;
    }

    @SuppressWarnings("unchecked")
    private static ReactiveSessionRepository<Session> open(ReactiveSessionRepository<?> repository) {
        return (ReactiveSessionRepository<Session>) repository;
    }

    private static Session saved(SessionRepository<Session> repository, Map<String, Object> attributes) {
        Session session = repository.createSession();
        attributes.forEach(session::setAttribute);
        repository.save(session);
        return session;
    }

    private void sessions() {
        SessionRepository<Session> repository = open(new RedisSessionRepository(objects));
        check("a session is saved and found", () -> {
            Session made = repository.createSession();
            same(null, repository.findById(made.getId()));
            made.setAttribute("name", "grüße-世界");
            made.setAttribute("count", 5);
            made.setAttribute("bytes", everyByte(100_000));
            made.setAttribute("basket", new HashMap<>(Map.of("book", 2L)));
            repository.save(made);
            Session found = repository.findById(made.getId());
            same(Set.of("name", "count", "bytes", "basket"), found.getAttributeNames());
            same("grüße-世界", found.getAttribute("name"));
            same((Integer) 5, found.getAttribute("count"));
            same(true, Arrays.equals(everyByte(100_000), found.<byte[]>getAttribute("bytes")));
            same(Map.of("book", 2L), found.getAttribute("basket"));
            same(made.getCreationTime().toEpochMilli(), found.getCreationTime().toEpochMilli());
            same(Duration.ofMinutes(30), found.getMaxInactiveInterval());
            between(1700, 1800, strings.getExpire(key(made)));
            return null;
        });
        check("an attribute is changed, another removed", () -> {
            String id = saved(repository, Map.of("a", 1, "b", 2, "c", 3)).getId();
            Session session = repository.findById(id);
            session.setAttribute("a", "new");
            session.removeAttribute("b");
            repository.save(session);
            Session found = repository.findById(id);
            same(Set.of("a", "c"), found.getAttributeNames());
            same("new", found.getAttribute("a"));
            same((Integer) 3, found.getAttribute("c"));
            return null;
        });
        check("a session is deleted", () -> {
            String id = saved(repository, Map.of("a", 1)).getId();
            Session late = repository.findById(id);
            repository.deleteById(id);
            same(null, repository.findById(id));
            late.setAttribute("a", 2);
            refused(IllegalStateException.class, () -> {
                repository.save(late);
                return null;
            });
            same(null, repository.findById(id));
            return null;
        });
        check("the ID of a session changes", () -> {
            String old = saved(repository, Map.of("a", 1)).getId();
            Session session = repository.findById(old);
            String id = session.changeSessionId();
            repository.save(session);
            same(null, repository.findById(old));
            same((Integer) 1, repository.findById(id).getAttribute("a"));
            between(1700, 1800, strings.getExpire(key(session)));
            repository.deleteById(id);
            session.changeSessionId();
            refused(IllegalStateException.class, () -> {
                repository.save(session);
                return null;
            });
            return null;
        });
        check("a session that is used lives longer", () -> {
            Session session = repository.createSession();
            session.setMaxInactiveInterval(Duration.ofSeconds(1000));
            session.setLastAccessedTime(Instant.now().minusSeconds(800));
            repository.save(session);
            between(1, 200, strings.getExpire(key(session)));
            session = repository.findById(session.getId());
            session.setLastAccessedTime(Instant.now());
            repository.save(session);
            between(900, 1000, strings.getExpire(key(session)));
            session.setMaxInactiveInterval(Duration.ofSeconds(5000));
            repository.save(session);
            between(4900, 5000, strings.getExpire(key(session)));
            return null;
        });
        check("a short session ends", () -> {
            Session session = repository.createSession();
            session.setMaxInactiveInterval(Duration.ofSeconds(1));
            session.setAttribute("a", 1);
            repository.save(session);
            until(() -> !strings.hasKey(key(session)));
            same(null, repository.findById(session.getId()));
            session.setAttribute("a", 2);
            refused(IllegalStateException.class, () -> {
                repository.save(session);
                return null;
            });
            return null;
        });
        check("two threads change one session", () -> {
            String id = saved(repository, Map.of("left", "alone")).getId();
            together(2, number -> {
                String own = "of thread " + number;
                for (int i = 0; i < 100; i++) {
                    Session session = repository.findById(id);
                    same(i == 0 ? null : (Integer) (i - 1), session.getAttribute(own));
                    session.setAttribute(own, i);
                    repository.save(session);
                }
            });
            Session session = repository.findById(id);
            same((Integer) 99, session.getAttribute("of thread 0"));
            same((Integer) 99, session.getAttribute("of thread 1"));
            same("alone", session.getAttribute("left"));
            return null;
        });
        check("a session that is saved at once", () -> {
            RedisSessionRepository immediate = new RedisSessionRepository(objects);
            immediate.setFlushMode(FlushMode.IMMEDIATE);
            immediate.setRedisKeyNamespace("immediate");
            Session session = open(immediate).createSession();
            same(true, strings.hasKey("immediate:sessions:" + session.getId()));
            session.setAttribute("a", 1);
            same((Integer) 1, open(immediate).findById(session.getId()).getAttribute("a"));
            session.removeAttribute("a");
            same(Set.of(), open(immediate).findById(session.getId()).getAttributeNames());
            return null;
        });
    }

    private static String key(Session session) {
        return RedisSessionRepository.DEFAULT_KEY_NAMESPACE + ":sessions:" + session.getId();
    }

    private RedisIndexedSessionRepository indexed(String namespace) {
        RedisIndexedSessionRepository repository = new RedisIndexedSessionRepository(objects);
        repository.setRedisKeyNamespace(namespace);
        return repository;
    }

    private void indexedSessions() {
        check("the setting of keyspace events", () -> {
            try (RedisConnection connection = factory.getConnection()) {
                new ConfigureNotifyKeyspaceEventsAction().configure(connection);
                String name = "notify-keyspace-events";
                String set = connection.serverCommands().getConfig(name).getProperty(name);
                same(true, set.contains("E") && set.contains("g") && set.contains("x"));
            }
            return null;
        });
        check("sessions of a user", () -> {
            RedisIndexedSessionRepository users = indexed("users");
            SessionRepository<Session> repository = open(users);
            String first = saved(repository, Map.of(USER, "anna", "a", 1)).getId();
            String second = saved(repository, Map.of(USER, "anna")).getId();
            String other = saved(repository, Map.of(USER, "ben")).getId();
            String nobody = saved(repository, Map.of("a", 1)).getId();
            same(Set.of(first, second), users.findByPrincipalName("anna").keySet());
            same((Integer) 1, users.findByPrincipalName("anna").get(first).getAttribute("a"));
            same(Set.of(other), users.findByPrincipalName("ben").keySet());
            same(Map.of(), users.findByPrincipalName("nobody"));
            users.deleteById(second);
            same(null, users.findById(second));
            same(Set.of(first), users.findByPrincipalName("anna").keySet());
            Session session = repository.findById(nobody);
            session.setAttribute(USER, "anna");
            repository.save(session);
            same(Set.of(first, nobody), users.findByPrincipalName("anna").keySet());
            session = repository.findById(first);
            session.setAttribute(USER, "ben");
            repository.save(session);
            same(Set.of(nobody), users.findByPrincipalName("anna").keySet());
            same(Set.of(other, first), users.findByPrincipalName("ben").keySet());
            session.removeAttribute(USER);
            repository.save(session);
            same(Set.of(other), users.findByPrincipalName("ben").keySet());
            return null;
        });
        check("the ID of a user's session changes", () -> {
            RedisIndexedSessionRepository renamed = indexed("renamed");
            String old = saved(open(renamed), Map.of(USER, "anna")).getId();
            Session session = renamed.findById(old);
            String id = session.changeSessionId();
            open(renamed).save(session);
            same(null, renamed.findById(old));
            same(Set.of(id), renamed.findByPrincipalName("anna").keySet());
            same(false, strings.hasKey("renamed:sessions:expires:" + old));
            between(1700, 1800, strings.getExpire("renamed:sessions:expires:" + id));
            between(2000, 2100, strings.getExpire("renamed:sessions:" + id));
            return null;
        });
        check("a user's short session ends", () -> {
            RedisIndexedSessionRepository ending = indexed("ending");
            ending.setDefaultMaxInactiveInterval(Duration.ofSeconds(1));
            String id = saved(open(ending), Map.of(USER, "anna")).getId();
            until(() -> !strings.hasKey("ending:sessions:expires:" + id));
            until(() -> ending.findById(id) == null);
            same(Map.of(), ending.findByPrincipalName("anna"));
            return null;
        });
        check("the event of a new session", () -> {
            RedisIndexedSessionRepository heard = indexed("heard");
            List<String> names = new CopyOnWriteArrayList<>();
            heard.setApplicationEventPublisher(event -> {
                if (event instanceof SessionCreatedEvent created) {
                    names.add(created.getSessionId() + created.getSession().getAttribute("a"));
                }
            });
            RedisMessageListenerContainer container = new RedisMessageListenerContainer();
            container.setConnectionFactory(factory);
            container.addMessageListener(heard, List.of(new ChannelTopic(heard.getSessionDeletedChannel()),
                new ChannelTopic(heard.getSessionExpiredChannel()),
                new PatternTopic(heard.getSessionCreatedChannelPrefix() + "*")));
            container.afterPropertiesSet();
            container.start();
            String id = saved(open(heard), Map.of("a", 1)).getId();
            until(() -> names.contains(id + 1));
            same(List.of(id + 1), names);
            container.destroy();
            return null;
        });
        check("the clean-up of sessions that ended", () -> {
            RedisIndexedSessionRepository cleaned = indexed("cleaned");
            long minute = 60_000;
            // It looks at the minute before this one; where a new minute begins on the way, it looks at another one.
            until(() -> {
                Session session = open(cleaned).createSession();
                long ended = System.currentTimeMillis() / minute * minute;
                session.setLastAccessedTime(Instant.ofEpochMilli(ended - 1000).minus(Duration.ofMinutes(30)));
                open(cleaned).save(session);
                String key = "cleaned:expirations:" + ended;
                same(true, objects.opsForSet().isMember(key, "expires:" + session.getId()));
                cleaned.cleanUpExpiredSessions();
                return !strings.hasKey(key);
            });
            return null;
        });
        check("a sorted set of the ends of sessions", () -> {
            RedisIndexedSessionRepository sorted = indexed("sorted");
            SortedSetRedisSessionExpirationStore store = new SortedSetRedisSessionExpirationStore(objects, "sorted");
            sorted.setExpirationStore(store);
            String key = "sorted:sessions:expirations";
            Session session = saved(open(sorted), Map.of("a", 1));
            long end = session.getLastAccessedTime().toEpochMilli() + Duration.ofMinutes(30).toMillis();
            same((double) end, objects.opsForZSet().score(key, session.getId()));
            session.setLastAccessedTime(Instant.ofEpochMilli(1));
            open(sorted).save(session);
            same((double) Duration.ofMinutes(30).plusMillis(1).toMillis(),
                objects.opsForZSet().score(key, session.getId()));
            store.cleanupExpiredSessions();
            store.remove(session.getId());
            same(null, objects.opsForZSet().score(key, session.getId()));
            return null;
        });
    }

    private void reactiveSessions() {
        RedisSerializationContext<String, Object> context = RedisSerializationContext
            .<String, Object>newSerializationContext(RedisSerializer.java()).key(RedisSerializer.string())
            .hashKey(RedisSerializer.string()).build();
        ReactiveRedisTemplate<String, Object> reactive = new ReactiveRedisTemplate<>(factory, context);
        check("reactive sessions", () -> {
            ReactiveRedisSessionRepository plain = new ReactiveRedisSessionRepository(reactive);
            plain.setRedisKeyNamespace("reactive");
            ReactiveSessionRepository<Session> repository = open(plain);
            Session session = changed(repository);
            String key = "reactive:sessions:" + session.getId();
            between(1700, 1800, strings.getExpire(key));
            session.setMaxInactiveInterval(Duration.ofSeconds(-1));
            repository.save(session).block(WAIT_MAX);
            same(-1L, strings.getExpire(key));
            session.setMaxInactiveInterval(Duration.ofSeconds(1));
            repository.save(session).block(WAIT_MAX);
            until(() -> !strings.hasKey(key));
            same(null, repository.findById(session.getId()).block(WAIT_MAX));
            session = changed(repository);
            repository.deleteById(session.getId()).block(WAIT_MAX);
            same(null, repository.findById(session.getId()).block(WAIT_MAX));
            return null;
        });
        check("reactive sessions of a user", () -> {
            ReactiveRedisIndexedSessionRepository users =
                new ReactiveRedisIndexedSessionRepository(reactive, new ReactiveStringRedisTemplate(factory));
            users.setRedisKeyNamespace("flow");
            List<String> heard = new CopyOnWriteArrayList<>();
            users.setEventPublisher(event -> {
                if (event instanceof SessionCreatedEvent created) {
                    heard.add(created.getSessionId());
                }
            });
            users.afterPropertiesSet();
            ReactiveSessionRepository<Session> repository = open(users);
            Session session = changed(repository);
            session.setAttribute(ReactiveRedisIndexedSessionRepository.PRINCIPAL_NAME_INDEX_NAME, "anna");
            repository.save(session).block(WAIT_MAX);
            same(Set.of(session.getId()), users.findByPrincipalName("anna").block(WAIT_MAX).keySet());
            String id = session.changeSessionId();
            repository.save(session).block(WAIT_MAX);
            same(Set.of(id), users.findByPrincipalName("anna").block(WAIT_MAX).keySet());
            double end = session.getLastAccessedTime().toEpochMilli() + Duration.ofMinutes(30).toMillis();
            same(end, objects.opsForZSet().score("flow:sessions:expirations", id));
            users.deleteById(id).block(WAIT_MAX);
            same(Map.of(), users.findByPrincipalName("anna").block(WAIT_MAX));
            same(null, objects.opsForZSet().score("flow:sessions:expirations", id));
            // The first sessions may come before the subscription.
            until(() -> {
                Session next = repository.createSession().block(WAIT_MAX);
                repository.save(next).block(WAIT_MAX);
                return !heard.isEmpty();
            });
            users.destroy();
            return null;
        });
    }

    /** A new session of which a second save changes attributes and the ID. */
    private static Session changed(ReactiveSessionRepository<Session> repository) {
        Session session = repository.createSession().block(WAIT_MAX);
        session.setAttribute("a", 1);
        session.setAttribute("b", 2);
        repository.save(session).block(WAIT_MAX);
        String old = session.getId();
        session = repository.findById(old).block(WAIT_MAX);
        session.removeAttribute("b");
        session.setAttribute("c", 3);
        String id = session.changeSessionId();
        repository.save(session).block(WAIT_MAX);
        same(null, repository.findById(old).block(WAIT_MAX));
        session = repository.findById(id).block(WAIT_MAX);
        same(Set.of("a", "c"), session.getAttributeNames());
        return session;
    }

    /** A service as applications write them. */
    public static class Books {
        private final AtomicInteger calls;

        Books(AtomicInteger calls) {
            this.calls = calls;
        }

        /** Takes a while; nobody else may make the same title meanwhile. */
        @Cacheable(cacheNames = "titles", sync = true)
        public String title(int number) throws InterruptedException {
            calls.incrementAndGet();
            Thread.sleep(5);
            return number < 0 ? null : "title " + number;
        }

        /** Keeps what is not empty. */
        @Cacheable(cacheNames = "authors", key = "'by ' + #p0", condition = "#p0 > 0", unless = "#result.isEmpty()")
        public String author(int number) {
            calls.incrementAndGet();
            return number > 100 ? "" : "author " + number;
        }

        /** Keeps what it returns. */
        @CachePut(cacheNames = "titles", key = "#p0")
        public String rename(int number, String title) {
            return title;
        }

        /** Forgets one title. */
        @CacheEvict(cacheNames = "titles")
        public void forget(int number) {}

        /** Forgets all titles. */
        @CacheEvict(cacheNames = "titles", allEntries = true)
        public void forgetAll() {}
    }

    /** Has the annotations mean something. */
    @EnableCaching
    public static class Caching {}

    private RedisCacheManager manager(boolean locks, BatchStrategy strategy, RedisCacheConfiguration configuration) {
        // By default a write is answered before the server has it.
        RedisCacheWriter writer = RedisCacheWriter.create(factory, with -> {
            with.immediateWrites().batchStrategy(strategy);
            if (locks) {
                with.enableLocking(lock -> lock.sleepTime(Duration.ofMillis(5)));
            }
        });
        RedisCacheManager manager = RedisCacheManager.builder(writer).cacheDefaults(configuration).enableStatistics()
            .build();
        manager.afterPropertiesSet();
        return manager;
    }

    private void caches() {
        RedisCacheConfiguration configuration = RedisCacheConfiguration.defaultCacheConfig();
        RedisCacheManager locking = manager(true, BatchStrategies.scan(100), configuration);
        check("methods with annotations", () -> {
            annotations(locking);
            return null;
        });
        check("four threads load a value once", () -> {
            Cache cache = locking.getCache("once");
            AtomicInteger calls = new AtomicInteger();
            for (int i = 0; i < 20; i++) {
                String key = "key " + i;
                together(4, number -> same("loaded", cache.get(key, () -> {
                    calls.incrementAndGet();
                    Thread.sleep(5);
                    return "loaded";
                })));
            }
            same(20, calls.get());
            same(false, strings.hasKey("once~lock"));
            return null;
        });
        check("a loader that fails leaves no lock", () -> {
            Cache cache = locking.getCache("failing");
            refused(Cache.ValueRetrievalException.class, () -> cache.get(1, () -> {
                throw new IllegalStateException("no value");
            }));
            same(false, strings.hasKey("failing~lock"));
            same(null, cache.get(1));
            same("made", cache.get(1, () -> "made"));
            return null;
        });
        check("a lock that somebody holds is waited for", () -> {
            Cache cache = locking.getCache("held");
            strings.opsForValue().set("held~lock", "", Duration.ofMillis(300));
            cache.put(1, "late");
            same(false, strings.hasKey("held~lock"));
            same("late", cache.get(1, String.class));
            return null;
        });
        check("clearing with KEYS and with SCAN", () -> {
            for (BatchStrategy strategy : List.of(BatchStrategies.keys(), BatchStrategies.scan(50))) {
                clear(manager(false, strategy, configuration));
                clear(manager(true, strategy, configuration));
            }
            return null;
        });
        check("evicting", () -> {
            Cache cache = locking.getCache("evicting");
            cache.put("a", 1);
            cache.put("b", 2);
            cache.evict("a");
            same(null, cache.get("a"));
            same(true, cache.evictIfPresent("b"));
            same(false, cache.evictIfPresent("b"));
            return null;
        });
        check("lifetimes of entries", () -> {
            RedisCacheManager manager = manager(false, BatchStrategies.scan(100), configuration
                .entryTtl((key, value) -> Duration.ofMillis((Integer) value)));
            Cache cache = manager.getCache("lives");
            cache.put("short", 200);
            cache.put("long", 1_000_000);
            between(900, 1000, strings.getExpire("lives::long"));
            until(() -> !strings.hasKey("lives::short"));
            same(null, cache.get("short"));
            same(null, cache.putIfAbsent("short", 500_000));
            between(400, 500, strings.getExpire("lives::short"));
            return null;
        });
        check("a lifetime from the last use", () -> {
            Cache cache = manager(false, BatchStrategies.scan(100), configuration.entryTtl(Duration.ofSeconds(1000))
                .enableTimeToIdle()).getCache("idle");
            cache.put("a", 1);
            strings.expire("idle::a", Duration.ofSeconds(100));
            same((Integer) 1, cache.get("a", Integer.class));
            between(900, 1000, strings.getExpire("idle::a"));
            return null;
        });
        check("null values", () -> {
            Cache cache = locking.getCache("nulls");
            AtomicInteger calls = new AtomicInteger();
            for (int i = 0; i < 3; i++) {
                same(null, cache.get("none", () -> {
                    calls.incrementAndGet();
                    return null;
                }));
            }
            same(1, calls.get());
            same(null, cache.get("none").get());
            Cache strict = manager(false, BatchStrategies.keys(), configuration.disableCachingNullValues())
                .getCache("strict");
            refused(IllegalArgumentException.class, () -> {
                strict.put("none", null);
                return null;
            });
            same(null, strict.get("none"));
            return null;
        });
        check("values of many kinds and sizes", () -> {
            Cache cache = locking.getCache("kinds");
            for (Object value : List.of("", "grüße-世界", 5L, List.of(1, 2), everyByte(900_000))) {
                cache.put("x", value);
                same(true, Objects.deepEquals(value, cache.get("x").get()));
            }
            return null;
        });
        check("statistics", () -> {
            RedisCache cache = (RedisCache) locking.getCache("counted");
            cache.put("a", 1);
            cache.put("b", 2);
            cache.get("a");
            cache.get("a");
            cache.get("absent");
            cache.evict("a");
            var counts = cache.getStatistics();
            same(List.of(2L, 3L, 2L, 1L, 1L), List.of(counts.getPuts(), counts.getGets(), counts.getHits(),
                counts.getMisses(), counts.getDeletes()));
            cache.clearStatistics();
            same(0L, cache.getStatistics().getGets());
            return null;
        });
        check("values for later", () -> {
            Cache cache = locking.getCache("later");
            same(null, cache.retrieve("a").get());
            same("made", cache.retrieve("a", () -> CompletableFuture.completedFuture("made")).get());
            same("made", cache.retrieve("a", () -> CompletableFuture.completedFuture("other")).get());
            same("made", cache.get("a", String.class));
            return null;
        });
        check("all caches of a manager are emptied", () -> {
            RedisCacheWriter writer = RedisCacheWriter.create(factory, with -> with.immediateWrites());
            RedisCacheManager flushing = RedisCacheManager.builder(writer).cacheDefaults(configuration)
                .withResetCachesStrategy(ResetStrategy.flushDb()).build();
            flushing.afterPropertiesSet();
            locking.getCache("kept").put("a", 1);
            flushing.getCache("first").put("a", 1);
            flushing.resetCaches();
            same(Set.of(), strings.keys("*"));
            return null;
        });
    }

    private void annotations(RedisCacheManager manager) throws Exception {
        try (AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext()) {
            context.register(Caching.class);
            context.registerBean(RedisCacheManager.class, () -> manager);
            AtomicInteger calls = new AtomicInteger();
            context.registerBean(Books.class, () -> new Books(calls));
            context.refresh();
            Books books = context.getBean(Books.class);
            for (int i = 0; i < 20; i++) {
                int number = i;
                together(4, thread -> same("title " + number, books.title(number)));
            }
            same(20, calls.getAndSet(0));
            same(null, books.title(-1));
            same(null, books.title(-1));
            same(1, calls.getAndSet(0));
            books.rename(3, "new title");
            same("new title", books.title(3));
            books.forget(3);
            same("title 3", books.title(3));
            same(1, calls.getAndSet(0));
            books.forgetAll();
            same(Set.of(), strings.keys("titles::*"));
            for (int number : new int[] {7, 7, 0, 0, 101, 101}) {
                books.author(number);
            }
            same(5, calls.get());
            same(Set.of("authors::by 7"), strings.keys("authors::*"));
        }
    }

    /** Fills two caches whose names begin alike, and empties one of them. */
    private void clear(RedisCacheManager manager) {
        RedisCache cleared = (RedisCache) manager.getCache("cleared");
        Cache neighbour = manager.getCache("cleared-not");
        neighbour.put("x", "stays");
        for (int i = 0; i < 300; i++) {
            cleared.put("a" + i, i);
            cleared.put("b" + i, i);
        }
        cleared.clear("a*");
        same(300, strings.keys("cleared::*").size());
        same((Integer) 299, cleared.get("b299", Integer.class));
        cleared.clear();
        same(Set.of(), strings.keys("cleared::*"));
        same(null, cleared.get("b299"));
        cleared.put("c", 1);
        same(true, cleared.invalidate());
        same(false, cleared.invalidate());
        same("stays", neighbour.get("x", String.class));
    }

    /** Connects, checks, leaves with the exit status of the suite. */
    public static void main(String[] arguments) {
        System.setOut(new java.io.PrintStream(System.out, true, java.nio.charset.StandardCharsets.UTF_8));
        Sessions suite = new Sessions(arguments[0], Integer.parseInt(arguments[1]));
        suite.sessions();
        suite.indexedSessions();
        suite.reactiveSessions();
        suite.caches();
        System.exit(failed ? 1 : 0);
    }
}
