<?php
/** The caches, locks and limiters of Laravel. */

require 'Predis/autoload.php';
require 'Psr/SimpleCache/autoload.php';
require 'Illuminate/Cache/autoload.php';
require 'Illuminate/Redis/autoload.php';
require 'Illuminate/Session/autoload.php';
require __DIR__ . '/laravel_checks.php';

use Illuminate\Cache\MemcachedConnector;
use Illuminate\Cache\MemcachedStore;
use Illuminate\Cache\RedisStore;
use Illuminate\Cache\Repository;
use Illuminate\Cache\TaggableStore;
use Illuminate\Contracts\Redis\LimiterTimeoutException;
use Illuminate\Redis\Connections\Connection;
use Illuminate\Redis\RedisManager;

/** With one of Laravel's drivers for Redis: `phpredis` or `predis`. */
final class LaravelRedis extends LaravelChecks
{
    public function __construct(string $label, string $host, int $port, private string $driver)
    {
        needs_resp($host, $port);
        parent::__construct($label, $host, $port);
    }

    /** A flush leaves other databases alone. */
    public function flushed(): void
    {
        $cache = $this->cache();
        [$plain, $key] = [$this->plain(), "of $this->driver"];
        $plain->select(0);
        $plain->set($key, 'stays');
        $cache->put('k', 'v', 100);
        same([$cache->flush(), $cache->get('k'), $plain->get($key)], [true, null, 'stays']);
    }

    /** The keys have the prefix of the connections before that of the cache. */
    public function prefixes(): void
    {
        $this->cache()->put('where', 'here', 100);
        $plain = $this->plain();
        same($plain->get('app_cache:where'), serialize('here'));
        between(90, $plain->ttl('app_cache:where'), 100);
        $this->cache()->forever('number', 7);
        same($plain->get('app_cache:number'), '7');
    }

    public function tags_in_sets(): void
    {
        $cache = $this->cache();
        $tagged = $cache->tags(['people', 'artists']);
        foreach (range(1, 1500) as $i) {
            $tagged->put("p$i", $i, 100);
        }
        $tagged->forever('ever', 'x');
        same([$tagged->increment('count', 5), (int) $tagged->get('count')], [5, 5]);
        $sets = preg_grep('/:(standard|forever)_ref$/', $this->plain()->keys('app_cache:*'));
        same([count($sets), (int) $tagged->get('p1500'), $tagged->get('ever')], [4, 1500, 'x']);
        same([$cache->tags('artists')->flush(), $tagged->get('p1'), $tagged->get('ever')], [true, null, null]);
        $left = preg_grep('/app_cache:[0-9a-f]{40}:/', $this->plain()->keys('app_cache:*'));
        same(array_values($left), []);
    }

    public function throttle(): void
    {
        $connection = $this->manager()->connection();
        $ask = fn (string $name) => $connection->throttle($name)->allow(3)->every(600)->block(0)
            ->then(fn () => 'done', fn () => 'refused');
        same(array_map(fn () => $ask('user'), range(1, 5)), ['done', 'done', 'done', 'refused', 'refused']);
        same($ask('other'), 'done');
        $refused = fn () => $connection->throttle('user')->allow(3)->every(600)->block(0)->then(fn () => 'done');
        raises(LimiterTimeoutException::class, '', $refused);
    }

    public function throttle_that_ends(): void
    {
        $connection = $this->manager()->connection();
        $ask = fn (int $seconds) => $connection->throttle('brief')->allow(2)->every(1)->block($seconds)
            ->then(fn () => 'done', fn () => 'refused');
        same([$ask(0), $ask(0), $ask(30)], ['done', 'done', 'done']);
    }

    public function throttle_in_processes(): void
    {
        $done = in_processes(function (): int {
            $limiter = $this->manager()->connection()->throttle('crowd')->allow(30)->every(600)->block(0);
            return array_sum(array_map(fn () => $limiter->then(fn () => 1, fn () => 0), range(1, 15)));
        });
        same(array_sum($done), 30);
    }

    public function funnel(): void
    {
        $connection = $this->manager()->connection();
        $ask = fn (callable $work) => $connection->funnel('jobs')->limit(2)->releaseAfter(60)->block(0)
            ->then($work, fn () => 'refused');
        $nested = $ask(fn () => ['first', $ask(fn () => ['second', $ask(fn () => 'third')])]);
        same($nested, ['first', ['second', 'refused']]);
        same($ask(fn () => 'again'), 'again');
        raises(Failed::class, 'broken', fn () => $ask(fn () => throw new Failed('broken')));
        same($ask(fn () => $ask(fn () => 'both are free')), 'both are free');
    }

    public function funnel_in_processes(): void
    {
        $most = in_processes(function (): int {
            $connection = $this->manager()->connection();
            $limiter = $connection->funnel('shared jobs')->limit(2)->releaseAfter(60)->block(0);
            $most = 0;
            until_times(10, function () use ($connection, $limiter, &$most): bool {
                return $limiter->then(function () use ($connection, &$most): bool {
                    $most = max($most, $connection->incr('running'));
                    $connection->decr('running');
                    return (bool) $connection->incr('jobs');
                }, fn () => false);
            });
            return $most;
        });
        same([max($most) <= 2, (int) $this->manager()->connection()->get('jobs')], [true, PROCESSES * 10]);
    }

