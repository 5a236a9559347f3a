<?php
/** php-memcached, the extension `memcached`, in both protocols of memcached. */

require __DIR__ . '/sessions.php';

/** A client of its own, in one of the two protocols. */
function memcached(string $host, int $port, bool $binary, array $options = []): Memcached
{
    $client = new Memcached();
    $prefix = $binary ? 'binary.' : 'text.';
    $client->setOptions($options + [Memcached::OPT_BINARY_PROTOCOL => $binary, Memcached::OPT_PREFIX_KEY => $prefix]);
    holds($client->addServer($host, $port));
    return $client;
}

/** Values, numbers, lifetimes, and what the client makes of values. */
final class MemcachedSuite extends Suite
{
    private Memcached $client;

    public function __construct(string $label, string $host, int $port, private bool $binary)
    {
        parent::__construct($label, $host, $port);
        $this->client = $this->client();
    }

    public function set_and_get(): void
    {
        foreach (['text', '', 42, -1, 2.5, true, false, null, ['list' => [1, 'two']], AWKWARD] as $value) {
            same([$this->client->set('a', $value), $this->client()->get('a')], [true, $value]);
        }
        $this->client->set('object', new ArrayObject([1, 2]));
        same($this->client->get('object'), new ArrayObject([1, 2]));
        $this->answers(false, Memcached::RES_NOTFOUND, fn ($client) => $client->get('absent'));
        same([$this->client->delete('a'), $this->client->delete('a')], [true, false]);
        same($this->client->getResultCode(), Memcached::RES_NOTFOUND);
    }

    public function large_values(): void
    {
        $client = $this->client([Memcached::OPT_COMPRESSION => false]);
        same([$client->set('large', LARGE), $client->get('large') === LARGE], [true, true]);
        same([$client->set('large', str_repeat('x', 2_000_000)), $client->get('large')], [false, false]);
        same([$client->set('after', 'x'), $client->get('after')], [true, 'x']);
    }

    public function add_replace_append(): void
    {
        $client = $this->client([Memcached::OPT_COMPRESSION => false]);
        $client->delete('b');
        [$refused, $absent] = $this->binary ? [Memcached::RES_DATA_EXISTS, Memcached::RES_NOTFOUND]
            : [Memcached::RES_NOTSTORED, Memcached::RES_NOTSTORED];
        same([$client->replace('b', 'x'), $client->getResultCode()], [false, $absent]);
        same([$client->add('b', 'x'), $client->add('b', 'y'), $client->getResultCode()], [true, false, $refused]);
        same([$client->replace('b', 'new'), $client->append('b', 'er'), $client->prepend('b', 're')],
            [true, true, true]);
        same([$client->get('b'), $client->append('absent', 'x'), $client->prepend('absent', 'x')],
            ['renewer', false, false]);
    }

    public function cas(): void
    {
        $client = $this->client;
        $client->set('c', 'first');
        $item = $client->get('c', null, Memcached::GET_EXTENDED);
        same([array_keys($item), $item['value'], $item['flags']], [['value', 'cas', 'flags'], 'first', 0]);
        same($client->cas($item['cas'], 'c', 'second'), true);
        same([$client->cas($item['cas'], 'c', 'third'), $client->getResultCode()], [false, Memcached::RES_DATA_EXISTS]);
        same([$client->get('c'), $client->cas($item['cas'], 'absent', 'x')], ['second', false]);
        same($client->getResultCode(), Memcached::RES_NOTFOUND);
        $items = $client->getMulti(['c', 'absent'], Memcached::GET_EXTENDED);
        same([array_keys($items), $items['c']['value']], [['c'], 'second']);
    }

    public function cas_in_processes(): void
    {
        $this->client->set('list', []);
        in_processes(function (int $number): void {
            $own = $this->client();
            foreach (range(1, 25) as $i) {
                until_times(1, function () use ($own, $number, $i): bool {
                    $item = $own->get('list', null, Memcached::GET_EXTENDED);
                    return $own->cas($item['cas'], 'list', [...$item['value'], "$number:$i"]);
                });
            }
        });
        same(count(array_unique($this->client->get('list'))), PROCESSES * 25);
    }

