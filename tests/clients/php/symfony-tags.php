<?php
/** Symfony's RedisTagAwareAdapter, which keeps tags in sets, and stores nothing where these may be evicted (`-M`). */

require __DIR__ . '/symfony_checks.php';

use Symfony\Component\Cache\Adapter\RedisTagAwareAdapter;

/** The checks with one of the clients for Redis. */
final class SymfonyTags extends Suite
{
    public function __construct(string $label, string $host, int $port, private string $class)
    {
        needs_resp($host, $port);
        parent::__construct($label, $host, $port);
    }

    public function invalidated(): void
    {
        [$pool, $other] = [$this->pool('first'), $this->pool('first')];
        foreach (['one' => ['red'], 'two' => ['red', 'round'], 'three' => ['round'], 'four' => []] as $key => $tags) {
            same($pool->save($pool->getItem($key)->set(AWKWARD . $key)->tag($tags)), true);
        }
        same([$other->getItem('two')->get(), array_keys($other->getItem('two')->getMetadata()['tags'])],
            [AWKWARD . 'two', ['red', 'round']]);
        same($other->invalidateTags(['red']), true);
        same(array_map([$pool, 'hasItem'], ['one', 'two', 'three', 'four']), [false, false, true, true]);
        same([$other->invalidateTags(['red', 'round', 'absent']), $pool->hasItem('three')], [true, false]);
        same($pool->hasItem('four'), true);
    }

    public function given_other_tags(): void
    {
        $pool = $this->pool('second');
        $pool->save($pool->getItem('k')->set('v')->tag('red'));
        $pool->save($pool->getItem('k')->set('w')->tag('blue'));
        same([$pool->invalidateTags(['red']), $pool->getItem('k')->get()], [true, 'w']);
        same([$pool->invalidateTags(['blue']), $pool->hasItem('k')], [true, false]);
        $pool->save($pool->getItem('k')->set('v')->tag('green'));
        $sets = fn () => symfony_redis($this->host, $this->port, $this->class)->keys('second:*green');
        same([count($sets()), $pool->deleteItem('k'), $pool->hasItem('k'), $sets()], [1, true, false, []]);
    }

    public function computed_with_tags(): void
    {
        $pool = $this->pool('third');
        $calls = 0;
        $compute = function ($item) use (&$calls): int {
            $item->tag(['products'])->expiresAfter(100);
            return ++$calls;
        };
        same([$pool->get('c', $compute), $pool->get('c', $compute)], [1, 1]);
        same([$pool->invalidateTags(['products']), $pool->get('c', $compute)], [true, 2]);
    }

    public function thousand_items_of_a_tag(): void
    {
        $pool = $this->pool('fourth');
        $keys = $this->filled($pool, 1000);
        same([$pool->invalidateTags(['odd']), $this->hits($pool, $keys)], [true, 500]);
        same([$pool->invalidateTags(['all']), $this->hits($pool, $keys)], [true, 0]);
    }

    public function ten_thousand_items_of_a_tag(): void
    {
        $pool = $this->pool('fifth');
        $keys = $this->filled($pool, 10_000);
        same([$pool->invalidateTags(['all']), $this->hits($pool, $keys)], [true, 0]);
    }

    public function in_several_processes(): void
    {
        in_processes(function (int $number): void {
            $own = $this->pool('sixth');
            foreach (range(1, 25) as $i) {
                $own->save($own->getItem("p$number.$i")->set($i)->tag(['shared', "of$number"]));
            }
        });
        $pool = $this->pool('sixth');
        $of = fn (int $number) => array_map(fn ($i) => "p$number.$i", range(1, 25));
        $keys = array_merge(...array_map($of, range(0, PROCESSES - 1)));
        same($this->hits($pool, $keys), PROCESSES * 25);
        same([$pool->invalidateTags(['of1']), $this->hits($pool, $keys)], [true, (PROCESSES - 1) * 25]);
        same([$pool->invalidateTags(['shared']), $this->hits($pool, $keys)], [true, 0]);
    }

    public function cleared(): void
    {
        $pool = $this->pool('seventh');
        $pool->save($pool->getItem('k')->set('v')->tag('red')->expiresAfter(100));
        same([$pool->clear(), $pool->hasItem('k'), $pool->invalidateTags(['red'])], [true, false, true]);
    }

    /** Stores items of the tag `all`, half of them of `odd` too; returns their keys. */
    private function filled(RedisTagAwareAdapter $pool, int $count): array
    {
        $keys = array_map(fn ($i) => "k$i", range(1, $count));
        foreach ($keys as $i => $key) {
            $pool->saveDeferred($pool->getItem($key)->set($key)->tag($i % 2 ? ['all', 'odd'] : ['all']));
            if ($i % 1000 === 999) {
                same($pool->commit(), true);
            }
        }
        same($this->hits($pool, $keys), $count);
        return $keys;
    }

    /** How many of the keys a pool has. */
    private function hits(RedisTagAwareAdapter $pool, array $keys): int
    {
        return count(array_filter(iterator_to_array($pool->getItems($keys)), fn ($item) => $item->isHit()));
    }

    /** A cache with a connection of its own. */
    private function pool(string $namespace): RedisTagAwareAdapter
    {
        return new RedisTagAwareAdapter(symfony_redis($this->host, $this->port, $this->class), $namespace);
    }
}

return fn (string $host, int $port): array => [[
    'Symfony tags phpredis' => fn (string $label) => new SymfonyTags($label, $host, $port, Redis::class),
    'Symfony tags Predis' => fn (string $label) => new SymfonyTags($label, $host, $port, Predis\Client::class),
]];