    /** What the facade `Redis` offers, with the signatures of Laravel. */
    public function commands(): void
    {
        $connection = $this->manager()->connection();
        holds($connection->set('k', 'v', 'EX', 100, 'NX'));
        same([$connection->get('k'), $connection->get('absent'), $connection->mget(['k', 'absent'])],
            ['v', null, ['v', null]]);
        same([$connection->setnx('k', 'w'), $connection->del('k'), $connection->exists('k')], [0, 1, 0]);
        $connection->hmset('h', ['a' => '1', 'b' => '2']);
        same([$connection->hmget('h', 'a', 'absent')[0], $connection->hgetall('h')], ['1', ['a' => '1', 'b' => '2']]);
        same([$connection->sadd('s', 'x', 'y'), $connection->zadd('z', ['a' => 1, 'b' => 2])], [2, 2]);
        same($connection->zrangebyscore('z', '2', '+inf', ['limit' => ['offset' => 0, 'count' => 1]]), ['b']);
        [$cursor, $found] = [null, []];
        while ($page = $connection->sscan('s', $cursor ?? '0')) {
            [$cursor, $some] = $page;
            array_push($found, ...$some);
            if ((int) $cursor === 0) {
                break;
            }
        }
        same_values($found, ['x', 'y']);
        same($connection->eval("return {KEYS[1], redis.call('SCARD', KEYS[1])}", 1, 's'), ['app_s', 2]);
        $script = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
        same($connection->eval($script, 1, 'n', 5), 5);
        $answers = $connection->pipeline(fn ($pipe) => $pipe->incr('n') && $pipe->get('n'));
        same($answers, [6, '6']);
        $answers = $connection->transaction(fn ($transaction) => $transaction->incr('n') && $transaction->get('n'));
        same($answers, [7, '7']);
        same([$connection->executeRaw(['TTL', 'app_n']), $connection->command('incr', ['n'])], [-1, 8]);
    }

    protected function store(): TaggableStore
    {
        return new RedisStore($this->manager(), 'cache', 'cache');
    }

    /** Connections of their own, to a database of this driver. */
    private function manager(): RedisManager
    {
        $address = ['host' => $this->host, 'port' => $this->port, 'database' => $this->driver === 'predis' ? 4 : 3];
        $address += $this->driver === 'predis' ? ['read_write_timeout' => 20] : ['read_timeout' => 20];
        $settings = ['options' => ['prefix' => 'app_'], 'default' => $address, 'cache' => $address];
        return new RedisManager(null, $this->driver, $settings);
    }

    /** A connection without a prefix, to the same database. */
    private function plain(): Connection
    {
        $url = "redis://$this->host:$this->port/" . ($this->driver === 'predis' ? 4 : 3);
        return (new RedisManager(null, $this->driver, ['default' => ['url' => $url]]))->connection();
    }
}

/** With php-memcached, in one of the two protocols. */
final class LaravelMemcached extends LaravelChecks
{
    public function __construct(string $label, string $host, int $port, private bool $binary)
    {
        needs_memcached($host, $port);
        parent::__construct($label, $host, $port);
    }

    protected function store(): TaggableStore
    {
        return laravel_memcached($this->host, $this->port, $this->binary);
    }
}

/** What removes everything of everybody, and is alone therefore. */
final class LaravelFlush extends Suite
{
    public function __construct(string $label, string $host, int $port)
    {
        needs_memcached($host, $port);
        parent::__construct($label, $host, $port);
    }

    public function flushed(): void
    {
        foreach ([false, true] as $binary) {
            $cache = new Repository(laravel_memcached($this->host, $this->port, $binary));
            $cache->put('k', 'v', 100);
            same([$cache->flush(), $cache->get('k'), $cache->put('k', 'w', 100), $cache->get('k')],
                [true, null, true, 'w']);
        }
    }
}

/** A store of memcached with a connection of its own. */
function laravel_memcached(string $host, int $port, bool $binary): MemcachedStore
{
    $servers = [['host' => $host, 'port' => $port, 'weight' => 100]];
    $client = (new MemcachedConnector())->connect($servers, null, [Memcached::OPT_BINARY_PROTOCOL => $binary]);
    return new MemcachedStore($client, $binary ? 'binary' : 'text');
}

return fn (string $host, int $port): array => [
    [
        'Laravel phpredis' => fn (string $label) => new LaravelRedis($label, $host, $port, 'phpredis'),
        'Laravel Predis' => fn (string $label) => new LaravelRedis($label, $host, $port, 'predis'),
        'Laravel memcached text' => fn (string $label) => new LaravelMemcached($label, $host, $port, false),
        'Laravel memcached binary' => fn (string $label) => new LaravelMemcached($label, $host, $port, true),
    ],
    ['Laravel memcached' => fn (string $label) => new LaravelFlush($label, $host, $port)],
];