    public function numbers(): void
    {
        $client = $this->client;
        $client->set('n', 10);
        same([$client->increment('n'), $client->increment('n', 5), $client->decrement('n', 6)], [11, 16, 10]);
        same([$client->decrement('n', 100), $client->get('n')], [0, 0]);
        same([$client->increment('absent'), $client->getResultCode()], [false, Memcached::RES_NOTFOUND]);
        if ($this->binary) {
            same([$client->increment('created', 5, 100, 60), $client->increment('created', 5, 100, 60)], [100, 105]);
        }
        $client->set('crowd', 0);
        in_processes(function (): void {
            $own = $this->client();
            foreach (range(1, 500) as $i) {
                $own->increment('crowd', 3);
                $own->decrement('crowd');
            }
        });
        same($client->get('crowd'), PROCESSES * 1000);
        $client->set('word', 'text');
        same($client->increment('word'), false);
    }

    public function several(): void
    {
        $client = $this->client;
        $values = array_combine(array_map(fn ($i) => "m$i", range(0, 299)), range(0, 299));
        same($client->setMulti($values, 100), true);
        $got = $client->getMulti([...array_keys($values), 'absent']);
        ksort($got);
        ksort($values);
        same($got, $values);
        same($client->getMulti(['m3', 'absent', 'm1'], Memcached::GET_PRESERVE_ORDER),
            ['m3' => 3, 'absent' => null, 'm1' => 1]);
        same($client->deleteMulti(['m1', 'absent', 'm2']),
            ['m1' => true, 'absent' => Memcached::RES_NOTFOUND, 'm2' => true]);
        same($client->getMulti(['m1', 'm2', 'm3']), ['m3' => 3]);
        same($client->getMulti(['absent']), []);
    }

    public function delayed(): void
    {
        $client = $this->client;
        $client->setMulti(['d1' => 'one', 'd2' => ['two']]);
        same($client->getDelayed(['d1', 'd2', 'absent'], true), true);
        $found = array_column($client->fetchAll(), 'value', 'key');
        ksort($found);
        same($found, ['d1' => 'one', 'd2' => ['two']]);
        same([$client->getDelayed(['d1']), $client->fetch()['value'], $client->fetch()], [true, 'one', false]);
    }

    public function lifetimes(): void
    {
        $client = $this->client;
        $client->set('e', 'x', EXPIRY_SECONDS);
        $client->set('at', 'x', time() + EXPIRY_SECONDS);
        $client->setMulti(['touched' => 'x', 'left' => 'x'], 2 * EXPIRY_SECONDS);
        $client->set('month', 'x', 60 * 24 * 3600 + time());
        $client->set('shortened', 'x', 100);
        $client->setMulti(['e1' => 'x', 'e2' => 'x'], EXPIRY_SECONDS);
        same([$client->touch('touched', 100), $client->touch('shortened', 1), $client->touch('absent', 1)],
            [true, true, false]);
        until(fn () => $client->getMulti(['e', 'at', 'shortened', 'e1', 'e2']) === []);
        until(fn () => $client->add('e', 'new', 100));
        until(fn () => $client->get('left') === false);
        same([$client->get('touched'), $client->get('month'), $client->get('e')], ['x', 'x', 'new']);
        if (!$this->binary) {
            same([$client->set('past', 'x', -1), $client->get('past')], [true, false]);
        }
    }

    public function compression(): void
    {
        $value = str_repeat('compressible ', 20_000);
        foreach ([Memcached::COMPRESSION_ZLIB, Memcached::COMPRESSION_FASTLZ] as $kind) {
            $client = $this->client([Memcached::OPT_COMPRESSION => true, Memcached::OPT_COMPRESSION_TYPE => $kind]);
            same([$client->set('z', $value), $this->client()->get('z') === $value], [true, true]);
            holds($client->get('z', null, Memcached::GET_EXTENDED)['flags'] >= 0);
            same([$client->set('z', ['long' => $value]), $client->get('z')], [true, ['long' => $value]]);
        }
    }

