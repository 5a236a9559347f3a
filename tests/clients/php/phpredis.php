<?php
/** phpredis, the extension `redis`. */

require __DIR__ . '/sessions.php';
require __DIR__ . '/phpredis_collections.php';

/** A connection of its own, to a database that is named by its number. */
function phpredis(string $host, int $port, int $database = 0): Redis
{
    $client = new Redis();
    $client->connect($host, $port, 20, null, 0, 20);
    holds($client->select($database));
    return $client;
}

/** Fails unless `$call` returns false, and the server's error begins with `$text`. */
function refused(Redis $client, string $text, callable $call): void
{
    $client->clearLastError();
    same($call(), false);
    same(substr((string) $client->getLastError(), 0, strlen($text)), $text);
}

/** Values, keys, transactions, scripts, and what the client makes of values. */
final class PhpRedisSuite extends Suite
{
    private Redis $client;

    public function __construct(string $label, string $host, int $port)
    {
        parent::__construct($label, $host, $port);
        $this->client = phpredis($host, $port);
    }

    public function strings(): void
    {
        $client = $this->client;
        same($client->set('a', 'x'), true);
        same([$client->get('a'), $client->get('absent')], ['x', false]);
        same([$client->set('a', 'y', ['nx']), $client->set('b', 'y', ['xx'])], [false, false]);
        same([$client->set('b', 'y', ['nx', 'ex' => 100]), $client->set('b', 'z', ['xx', 'px' => 90_000])],
            [true, true]);
        between(80_000, $client->pttl('b'), 90_000);
        same([$client->setnx('a', 'z'), $client->setnx('c', 'z')], [false, true]);
        same([$client->getSet('a', 'new'), $client->get('a')], ['x', 'new']);
        same([$client->append('a', 'er'), $client->strlen('a'), $client->getRange('a', 1, -2)], [5, 5, 'ewe']);
        same([$client->setRange('a', 3, 'ss'), $client->get('a')], [5, 'newss']);
        same([$client->rawCommand('GETDEL', 'a'), $client->exists('a')], ['newss', 0]);
    }

    public function several(): void
    {
        $client = $this->client;
        $wanted = array_combine(array_map(fn ($i) => "m$i", range(0, 299)), array_map('strval', range(0, 299)));
        same($client->mset($wanted), true);
        same($client->mget([...array_keys($wanted), 'absent']), [...array_values($wanted), false]);
        same([$client->msetnx(['m0' => 'x', 'n0' => 'x']), $client->exists('n0')], [false, 0]);
        same([$client->exists(['m0', 'm1', 'absent']), $client->del('m0', 'm1', 'absent')], [2, 2]);
        same([$client->unlink(['m2', 'm3']), $client->exists('m2')], [2, 0]);
    }

    public function binary_and_large_values(): void
    {
        $client = $this->client;
        foreach ([AWKWARD, '', LARGE] as $value) {
            same($client->set('bin', $value), true);
            same($client->get('bin'), $value);
        }
        same($client->set(AWKWARD, AWKWARD), true);
        same([$client->get(AWKWARD), $client->mget([AWKWARD, 'absent'])], [AWKWARD, [AWKWARD, false]]);
        same($client->hMSet('bin hash', [AWKWARD => AWKWARD, '' => '']), true);
        same($client->hGetAll('bin hash'), [AWKWARD => AWKWARD, '' => '']);
        same($client->sAdd('bin set', AWKWARD, ''), 2);
        same_values($client->sMembers('bin set'), ['', AWKWARD]);
        same($client->zAdd('bin zset', 1, AWKWARD, 0, ''), 2);
        same($client->zRange('bin zset', 0, -1), ['', AWKWARD]);
    }

    public function numbers(): void
    {
        $client = $this->client;
        same([$client->incr('n'), $client->incrBy('n', 10), $client->decr('n'), $client->decrBy('n', 20)],
            [1, 11, 10, -10]);
        same($client->incrByFloat('f', 1.5), 1.5);
        same($client->incrByFloat('f', -0.25), 1.25);
        same([$client->set('top', (string) PHP_INT_MAX), $client->get('top')], [true, (string) PHP_INT_MAX]);
        refused($client, 'ERR increment or decrement would overflow', fn () => $client->incr('top'));
        $client->set('word', 'text');
        refused($client, 'ERR value is not an integer or out of range', fn () => $client->incr('word'));
    }

