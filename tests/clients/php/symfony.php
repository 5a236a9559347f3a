<?php
/** The caches, locks, limiters and sessions of Symfony. */

require __DIR__ . '/symfony_checks.php';

use Symfony\Component\Cache\Adapter\AdapterInterface;
use Symfony\Component\Cache\Adapter\MemcachedAdapter;
use Symfony\Component\Cache\Adapter\RedisAdapter;
use Symfony\Component\Cache\Adapter\RedisTagAwareAdapter;
use Symfony\Component\Cache\Marshaller\DefaultMarshaller;
use Symfony\Component\Cache\Marshaller\DeflateMarshaller;
use Symfony\Component\HttpFoundation\Session\Storage\Handler\AbstractSessionHandler;
use Symfony\Component\HttpFoundation\Session\Storage\Handler\MemcachedSessionHandler;
use Symfony\Component\HttpFoundation\Session\Storage\Handler\RedisSessionHandler;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Lock\Store\MemcachedStore;
use Symfony\Component\Lock\Store\RedisStore;

/** A logger that keeps what it is told. */
final class Listener extends Psr\Log\AbstractLogger
{
    public array $heard = [];

    public function log($level, $message, array $context = []): void
    {
        $this->heard[] = strtr($message, ['{exception}' => '']) . ($context['exception'] ?? '');
    }
}

/** With a client for Redis. */
final class SymfonyRedis extends SymfonyChecks
{
    public function __construct(string $label, string $host, int $port, private string $class)
    {
        needs_resp($host, $port);
        parent::__construct($label, $host, $port);
    }

    public function clearing_by_prefix(): void
    {
        $pool = $this->pool('prefixed');
        foreach (['user.1', 'user.2', 'page.1'] as $key) {
            $pool->save($pool->getItem($key)->set($key));
        }
        same([$pool->clear('user.'), $pool->hasItem('user.1'), $pool->hasItem('page.1')], [true, false, true]);
    }

    public function compressing(): void
    {
        $client = symfony_redis($this->host, $this->port, $this->class);
        $pool = new RedisAdapter($client, 'deflated', 0, new DeflateMarshaller(new DefaultMarshaller()));
        $value = ['long' => str_repeat('compressible ', 20_000), 'binary' => AWKWARD];
        $pool->save($pool->getItem('z')->set($value));
        same($pool->getItem('z')->get(), $value);
        between(0, $client->strlen('deflated:z'), 20_000);
    }

    /** Several may read while nobody writes. */
    public function shared_locks(): void
    {
        [$one, $other] = [new LockFactory($this->store()), new LockFactory($this->store())];
        $reader = $one->createLock('page');
        [$second, $writer] = [$other->createLock('page'), $other->createLock('page')];
        same([$reader->acquireRead(), $second->acquireRead(), $writer->acquire()], [true, true, false]);
        $second->release();
        same([$writer->acquire(), $reader->acquire(), $second->acquireRead()], [false, true, false]);
        $reader->release();
        same([$writer->acquire(), $reader->acquireRead()], [true, false]);
        $writer->release();
        same([$reader->acquireRead(), $reader->isAcquired()], [true, true]);
        $reader->release();
    }

    /** A lock may be had for less than a second. */
    public function brief_locks(): void
    {
        $brief = (new LockFactory($this->store()))->createLock('brief', 0.5);
        $patient = (new LockFactory($this->store()))->createLock('brief', 60);
        same($brief->acquire(), true);
        until(fn () => $patient->acquire());
        same([$brief->isAcquired(), $patient->isAcquired()], [false, true]);
        $patient->release();
    }

    /** Symfony stores nothing where the set of a tag may be evicted before the items. */
    public function tag_aware_adapter_that_needs_another_policy(): void
    {
        $client = symfony_redis($this->host, $this->port, Redis::class);
        same($client->config('SET', 'maxmemory-policy', 'allkeys-lru'), true);
        $pool = new RedisTagAwareAdapter(symfony_redis($this->host, $this->port, $this->class));
        $pool->setLogger($logger = new Listener());
        same($pool->save($pool->getItem('k')->set('v')->tag('t')), false);
        same(str_contains(implode($logger->heard), '"allkeys-lru" is *not* supported by RedisTagAwareAdapter'), true);
    }

    protected function pool(string $namespace, int $lifetime = 0): AdapterInterface
    {
        return new RedisAdapter(symfony_redis($this->host, $this->port, $this->class), $namespace, $lifetime);
    }

    protected function store(): PersistingStoreInterface
    {
        return new RedisStore(symfony_redis($this->host, $this->port, $this->class), 60);
    }

    protected function session_handler(): AbstractSessionHandler
    {
        return new RedisSessionHandler(symfony_redis($this->host, $this->port, $this->class), ['ttl' => 100]);
    }
}

/** With php-memcached, in one of the two protocols. */
final class SymfonyMemcached extends SymfonyChecks
{
    public function __construct(string $label, string $host, int $port, private bool $binary)
    {
        needs_memcached($host, $port);
        parent::__construct($label, $host, $port);
    }

    protected function pool(string $namespace, int $lifetime = 0): AdapterInterface
    {
        return new MemcachedAdapter($this->client(), $namespace, $lifetime);
    }

    protected function store(): PersistingStoreInterface
    {
        return new MemcachedStore($this->client(), 60);
    }

    protected function session_handler(): AbstractSessionHandler
    {
        return new MemcachedSessionHandler($this->client(), ['ttl' => 100]);
    }

    /** A connection of its own. */
    private function client(): Memcached
    {
        $options = ['binary_protocol' => $this->binary, 'prefix_key' => $this->binary ? 'binary.' : 'text.'];
        return MemcachedAdapter::createConnection("memcached://$this->host:$this->port", $options);
    }
}

return fn (string $host, int $port): array => [[
    'Symfony phpredis' => fn (string $label) => new SymfonyRedis($label, $host, $port, Redis::class),
    'Symfony Predis' => fn (string $label) => new SymfonyRedis($label, $host, $port, Predis\Client::class),
    'Symfony memcached text' => fn (string $label) => new SymfonyMemcached($label, $host, $port, false),
    'Symfony memcached binary' => fn (string $label) => new SymfonyMemcached($label, $host, $port, true),
]];
