<?php
/** What Symfony does alike with every server: caches, locks, limiters and sessions. */

require 'Predis/autoload.php';
require 'Psr/SimpleCache/autoload.php';
require 'Symfony/Component/Cache/autoload.php';
require 'Symfony/Component/Lock/autoload.php';
require 'Symfony/Component/RateLimiter/autoload.php';
require 'Symfony/Component/HttpFoundation/autoload.php';

use Symfony\Component\Cache\Adapter\AdapterInterface;
use Symfony\Component\Cache\Adapter\RedisAdapter;
use Symfony\Component\Cache\Adapter\TagAwareAdapter;
use Symfony\Component\Cache\Psr16Cache;
use Symfony\Component\HttpFoundation\Session\Storage\Handler\AbstractSessionHandler;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Lock;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Lock\Store\RetryTillSaveStore;
use Symfony\Component\RateLimiter\RateLimiterFactory;
use Symfony\Component\RateLimiter\Storage\CacheStorage;
use Symfony\Contracts\Cache\ItemInterface;

/** A connection of its own, to the database of the class of the client. */
function symfony_redis(string $host, int $port, string $class): object
{
    $database = $class === Redis::class ? 1 : 2;
    return RedisAdapter::createConnection("redis://$host:$port/$database", ['class' => $class, 'read_timeout' => 20]);
}

/** The checks that need a pool, a store of locks, and a session handler. */
abstract class SymfonyChecks extends Suite
{
    /** A cache with a connection of its own. */
    abstract protected function pool(string $namespace, int $lifetime = 0): AdapterInterface;

    /** A store of locks with a connection of its own. */
    abstract protected function store(): PersistingStoreInterface;

    /** A session handler with a connection of its own. */
    abstract protected function session_handler(): AbstractSessionHandler;

    public function items(): void
    {
        [$pool, $other] = [$this->pool('items'), $this->pool('items')];
        foreach (['text', 42, -2.5, true, null, ['list' => [1, 'two']], AWKWARD, new ArrayObject([1]), ''] as $value) {
            same($pool->save($pool->getItem('a')->set($value)), true);
            $item = $other->getItem('a');
            same([$item->isHit(), $item->getKey()], [true, 'a']);
            same($item->get(), $value);
        }
        same([$pool->getItem('absent')->isHit(), $pool->hasItem('a'), $pool->hasItem('absent')], [false, true, false]);
        same([$pool->deleteItem('a'), $other->hasItem('a')], [true, false]);
        same($this->pool('others')->hasItem('a'), false);
    }

    public function several_items(): void
    {
        $pool = $this->pool('several');
        foreach (range(0, 299) as $i) {
            $pool->saveDeferred($pool->getItem("m$i")->set($i)->expiresAfter(100));
        }
        same($pool->commit(), true);
        $items = iterator_to_array($this->pool('several')->getItems(array_map(fn ($i) => "m$i", range(0, 302))));
        same([count($items), $items['m7']->get(), $items['m300']->isHit()], [303, 7, false]);
        same([$pool->deleteItems(['m1', 'm2', 'absent']), $pool->hasItem('m1'), $pool->hasItem('m3')],
            [true, false, true]);
        same([$pool->save($pool->getItem('large')->set(LARGE)), $pool->getItem('large')->get()], [true, LARGE]);
    }

    public function computed_once(): void
    {
        $pool = $this->pool('computed');
        $calls = 0;
        $compute = function (ItemInterface $item) use (&$calls): array {
            $item->expiresAfter(100);
            return ['calls' => ++$calls];
        };
        same([$pool->get('c', $compute), $pool->get('c', $compute)], [['calls' => 1], ['calls' => 1]]);
        same($this->pool('computed')->get('c', $compute), ['calls' => 1]);
        same([$pool->get('c', $compute, INF), $pool->delete('c')], [['calls' => 2], true]);
        same($pool->get('c', $compute), ['calls' => 3]);
    }

    public function lifetimes(): void
    {
        $pool = $this->pool('lives');
        $pool->save($pool->getItem('f')->set('x')->expiresAfter(100));
        $pool->save($pool->getItem('month')->set('x')->expiresAfter(60 * 24 * 3600));
        $pool->save($pool->getItem('ever')->set('x')->expiresAfter(null));
        same(array_map([$pool, 'hasItem'], ['f', 'month', 'ever']), [true, true, true]);
        $pool->save($pool->getItem('f')->set('x')->expiresAfter(0));
        same($pool->hasItem('f'), false);
    }