    public function counting_in_processes(): void
    {
        in_processes(function (): void {
            $own = phpredis($this->host, $this->port);
            for ($i = 0; $i < 500; $i++) {
                $own->incr('counted');
                $own->hIncrBy('counted hash', 'field', 2);
                $own->zIncrBy('counted zset', 3, 'member');
            }
        });
        same($this->client->get('counted'), (string) (PROCESSES * 500));
        same($this->client->hGet('counted hash', 'field'), (string) (PROCESSES * 1000));
        same($this->client->zScore('counted zset', 'member'), PROCESSES * 1500.0);
    }

    public function lifetimes(): void
    {
        $client = $this->client;
        same([$client->setex('t', 100, 'x'), $client->psetex('p', 50, 'x')], [true, true]);
        between(90, $client->ttl('t'), 100);
        same([$client->expire('t', 200), $client->pexpire('t', 50_000), $client->expire('absent', 1)],
            [true, true, false]);
        between(40_000, $client->pttl('t'), 50_000);
        same($client->expireAt('t', time() + 300), true);
        between(290, $client->ttl('t'), 300);
        same([$client->persist('t'), $client->persist('t')], [true, false]);
        same([$client->ttl('t'), $client->ttl('absent')], [-1, -2]);
        until(fn () => $client->get('p') === false);
        same([$client->exists('p'), $client->pttl('p')], [0, -2]);
        refused($client, "ERR invalid expire time in 'setex' command", fn () => $client->setex('t', 0, 'x'));
    }

    public function keys(): void
    {
        $client = phpredis($this->host, $this->port, 3);
        same($client->mset(['user:1' => 'a', 'user:2' => 'b', 'other' => 'c']), true);
        same_values($client->keys('user:*'), ['user:1', 'user:2']);
        same([$client->dbSize(), in_array($client->randomKey(), ['user:1', 'user:2', 'other'])], [3, true]);
        same([$client->rename('other', 'another'), $client->renameNx('another', 'user:1')], [true, false]);
        same([$client->move('another', 4), $client->exists('another')], [true, 0]);
        $client->hSet('h', 'f', 'v');
        $client->sAdd('s', 'v');
        $client->zAdd('z', 1, 'v');
        $types = [Redis::REDIS_STRING, Redis::REDIS_HASH, Redis::REDIS_SET, Redis::REDIS_ZSET, Redis::REDIS_NOT_FOUND];
        same(array_map([$client, 'type'], ['user:1', 'h', 's', 'z', 'absent']), $types);
        same([$client->rawCommand('TOUCH', 'user:1', 'h', 'absent'), $client->object('encoding', 'absent')],
            [2, false]);
        same([$client->flushDB(), $client->dbSize()], [true, 0]);
    }

    public function scanning(): void
    {
        $client = phpredis($this->host, $this->port, 5);
        $client->mset(array_fill_keys(array_map(fn ($i) => "page:$i", range(1, 700)), 'x'));
        $client->mset(array_fill_keys(array_map(fn ($i) => "user:$i", range(1, 300)), 'x'));
        foreach ([Redis::SCAN_NORETRY, Redis::SCAN_RETRY] as $retry) {
            $client->setOption(Redis::OPT_SCAN, $retry);
            [$cursor, $found] = [null, []];
            while (($keys = $client->scan($cursor, 'user:*', 50)) !== false) {
                array_push($found, ...$keys);
            }
            same(count(array_unique($found)), 300);
            same(array_filter($found, fn ($key) => !str_starts_with($key, 'user:')), []);
        }
        $client->flushDB();
    }

    public function databases(): void
    {
        $client = phpredis($this->host, $this->port, 1);
        same([$client->set('where', 'one'), $client->getDBNum()], [true, 1]);
        same([$client->select(2), $client->get('where'), $client->set('where', 'two')], [true, false, true]);
        same([$client->select(1), $client->get('where'), $this->client->get('where')], [true, 'one', false]);
        same([$client->flushDB(), $client->select(2), $client->get('where')], [true, true, 'two']);
        refused($client, 'ERR', fn () => $client->select(99));
        same($client->get('where'), 'two');
    }

    public function pipeline(): void
    {
        $pipe = $this->client->multi(Redis::PIPELINE);
        for ($i = 1; $i <= 1000; $i++) {
            $pipe->set("piped $i", (string) $i)->incr("piped $i")->get("piped $i");
        }
        $answers = $pipe->exec();
        same([count($answers), $answers[2], $answers[2997], $answers[2998], $answers[2999]],
            [3000, '2', true, 1001, '1001']);
        $this->client->set('word', 'text');
        same($this->client->pipeline()->incr('word')->get('word')->hGet('word', 'f')->exec(), [false, 'text', false]);
    }