    public function serializers(): void
    {
        $value = ['text' => 'grüße', 'list' => [1, 2.5, null, true], 'nested' => ['a' => ['b' => 'c']]];
        $kinds = [Memcached::SERIALIZER_PHP, Memcached::SERIALIZER_IGBINARY, Memcached::SERIALIZER_JSON_ARRAY,
            Memcached::SERIALIZER_MSGPACK];
        foreach ($kinds as $kind) {
            $client = $this->client([Memcached::OPT_SERIALIZER => $kind]);
            same([$client->set('s', $value), $client->get('s')], [true, $value]);
        }
    }

    /** Sixteen bits of the flags are the application's. */
    public function flags(): void
    {
        $client = $this->client([Memcached::OPT_USER_FLAGS => 1234]);
        $client->set('flagged', 'x');
        same($client->get('flagged', null, Memcached::GET_EXTENDED)['flags'], 1234);
        $client->setMulti(['flagged' => 'y']);
        same($client->getMulti(['flagged'], Memcached::GET_EXTENDED)['flagged']['flags'], 1234);
    }

    public function keys(): void
    {
        $client = $this->client;
        foreach ([str_repeat('k', 240), 'a:b/c?d=e'] as $key) {
            same([$client->set($key, 'x'), $client->get($key)], [true, 'x']);
        }
        same([$client->set(str_repeat('k', 251), 'x'), $client->get('')], [false, false]);
        // In the text protocol the client itself takes letters of ASCII alone.
        same([$client->set('grüße an alle', 'x'), $client->getResultCode()],
            $this->binary ? [true, Memcached::RES_SUCCESS] : [false, Memcached::RES_BAD_KEY_PROVIDED]);
        same($client->get('grüße an alle'), $this->binary ? 'x' : false);
        same([$client->set('after', 'x'), $client->get('after')], [true, 'x']);
    }

    public function read_through(): void
    {
        $this->client->delete('computed');
        $calls = 0;
        $compute = function (Memcached $client, string $key, &$value, &$lifetime) use (&$calls): bool {
            [$value, $lifetime] = ["of $key", 100];
            return ++$calls === 1;
        };
        same([$this->client->get('computed', $compute), $this->client->get('computed', $compute), $calls],
            ['of computed', 'of computed', 1]);
        same($this->client->get('refused', $compute), false);
    }

    /** Requests that nobody answers, or that wait in the client. */
    public function without_replies(): void
    {
        $client = $this->client([Memcached::OPT_NOREPLY => true]);
        foreach (range(1, 100) as $i) {
            $client->set("quiet$i", $i);
        }
        until(fn () => $this->client->get('quiet100') === 100);
        same(count($this->client->getMulti(array_map(fn ($i) => "quiet$i", range(1, 100)))), 100);
        // Less than 64 KiB in all: libmemcached takes a reply that is not there after so much for a broken connection.
        $client = $this->client([Memcached::OPT_BUFFER_WRITES => true]);
        foreach (range(1, 200) as $i) {
            $client->set("buffered$i", str_repeat('x', 100));
        }
        same($client->flushBuffers(), true);
        same([strlen($client->get('buffered200')), $client->get('buffered1') !== false], [100, true]);
    }

    public function several_servers(): void
    {
        $client = $this->client([Memcached::OPT_LIBKETAMA_COMPATIBLE => true]);
        $client->addServer('localhost', $this->port);
        $values = array_combine(array_map(fn ($i) => "spread$i", range(1, 100)), range(1, 100));
        same([$client->setMulti($values), count($client->getMulti(array_keys($values)))], [true, 100]);
        same([$client->setByKey('group', 'one', 'x'), $client->getByKey('group', 'one')], [true, 'x']);
        same(count(array_unique(array_map(fn ($key) => $client->getServerByKey($key)['host'], array_keys($values)))),
            2);
        same([count($client->getStats()), count($client->getVersion())], [2, 2]);
    }