    /** Items, locks and windows of limiters that end soon. */
    public function what_ends(): void
    {
        [$pool, $brief] = [$this->pool('lives'), $this->pool('brief', EXPIRY_SECONDS)];
        $pool->save($pool->getItem('e')->set('x')->expiresAfter(EXPIRY_SECONDS));
        $pool->save($pool->getItem('at')->set('x')->expiresAt(new DateTime('+1 second')));
        $brief->save($brief->getItem('e')->set('x'));
        (new Psr16Cache($pool))->set('psr', 'x', EXPIRY_SECONDS);
        $lock = (new LockFactory($this->store()))->createLock('ending', EXPIRY_SECONDS, false);
        $next = (new LockFactory($this->store()))->createLock('ending', 60, false);
        same($lock->acquire(), true);
        $limiters = [];
        foreach (['fixed_window', 'sliding_window'] as $policy) {
            $limiters[] = $limiter = $this->limits($policy, 3, ['interval' => '1 second'])->create('brief');
            same($limiter->consume(3)->isAccepted(), true);
        }
        foreach (['e', 'at', 'psr'] as $key) {
            until(fn () => !$pool->hasItem($key));
        }
        until(fn () => !$brief->getItem('e')->isHit());
        until(fn () => @$next->acquire());
        until(fn () => $lock->isExpired());
        same([$lock->isAcquired(), @$lock->acquire()], [false, false]);
        $lock->release();
        same($next->isAcquired(), true);
        foreach ($limiters as $limiter) {
            until(fn () => $limiter->consume()->isAccepted());
        }
    }

    public function clearing(): void
    {
        [$pool, $other] = [$this->pool('cleared'), $this->pool('kept')];
        foreach ([$pool, $other] as $one) {
            foreach (range(1, 1500) as $i) {
                $one->saveDeferred($one->getItem("c$i")->set($i));
            }
            $one->commit();
        }
        same([$pool->clear(), $this->pool('kept')->hasItem('c1500')], [true, true]);
        $left = array_filter(iterator_to_array($pool->getItems(array_map(fn ($i) => "c$i", range(1, 1500)))),
            fn ($item) => $item->isHit());
        same($left, []);
        same([$pool->save($pool->getItem('c1')->set('new')), $pool->getItem('c1')->get()], [true, 'new']);
    }

    /** Tags as Symfony itself keeps them, with every server. */
    public function tags(): void
    {
        $pool = new TagAwareAdapter($this->pool('tags'));
        $other = new TagAwareAdapter($this->pool('tags'), null, 0);
        foreach (['one' => ['red'], 'two' => ['red', 'round'], 'three' => ['round'], 'four' => []] as $key => $tags) {
            $pool->save($pool->getItem($key)->set($key)->tag($tags));
        }
        same($other->getItem('two')->getMetadata()['tags'], ['red' => 'red', 'round' => 'round']);
        same($pool->invalidateTags(['red']), true);
        $hits = array_map(fn ($key) => $other->hasItem($key), ['one', 'two', 'three', 'four']);
        same($hits, [false, false, true, true]);
        $pool->save($pool->getItem('two')->set('again')->tag('red'));
        same([$other->getItem('two')->get(), $pool->invalidateTags(['absent'])], ['again', true]);
    }

    public function psr16(): void
    {
        $cache = new Psr16Cache($this->pool('psr16'));
        same([$cache->set('a', [1, 2], 100), $cache->get('a'), $cache->get('absent', 7)], [true, [1, 2], 7]);
        same([$cache->setMultiple(['b' => 2, 'c' => AWKWARD], 100), $cache->has('b')], [true, true]);
        same([...$cache->getMultiple(['a', 'b', 'c', 'absent'], 'none')],
            ['a' => [1, 2], 'b' => 2, 'c' => AWKWARD, 'absent' => 'none']);
        same([$cache->deleteMultiple(['a', 'b']), $cache->delete('absent'), $cache->has('a')], [true, true, false]);
        same([$cache->clear(), $cache->has('c')], [true, false]);
    }