    public function transactions(): void
    {
        $client = $this->client;
        $client->del('t1', 't2');
        same($client->multi()->set('t1', 'x')->incr('t2')->incr('t2')->mget(['t1', 't2'])->exec(),
            [true, 1, 2, ['x', '2']]);
        same($client->multi()->incr('t1')->get('t1')->exec(), [false, 'x']);
        $client->multi()->set('t1', 'never');
        same([$client->discard(), $client->get('t1')], [true, 'x']);
        $client->multi()->rawCommand('SET', 't1');
        same((bool) $client->exec(), false);
        same($client->get('t1'), 'x');
    }

    public function watching(): void
    {
        $other = phpredis($this->host, $this->port);
        $client = $this->client;
        $client->set('watched', '1');
        same([$client->watch('watched'), $client->multi()->incr('watched')->exec()], [true, [2]]);
        $client->watch(['watched', 'absent']);
        $other->set('watched', '10');
        same([$client->multi()->incr('watched')->exec(), $client->get('watched')], [false, '10']);
        $client->watch('watched');
        $other->set('watched', '20');
        same([$client->unwatch(), $client->multi()->incr('watched')->exec()], [true, [21]]);
    }

    public function watching_in_processes(): void
    {
        $this->client->set('balance', '0');
        in_processes(function (): void {
            $own = phpredis($this->host, $this->port);
            until_times(50, function () use ($own): bool {
                $own->watch('balance');
                $balance = (int) $own->get('balance');
                return $own->multi()->set('balance', (string) ($balance + 3))->exec() !== false;
            });
        });
        same($this->client->get('balance'), (string) (PROCESSES * 150));
    }

    public function scripts(): void
    {
        $client = $this->client;
        $client->del('sum');
        same($client->script('flush'), true);
        $add = "return redis.call('INCRBY', KEYS[1], ARGV[1]) + ARGV[2]";
        refused($client, 'NOSCRIPT', fn () => $client->evalSha(sha1($add), ['sum', 5, 100], 1));
        same($client->eval($add, ['sum', 5, 100], 1), 105);
        same($client->evalSha(sha1($add), ['sum', 5, 100], 1), 110);
        same($client->script('load', "return 'loaded'"), sha1("return 'loaded'"));
        same($client->script('exists', sha1("return 'loaded'"), str_repeat('0', 40)), [1, 0]);
        same($client->evalSha(sha1("return 'loaded'")), 'loaded');
        same($client->eval("return {KEYS[1], ARGV[1], 1, 2.9, false, {'x', {}}}", ['k', AWKWARD], 1),
            ['k', AWKWARD, 1, 2, false, ['x', []]]);
        same($client->eval("return redis.status_reply('FINE')"), true);
        refused($client, 'ERR', fn () => $client->eval("return redis.call('NONE')"));
        raises(RedisException::class, 'MINE now', fn () => $client->eval("return redis.error_reply('MINE now')"));
        same($client->pipeline()->eval($add, ['sum', 1, 0], 1)->evalSha(sha1($add), ['sum', 1, 0], 1)->exec(),
            [11, 12]);
        same($client->multi()->eval($add, ['sum', 1, 0], 1)->get('sum')->exec(), [13, '13']);
    }

    public function locks_in_processes(): void
    {
        $this->client->set('guarded', '0');
        in_processes(function (int $number): void {
            $own = phpredis($this->host, $this->port);
            $release = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
            until_times(25, function () use ($own, $number, $release): bool {
                if (!$own->set('lock', "owner $number", ['nx', 'px' => 60_000])) {
                    return false;
                }
                $own->set('guarded', (string) ((int) $own->get('guarded') + 1));
                same($own->eval($release, ['lock', 'somebody'], 1), 0);
                same($own->eval($release, ['lock', "owner $number"], 1), 1);
                return true;
            });
        });
        same([$this->client->get('guarded'), $this->client->exists('lock')], [(string) (PROCESSES * 25), 0]);
    }

