<?php
/** What Laravel does alike with every store: values, counters, locks, tags, limits of attempts and sessions. */

use Illuminate\Cache\RateLimiter;
use Illuminate\Cache\Repository;
use Illuminate\Cache\TaggableStore;
use Illuminate\Contracts\Cache\LockTimeoutException;
use Illuminate\Session\CacheBasedSessionHandler;

/** The checks that need a store. */
abstract class LaravelChecks extends Suite
{
    /** A store with a connection of its own. */
    abstract protected function store(): TaggableStore;

    public function put_and_get(): void
    {
        [$cache, $other] = [$this->cache(), $this->cache()];
        foreach (['text', '', true, ['list' => [1, 'two']], AWKWARD, new ArrayObject([1]), LARGE] as $value) {
            same([$cache->put('a', $value, 100), $cache->has('a')], [true, true]);
            same($other->get('a'), $value);
        }
        foreach ([42, -1, 2.5] as $number) {
            $cache->put('n', $number, 100);
            same($other->get('n') == $number, true);
        }
        same([$cache->get('absent'), $cache->get('absent', 'none'), $cache->missing('absent')], [null, 'none', true]);
        same([$cache->forget('a'), $cache->forget('a'), $other->has('a')], [true, false, false]);
    }

    public function many(): void
    {
        $cache = $this->cache();
        $values = array_combine(array_map(fn ($i) => "m$i", range(0, 299)), array_map(fn ($i) => "v$i", range(0, 299)));
        same($cache->putMany($values, 100), true);
        same($cache->many([...array_keys($values), 'absent']), $values + ['absent' => null]);
        same($cache->getMultiple(['m1', 'absent'], 'none'), ['m1' => 'v1', 'absent' => 'none']);
        same([$cache->deleteMultiple(['m1', 'm2']), $cache->has('m1'), $cache->has('m3')], [true, false, true]);
        same([$cache->setMultiple(['m1' => 'x']), $cache->get('m1')], [true, 'x']);
    }

    public function add_and_pull(): void
    {
        $cache = $this->cache();
        same([$cache->add('b', 'x', 100), $cache->add('b', 'y', 100), $cache->get('b')], [true, false, 'x']);
        same([$cache->pull('b'), $cache->get('b'), $cache->pull('b', 'none')], ['x', null, 'none']);
        $added = in_processes(fn (int $number): bool => $this->cache()->add('contended', $number, 100));
        same(count(array_filter($added)), 1);
    }

    public function remember(): void
    {
        $cache = $this->cache();
        $calls = 0;
        $compute = function () use (&$calls): string {
            return 'call ' . ++$calls;
        };
        same([$cache->remember('r', 100, $compute), $cache->remember('r', 100, $compute)], ['call 1', 'call 1']);
        same([$cache->rememberForever('f', $compute), $this->cache()->rememberForever('f', $compute)],
            ['call 2', 'call 2']);
        same([$cache->forever('ever', 'x'), $cache->get('ever')], [true, 'x']);
        same([$cache->put('month', 'x', 60 * 24 * 3600), $cache->get('month')], [true, 'x']);
        same([$cache->put('f', 'x', 0), $cache->get('f')], [true, null]);
    }

    public function counting(): void
    {
        $cache = $this->cache();
        $cache->put('c', 10, 100);
        same([$cache->increment('c'), $cache->increment('c', 5), $cache->decrement('c', 6)], [11, 16, 10]);
        same((int) $cache->get('c'), 10);
        $cache->put('crowd', 0, 100);
        in_processes(function (): void {
            $own = $this->cache();
            foreach (range(1, 300) as $i) {
                $own->increment('crowd', 2);
                $own->decrement('crowd');
            }
        });
        same((int) $cache->get('crowd'), PROCESSES * 300);
    }

    public function locks(): void
    {
        [$mine, $theirs] = [$this->cache()->lock('job', 60), $this->cache()->lock('job', 60)];
        same([$mine->get(), $theirs->get(), $theirs->release()], [true, false, false]);
        $restored = $this->cache()->restoreLock('job', $mine->owner());
        same([$restored->owner() === $mine->owner(), $theirs->get(), $restored->release()], [true, false, true]);
        same([$theirs->get(fn () => 'in it'), $theirs->get()], ['in it', true]);
        same($mine->release(), false);
        $mine->forceRelease();
        same([$mine->get(), $mine->release(), $mine->release()], [true, true, false]);
        $endless = $this->cache()->lock('endless');
        same([$endless->get(), $this->cache()->lock('endless')->get(), $endless->release()], [true, false, true]);
        $named = $this->cache()->lock('named', 60, 'owner');
        same([$named->get(), $this->cache()->lock('named', 60, 'other')->release()], [true, false]);
        same($this->cache()->lock('named', 60, 'owner')->release(), true);
    }