    public function locks(): void
    {
        [$one, $other] = [new LockFactory($this->store()), new LockFactory($this->store())];
        [$mine, $theirs] = [$one->createLock('job', 60, false), $other->createLock('job', 60, false)];
        same([$mine->acquire(), $mine->isAcquired(), $theirs->acquire()], [true, true, false]);
        same($mine->acquire(), true);
        $mine->refresh(90);
        between(60, $mine->getRemainingLifetime(), 90);
        raises(LockConflictedException::class, '', fn () => $theirs->refresh(90));
        $theirs->release();
        same([$mine->isAcquired(), $theirs->isAcquired(), $other->createLock('other-job')->acquire()],
            [true, false, true]);
        $mine->release();
        same([$mine->isAcquired(), $theirs->acquire()], [false, true]);
        $theirs->release();
    }

    /** A key of a lock can be given to another process. */
    public function locks_that_move(): void
    {
        $key = new Key('moving');
        $lock = new Lock($key, $this->store(), 60, false);
        same($lock->acquire(), true);
        $moved = new Lock(unserialize(serialize($key)), $this->store(), 60, false);
        same([$moved->isAcquired(), $moved->acquire()], [true, true]);
        $moved->release();
        same($lock->isAcquired(), false);
    }

    public function locks_in_processes(): void
    {
        $pool = $this->pool('guarded');
        $pool->save($pool->getItem('n')->set(0));
        in_processes(function (): void {
            [$own, $factory] = [$this->pool('guarded'), new LockFactory($this->store())];
            until_times(25, function () use ($own, $factory): bool {
                $lock = $factory->createLock('guard', 60, false);
                // With memcached, PHP warns where a lock is released while it is asked for.
                if (!@$lock->acquire()) {
                    return false;
                }
                $item = $own->getItem('n');
                $own->save($item->set($item->get() + 1));
                $lock->release();
                return true;
            });
        });
        same($pool->getItem('n')->get(), PROCESSES * 25);
    }

    public function limiters(): void
    {
        foreach (['fixed_window', 'sliding_window'] as $policy) {
            $limiter = $this->limits($policy, 10)->create('user');
            $accepted = array_map(fn () => $limiter->consume()->isAccepted(), range(1, 12));
            same($accepted, [...array_fill(0, 10, true), false, false]);
            $limit = $this->limits($policy, 10)->create('user')->consume();
            same([$limit->isAccepted(), $limit->getRemainingTokens(), $limit->getLimit()], [false, 0, 10]);
            same($this->limits($policy, 10)->create('other')->consume(10)->isAccepted(), true);
            $limiter->reset();
            same($limiter->consume(4)->getRemainingTokens(), 6);
        }
        $bucket = $this->limits('token_bucket', 10, ['rate' => ['interval' => '10 minutes']])->create('user');
        same([$bucket->consume(10)->isAccepted(), $bucket->consume()->isAccepted()], [true, false]);
    }

    public function limiters_in_processes(): void
    {
        foreach (['fixed_window', 'sliding_window'] as $policy) {
            $accepted = in_processes(function () use ($policy): int {
                $locks = new LockFactory(new RetryTillSaveStore($this->store(), 2));
                $limiter = $this->limits($policy, 30, [], $locks)->create('crowd');
                return count(array_filter(range(1, 15), fn () => @$limiter->consume()->isAccepted()));
            });
            same(array_sum($accepted), 30);
        }
    }

    public function sessions(): void
    {
        [$handler, $other] = [$this->session_handler(), $this->session_handler()];
        same([$handler->open('', 'sid'), $handler->read('session'), $handler->write('session', AWKWARD)],
            [true, '', true]);
        same([$other->open('', 'sid'), $other->validateId('session'), $other->read('session')], [true, true, AWKWARD]);
        same([$other->updateTimestamp('session', AWKWARD), $other->validateId('absent')], [true, false]);
        same([$handler->destroy('session'), $other->read('session'), $handler->close()], [true, '', true]);
    }

    /** What makes limiters of a policy. */
    private function limits(
        string $policy,
        int $limit,
        array $more = [],
        ?LockFactory $locks = null
    ): RateLimiterFactory {
        $options = $more + ['id' => $policy, 'policy' => $policy, 'limit' => $limit, 'interval' => '10 minutes'];
        return new RateLimiterFactory($options, new CacheStorage($this->pool('limits')), $locks);
    }
}