    public function serializers(): void
    {
        $value = ['text' => 'grüße', 'list' => [1, 2.5, null, true], 'nested' => ['a' => ['b' => 'c']]];
        $kinds = [Redis::SERIALIZER_PHP, Redis::SERIALIZER_IGBINARY, Redis::SERIALIZER_JSON];
        $client = phpredis($this->host, $this->port);
        foreach ($kinds as $kind) {
            holds($client->setOption(Redis::OPT_SERIALIZER, $kind));
            same([$client->set('s', $value), $client->get('s')], [true, $value]);
            same([$client->mset(['s1' => $value, 's2' => 7]), $client->mget(['s1', 's2'])], [true, [$value, 7]]);
            $client->del('sh', 'ss', 'sz');
            same([$client->hMSet('sh', ['f' => $value]), $client->hGetAll('sh')], [true, ['f' => $value]]);
            same([$client->sAdd('ss', $value), $client->sMembers('ss')], [1, [$value]]);
            same([$client->zAdd('sz', 1, $value), $client->zRange('sz', 0, -1)], [1, [$value]]);
            same($client->eval("return redis.call('GET', KEYS[1])", ['s'], 1), $client->_pack($value));
        }
        $client->setOption(Redis::OPT_SERIALIZER, Redis::SERIALIZER_PHP);
        $client->set('s', new ArrayObject([1, 2]));
        same($client->get('s'), new ArrayObject([1, 2]));
    }

    public function compression(): void
    {
        $client = phpredis($this->host, $this->port);
        $client->setOption(Redis::OPT_SERIALIZER, Redis::SERIALIZER_PHP);
        foreach ([Redis::COMPRESSION_LZF, Redis::COMPRESSION_ZSTD, Redis::COMPRESSION_LZ4] as $kind) {
            holds($client->setOption(Redis::OPT_COMPRESSION, $kind));
            $value = ['long' => str_repeat('compressible ', 20_000), 'binary' => AWKWARD];
            same([$client->set('z', $value), $client->get('z')], [true, $value]);
            between(0, $this->client->strlen('z'), 20_000);
        }
    }

    public function prefix(): void
    {
        $client = phpredis($this->host, $this->port, 6);
        $client->setOption(Redis::OPT_PREFIX, 'app:');
        same([$client->set('k', 'x'), $client->get('k'), $client->_prefix('k')], [true, 'x', 'app:k']);
        same([$client->keys('*'), $client->eval('return KEYS[1]', ['k'], 1)], [['app:k'], 'app:k']);
        $client->setOption(Redis::OPT_SCAN, Redis::SCAN_PREFIX);
        $cursor = null;
        same($client->scan($cursor, '*'), ['app:k']);
        same([$client->del('k'), $client->dbSize()], [1, 0]);
    }

    public function bits(): void
    {
        $client = $this->client;
        same([$client->setBit('bits', 7, 1), $client->setBit('bits', 7, 1), $client->getBit('bits', 7)], [0, 1, 1]);
        same([$client->set('bits', "\x0f\xf0"), $client->bitCount('bits'), $client->bitpos('bits', 1)], [true, 8, 4]);
    }

    public function channels(): void
    {
        $heard = in_processes(function (int $number): array {
            $own = phpredis($this->host, $this->port);
            if ($number > 0) {
                until(fn () => (int) $own->pubsub('numsub', ['news'])['news'] === 1);
                until(fn () => (int) $own->get('turn') === $number);
                $told = $own->publish('news', AWKWARD . $number);
                $own->set('turn', (string) ($number + 1));
                return [$told];
            }
            $own->set('turn', '1');
            return $this->hear($own, 3);
        });
        same($heard, [[AWKWARD . '1', AWKWARD . '2', AWKWARD . '3'], [1], [1], [1]]);
    }

    public function introspection(): void
    {
        $client = $this->client;
        same([$client->ping(), $client->ping('text'), $client->echo('text')], [true, 'text', 'text']);
        holds(version_compare($client->info()['redis_version'], '6.0', '>='));
        holds(isset($client->info('memory')['maxmemory_policy'], $client->info('stats')['keyspace_hits']));
        same(array_keys($client->config('GET', 'maxmemory-policy')), ['maxmemory-policy']);
        same([$client->client('setname', 'of-the-tests'), $client->client('getname')], [true, 'of-the-tests']);
        same(in_array('of-the-tests', array_column($client->client('list'), 'name')), true);
        between(time() - 60, $client->time()[0], time() + 60);
        same([is_array($client->slowlog('get')), $client->role()[0], is_array($client->command('info', 'get'))],
            [true, 'master', true]);
        same($client->wait(0, 10), 0);
    }