    public function locks_in_processes(): void
    {
        $this->cache()->put('guarded', 0, 100);
        in_processes(function (): void {
            $own = $this->cache();
            until_times(25, fn () => $own->lock('guard', 60)->get(
                fn () => $own->put('guarded', (int) $own->get('guarded') + 1, 100)
            ));
        });
        same((int) $this->cache()->get('guarded'), PROCESSES * 25);
    }

    /** Items, locks, and attempts that are counted, that end soon. */
    public function what_ends(): void
    {
        $cache = $this->cache();
        same([$cache->put('e', 'x', EXPIRY_SECONDS), $cache->add('added', 'x', EXPIRY_SECONDS)], [true, true]);
        $limiter = new RateLimiter($cache);
        $limiter->hit('brief', EXPIRY_SECONDS);
        same($cache->lock('ending', EXPIRY_SECONDS)->get(), true);
        same($cache->lock('ending', 60)->block(30, fn () => 'next'), 'next');
        $cache->lock('ending', 60)->get();
        raises(LockTimeoutException::class, '', fn () => $this->cache()->lock('ending', 60)->block(0));
        until(fn () => !$cache->has('e') && !$cache->has('added'));
        until(fn () => !$limiter->tooManyAttempts('brief', 1));
    }

    public function tags(): void
    {
        $cache = $this->cache();
        same([$cache->tags(['red', 'round'])->put('ball', 'x', 100), $cache->tags(['red'])->put('rose', 'y', 100)],
            [true, true]);
        same([$cache->tags(['red', 'round'])->get('ball'), $cache->tags(['red'])->get('rose')], ['x', 'y']);
        same([$cache->get('ball'), $cache->tags(['round'])->get('ball')], [null, null]);
        same($cache->tags('blue')->remember('sky', 100, fn () => 'z'), 'z');
        same([$cache->tags(['round'])->flush(), $cache->tags(['red', 'round'])->get('ball')], [true, null]);
        same([$cache->tags(['red'])->get('rose'), $cache->tags('blue')->get('sky')], ['y', 'z']);
        same([$cache->tags(['red'])->forget('rose'), $cache->tags(['red'])->get('rose')], [true, null]);
        same([$cache->tags('blue')->flush(), $cache->tags('blue')->add('sky', 'new', 100)], [true, true]);
    }

    /** What guards a login form: a few attempts, then none for a while. */
    public function attempts(): void
    {
        $limiter = new RateLimiter($this->cache());
        same(array_map(fn () => $limiter->hit('login', 600), range(1, 3)), [1, 2, 3]);
        same([$limiter->tooManyAttempts('login', 3), $limiter->tooManyAttempts('login', 4)], [true, false]);
        same([$limiter->attempt('login', 3, fn () => 'in'), $limiter->remaining('login', 5)], [false, 2]);
        between(500, $limiter->availableIn('login'), 600);
        $limiter->clear('login');
        same([$limiter->attempts('login'), $limiter->attempt('login', 3, fn () => 'in')], [0, 'in']);
        // The first attempt creates the counter, which Laravel does in more than one step.
        $limiter->hit('crowd.login', 600);
        in_processes(function (): void {
            $own = new RateLimiter($this->cache());
            foreach (range(1, 100) as $i) {
                $own->hit('crowd.login', 600);
            }
        });
        same((int) $limiter->attempts('crowd.login'), 1 + PROCESSES * 100);
    }

    public function sessions(): void
    {
        $handler = new CacheBasedSessionHandler($this->cache(), 2);
        $other = new CacheBasedSessionHandler($this->cache(), 2);
        same([$handler->read('session'), $handler->write('session', AWKWARD)], ['', true]);
        same([$other->read('session'), $other->destroy('session'), $handler->read('session')], [AWKWARD, true, '']);
    }

    /** A cache with a connection of its own. */
    protected function cache(): Repository
    {
        return new Repository($this->store());
    }
}