    public function persistent_connections(): void
    {
        foreach (['one', 'one'] as $turn => $name) {
            $client = new Memcached("$name $this->label");
            if ($client->isPristine()) {
                $client->setOption(Memcached::OPT_BINARY_PROTOCOL, $this->binary);
                $client->addServer($this->host, $this->port);
            }
            same([$client->isPristine(), $client->set('persistent', $turn)], [$turn === 0, true]);
            same([$client->get('persistent'), count($client->getServerList())], [$turn, 1]);
        }
    }

    public function locks_in_processes(): void
    {
        $this->client->set('guarded', 0);
        in_processes(function (): void {
            $own = $this->client();
            until_times(25, function () use ($own): bool {
                if (!$own->add('lock', 'mine', 60)) {
                    return false;
                }
                $own->set('guarded', $own->get('guarded') + 1);
                return $own->delete('lock');
            });
        });
        same($this->client->get('guarded'), PROCESSES * 25);
    }

    public function statistics(): void
    {
        $stats = array_values($this->client->getStats())[0];
        holds($stats['pid'] > 0 && $stats['cmd_get'] > 0 && $stats['limit_maxbytes'] > 0);
        holds(preg_match('/^\d+\.\d+\.\d+/', array_values($this->client->getVersion())[0]));
        holds(is_array(array_values($this->client->getStats('settings'))[0]));
    }

    /** A client in the protocol of this suite. */
    private function client(array $options = []): Memcached
    {
        return memcached($this->host, $this->port, $this->binary, $options);
    }

    /** Fails unless `$call` answers with this value and this code. */
    private function answers(mixed $value, int $code, callable $call): void
    {
        same([$call($this->client), $this->client->getResultCode()], [$value, $code]);
    }
}

/** The session handler `memcached`. */
final class MemcachedSessions extends Suite
{
    use SessionChecks;

    /** Settings of a page that waits for no lock. */
    private const IMPATIENT = ['memcached.sess_lock_retries' => 0];

    public function __construct(string $label, string $host, int $port, bool $binary)
    {
        parent::__construct($label, $host, $port);
        $this->pages = new Pages([
            'session.save_handler' => 'memcached',
            'session.save_path' => "$host:$port",
            'memcached.sess_prefix' => $binary ? 'binary.' : 'text.',
            'memcached.sess_binary_protocol' => (int) $binary,
            'memcached.sess_locking' => 1,
            'memcached.sess_lock_expire' => 60,
            'memcached.sess_lock_retries' => 10_000,
            'memcached.sess_lock_wait_min' => 2,
            'memcached.sess_lock_wait_max' => 4,
        ]);
    }
}

/** What removes everything of everybody, and is alone therefore. */
final class MemcachedFlush extends Suite
{
    public function flushed(): void
    {
        foreach ([false, true] as $binary) {
            $client = memcached($this->host, $this->port, $binary);
            $client->set('k', 'v');
            same([$client->flush(), $client->get('k'), $client->set('k', 'w'), $client->get('k')],
                [true, false, true, 'w']);
        }
    }
}

return fn (string $host, int $port): array => [
    [
        'php-memcached text' => fn (string $label) => new MemcachedSuite($label, $host, $port, false),
        'php-memcached binary' => fn (string $label) => new MemcachedSuite($label, $host, $port, true),
        'php-memcached sessions text' => fn (string $label) => new MemcachedSessions($label, $host, $port, false),
        'php-memcached sessions binary' => fn (string $label) => new MemcachedSessions($label, $host, $port, true),
    ],
    ['php-memcached' => fn (string $label) => new MemcachedFlush($label, $host, $port)],
];