    public function errors(): void
    {
        $client = $this->client;
        $client->set('string', 'x');
        $client->hSet('hash', 'f', 'v');
        $wrong = 'WRONGTYPE Operation against a key holding the wrong kind of value';
        refused($client, $wrong, fn () => $client->hGet('string', 'f'));
        refused($client, $wrong, fn () => $client->sAdd('string', 'm'));
        refused($client, $wrong, fn () => $client->zAdd('string', 1, 'm'));
        refused($client, $wrong, fn () => $client->get('hash'));
        refused($client, $wrong, fn () => $client->incr('hash'));
        refused($client, 'ERR unknown command', fn () => $client->rawCommand('NONE'));
        refused($client, 'ERR wrong number of arguments', fn () => $client->rawCommand('GET'));
        refused($client, 'ERR syntax error', fn () => $client->rawCommand('SET', 'k', 'v', 'BADLY'));
        same([$client->mget(['hash', 'string']), $client->get('string')], [[false, 'x'], 'x']);
    }

    public function refused_commands(): void
    {
        needs_larder($this->host, $this->port);
        $client = $this->client;
        refused($client, "ERR unknown command 'LPUSH': Larder has no lists", fn () => $client->lPush('l', 'x'));
        refused($client, "ERR unknown command 'LRANGE': Larder has no lists", fn () => $client->lRange('l', 0, -1));
        refused($client, "ERR unknown command 'BLPOP': Larder has no", fn () => $client->rawCommand('BLPOP', 'l', 1));
        refused($client, "ERR unknown command 'XADD': Larder has no", fn () => $client->xAdd('x', '*', ['f' => 'v']));
        refused($client, "ERR unknown command 'PFADD': Larder has no", fn () => $client->pfAdd('p', ['x']));
        refused($client, "ERR unknown command 'GEOADD': Larder has no", fn () => $client->geoAdd('g', 1, 2, 'x'));
        same($client->multi(Redis::PIPELINE)->lPush('l', 'x')->set('k', 'v')->get('k')->exec(), [false, true, 'v']);
    }

    public function persistent_connections(): void
    {
        foreach (['one', 'one', 'two'] as $name) {
            $client = new Redis();
            holds($client->pconnect($this->host, $this->port, 20, $name));
            same([$client->set('persistent', $name), $client->get('persistent')], [true, $name]);
            holds($client->close());
        }
    }

    public function arrays_of_servers(): void
    {
        $client = new RedisArray(["$this->host:$this->port"], ['connect_timeout' => 20.0]);
        same([$client->mset(['ra' => '1', 'rb' => '2']), $client->mget(['ra', 'rb'])], [true, ['1', '2']]);
        same([$client->del(['ra', 'rb']), $client->get('ra')], [2, false]);
    }

    /** The first `$wanted` messages of two channels that the connection subscribes to. */
    private function hear(Redis $client, int $wanted): array
    {
        $heard = [];
        $listen = function (Redis $client, string $channel, string $text) use (&$heard, $wanted): void {
            same($channel, 'news');
            $heard[] = $text;
            if (count($heard) === $wanted) {
                // The only way out: a connection that has unsubscribed goes on listening.
                $client->close();
            }
        };
        raises(RedisException::class, 'Connection closed', fn () => $client->subscribe(['news', 'other'], $listen));
        return $heard;
    }
}

/** The session handler `redis`. */
final class PhpRedisSessions extends Suite
{
    use SessionChecks;

    /** Settings of a page that waits for no lock. */
    private const IMPATIENT = ['redis.session.lock_retries' => 1, 'redis.session.lock_wait_time' => 1000];

    public function __construct(string $label, string $host, int $port)
    {
        parent::__construct($label, $host, $port);
        $this->pages = new Pages([
            'session.save_handler' => 'redis',
            'session.save_path' => "tcp://$host:$port?database=8&prefix=sess:&timeout=20",
            'redis.session.locking_enabled' => 1,
            'redis.session.lock_expire' => 60,
            'redis.session.lock_retries' => -1,
            'redis.session.lock_wait_time' => 2000,
        ]);
    }

    /** A session is a key with a lifetime, and no lock is left. */
    public function session_keys(): void
    {
        $client = phpredis($this->host, $this->port, 8);
        same($this->pages->page('keys', 'count'), ['count' => 1]);
        same($client->keys('sess:keys*'), ['sess:keys']);
        between(1400, $client->ttl('sess:keys'), 1440);
    }
}

return fn (string $host, int $port): array => [[
    'phpredis' => fn (string $label) => new PhpRedisSuite($label, $host, $port),
    'phpredis collections' => fn (string $label) => new PhpRedisCollections($label, $host, $port),
    'phpredis sessions' => fn (string $label) => new PhpRedisSessions($label, $host, $port),
]];
