<?php
/** Predis, a client that is written in PHP. */

require 'Predis/autoload.php';

use Predis\Client;
use Predis\Collection\Iterator;
use Predis\Command\ScriptCommand;
use Predis\Response\ErrorInterface;
use Predis\Response\ServerException;
use Predis\Session\Handler;
use Predis\Transaction\AbortedMultiExecException;

/** A client of its own, with a database that is named by its number. */
function predis(string $host, int $port, int $database = 0, array $options = []): Client
{
    $address = ['host' => $host, 'port' => $port, 'database' => $database, 'read_write_timeout' => 20];
    return new Client($address, $options);
}

/** Fails unless `$call` throws an error of the server that begins with `$text`. */
function refused(string $text, callable $call): void
{
    $error = raises(ServerException::class, '', $call);
    same(substr($error->getMessage(), 0, strlen($text)), $text);
    same($error->getErrorType(), explode(' ', $text)[0]);
}

/** Adds to a number, as a command that the application defines. */
final class AddTwice extends ScriptCommand
{
    public function getKeysCount(): int
    {
        return 1;
    }

    public function getScript(): string
    {
        return "redis.call('INCRBY', KEYS[1], ARGV[1]) return redis.call('INCRBY', KEYS[1], ARGV[1])";
    }
}

/** Values, keys, transactions and scripts. */
final class PredisSuite extends Suite
{
    private Client $client;

    public function __construct(string $label, string $host, int $port)
    {
        parent::__construct($label, $host, $port);
        $this->client = predis($host, $port);
    }

    public function strings(): void
    {
        $client = $this->client;
        same([(string) $client->set('a', 'x'), $client->get('a'), $client->get('absent')], ['OK', 'x', null]);
        same([$client->set('a', 'y', 'NX'), (string) $client->set('b', 'y', 'EX', 100, 'NX')], [null, 'OK']);
        between(90, $client->ttl('b'), 100);
        same([$client->setnx('a', 'z'), $client->getset('a', 'new'), $client->append('a', 'er')], [0, 'x', 5]);
        same([$client->strlen('a'), $client->getrange('a', 1, -2), $client->setrange('a', 3, 'ss')], [5, 'ewe', 5]);
        same([$client->get('a'), $client->exists('a'), $client->type('a')->getPayload()], ['newss', 1, 'string']);
        same($client->executeRaw(['GETDEL', 'a']), 'newss');
    }

    public function several(): void
    {
        $client = $this->client;
        $wanted = array_combine(array_map(fn ($i) => "m$i", range(0, 299)), array_map('strval', range(0, 299)));
        same((string) $client->mset($wanted), 'OK');
        same($client->mget([...array_keys($wanted), 'absent']), [...array_values($wanted), null]);
        same([$client->msetnx(['m0' => 'x', 'n0' => 'x']), $client->exists('n0')], [0, 0]);
        same([$client->del('m0', 'm1', 'absent'), $client->del(['m2', 'm3'])], [2, 2]);
        same($client->executeRaw(['UNLINK', 'm4', 'm5', 'absent']), 2);
    }

    public function binary_and_large_values(): void
    {
        $client = $this->client;
        foreach ([AWKWARD, '', LARGE] as $value) {
            $client->set('bin', $value);
            same($client->get('bin'), $value);
        }
        $client->set(AWKWARD, AWKWARD);
        same($client->mget(AWKWARD, 'absent'), [AWKWARD, null]);
        $client->hmset('bin hash', [AWKWARD => AWKWARD, '' => '']);
        same($client->hgetall('bin hash'), [AWKWARD => AWKWARD, '' => '']);
        same([$client->sadd('bin set', [AWKWARD]), $client->smembers('bin set')], [1, [AWKWARD]]);
        same([$client->zadd('bin zset', [AWKWARD => 1]), $client->zrange('bin zset', 0, -1)], [1, [AWKWARD]]);
    }

    public function numbers(): void
    {
        $client = $this->client;
        same([$client->incr('n'), $client->incrby('n', 10), $client->decr('n'), $client->decrby('n', 20)],
            [1, 11, 10, -10]);
        same([$client->incrbyfloat('f', 1.5), $client->incrbyfloat('f', -0.25)], ['1.5', '1.25']);
        $client->set('word', 'text');
        refused('ERR value is not an integer or out of range', fn () => $client->incr('word'));
        in_processes(function (): void {
            $own = predis($this->host, $this->port);
            for ($i = 0; $i < 300; $i++) {
                $own->incr('counted');
                $own->hincrby('counted hash', 'field', 2);
            }
        });
        same([$client->get('counted'), $client->hget('counted hash', 'field')],
            [(string) (PROCESSES * 300), (string) (PROCESSES * 600)]);
    }

    public function lifetimes(): void
    {
        $client = $this->client;
        $client->setex('t', 100, 'x');
        $client->psetex('p', 50, 'x');
        between(90, $client->ttl('t'), 100);
        same([$client->expire('t', 200), $client->pexpire('t', 50_000), $client->expire('absent', 1)], [1, 1, 0]);
        between(40_000, $client->pttl('t'), 50_000);
        same($client->expireat('t', time() + 300), 1);
        same([$client->persist('t'), $client->ttl('t'), $client->ttl('absent')], [1, -1, -2]);
        until(fn () => $client->get('p') === null);
    }

    public function keys_and_scanning(): void
    {
        $client = predis($this->host, $this->port, 3);
        $users = array_map(fn ($i) => "user:$i", range(1, 300));
        $client->mset(array_fill_keys(array_merge($users, array_map(fn ($i) => "page:$i", range(1, 700))), 'x'));
        $found = iterator_to_array(new Iterator\Keyspace($client, 'user:*', 50), false);
        same_values(array_unique($found), $users);
        same_values($client->keys('user:29?'), array_map(fn ($i) => "user:29$i", range(0, 9)));
        same([$client->dbsize(), (string) $client->rename('page:1', 'first'), $client->renamenx('first', 'page:2')],
            [1000, 'OK', 0]);
        same([$client->move('first', 4), $client->exists('first'), (string) $client->flushdb()], [1, 0, 'OK']);
        same([$client->dbsize(), $client->randomkey()], [0, null]);
    }

    public function databases(): void
    {
        [$one, $two] = [predis($this->host, $this->port, 1), predis($this->host, $this->port, 2)];
        $one->set('where', 'one');
        $two->set('where', 'two');
        same([$one->get('where'), $two->get('where'), $this->client->get('where')], ['one', 'two', null]);
        same([(string) $one->select(2), $one->get('where')], ['OK', 'two']);
        refused('ERR', fn () => $one->select(99));
        same($one->get('where'), 'two');
    }

    public function pipelines(): void
    {
        $answers = $this->client->pipeline(function ($pipe): void {
            for ($i = 1; $i <= 1000; $i++) {
                $pipe->set("piped $i", $i);
                $pipe->incr("piped $i");
            }
        });
        same([count($answers), (string) $answers[1998], $answers[1999]], [2000, 'OK', 1001]);
        $answers = $this->client->pipeline(['atomic' => true], function ($pipe): void {
            $pipe->set('atomic', 1);
            $pipe->incr('atomic');
        });
        same([(string) $answers[0], $answers[1]], ['OK', 2]);
        $quiet = predis($this->host, $this->port, 0, ['exceptions' => false]);
        $answers = $quiet->pipeline()->set('word', 'text')->incr('word')->get('word')->execute();
        same([$answers[1] instanceof ErrorInterface, $answers[2]], [true, 'text']);
        same((string) $answers[1], 'ERR value is not an integer or out of range');
    }

    public function transactions(): void
    {
        $client = $this->client;
        $answers = $client->transaction()->set('t1', 'x')->incr('t2')->mget('t1', 't2')->execute();
        same([(string) $answers[0], $answers[1], $answers[2]], ['OK', 1, ['x', '1']]);
        refused('ERR value is not an integer', fn () => $client->transaction()->set('t3', 'y')->incr('t1')->execute());
        same($client->get('t3'), 'y');
        $stopped = $client->transaction();
        $stopped->set('t1', 'never');
        $stopped->discard();
        same($client->get('t1'), 'x');
    }

    public function watching(): void
    {
        $other = predis($this->host, $this->port);
        $this->client->set('watched', 1);
        $options = ['cas' => true, 'watch' => 'watched'];
        $answers = $this->client->transaction($options, function ($transaction): void {
            $value = $transaction->get('watched');
            $transaction->multi();
            $transaction->set('watched', $value + 1);
        });
        same([count($answers), $this->client->get('watched')], [1, '2']);
        $late = function ($transaction) use ($other): void {
            $transaction->get('watched');
            $other->set('watched', 10);
            $transaction->multi();
            $transaction->set('watched', 20);
        };
        raises(AbortedMultiExecException::class, '', fn () => $this->client->transaction($options, $late));
        same($this->client->get('watched'), '10');
    }

    public function watching_in_processes(): void
    {
        $this->client->set('balance', 0);
        in_processes(function (): void {
            $own = predis($this->host, $this->port);
            $add = function ($transaction): void {
                $balance = (int) $transaction->get('balance');
                $transaction->multi();
                $transaction->set('balance', $balance + 3);
            };
            for ($i = 0; $i < 25; $i++) {
                $own->transaction(['cas' => true, 'watch' => 'balance', 'retry' => 1_000_000], $add);
            }
        });
        same($this->client->get('balance'), (string) (PROCESSES * 75));
    }

    public function scripts(): void
    {
        $client = $this->client;
        $client->script('flush');
        $add = "return redis.call('INCRBY', KEYS[1], ARGV[1]) + ARGV[2]";
        refused('NOSCRIPT No matching script', fn () => $client->evalsha(sha1($add), 1, 'sum', 5, 100));
        same([$client->eval($add, 1, 'sum', 5, 100), $client->evalsha(sha1($add), 1, 'sum', 5, 100)], [105, 110]);
        same([$client->script('load', 'return 1'), $client->script('exists', sha1('return 1'), sha1('x'))],
            [sha1('return 1'), [1, 0]]);
        same($client->eval("return {KEYS[1], ARGV[1], 2.9, false, {'x'}}", 1, 'k', AWKWARD),
            ['k', AWKWARD, 2, null, ['x']]);
        refused('MINE', fn () => $client->eval("return redis.error_reply('MINE now')", 0));
        $client->getProfile()->defineCommand('addtwice', AddTwice::class);
        $client->script('flush');
        same([$client->addtwice('twice', 5), $client->addtwice('twice', 5)], [10, 20]);
        same($client->pipeline()->addtwice('twice', 5)->get('twice')->execute(), [30, '30']);
    }

    public function locks_in_processes(): void
    {
        $this->client->set('guarded', 0);
        in_processes(function (int $number): void {
            $own = predis($this->host, $this->port);
            $release = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
            until_times(25, function () use ($own, $number, $release): bool {
                if (!$own->set('lock', "owner $number", 'PX', 60_000, 'NX')) {
                    return false;
                }
                $own->set('guarded', (int) $own->get('guarded') + 1);
                same($own->eval($release, 1, 'lock', "owner $number"), 1);
                return true;
            });
        });
        same([$this->client->get('guarded'), $this->client->exists('lock')], [(string) (PROCESSES * 25), 0]);
    }

    public function hashes(): void
    {
        $client = $this->client;
        same([$client->hset('h', 'a', 1), $client->hset('h', 'a', 2), $client->hsetnx('h', 'a', 3)], [1, 0, 0]);
        same([(string) $client->hmset('h', 'b', 'x', 'c', 3), $client->hlen('h'), $client->hstrlen('h', 'b')],
            ['OK', 3, 1]);
        same($client->hgetall('h'), ['a' => '2', 'b' => 'x', 'c' => '3']);
        same([$client->hmget('h', 'a', 'absent'), $client->hkeys('h')], [['2', null], ['a', 'b', 'c']]);
        same([$client->hincrby('h', 'a', 5), $client->hincrbyfloat('h', 'c', 0.5), $client->hexists('h', 'b')],
            [7, '3.5', 1]);
        same([$client->hdel('h', ['a', 'b', 'c']), $client->exists('h'), $client->hgetall('h')], [3, 0, []]);
    }

    public function sets(): void
    {
        $client = $this->client;
        same([$client->sadd('s', ['a', 'b', 'c', 'a']), $client->scard('s'), $client->sismember('s', 'a')], [3, 3, 1]);
        same([$client->sadd('s2', ['c', 'd']), $client->srem('s', 'a'), $client->smove('s', 's2', 'b')], [2, 1, 1]);
        same([$client->sinter('s', 's2'), $client->sdiff('s', 's2')], [['c'], []]);
        same_values($client->sunion('s', 's2'), ['b', 'c', 'd']);
        same([$client->sunionstore('su', ['s', 's2']), $client->sinterstore('si', ['s', 's2'])], [3, 1]);
        same([count($client->srandmember('su', 2)), count($client->spop('su', 3)), $client->exists('su')], [2, 3, 0]);
    }

    public function sorted_sets(): void
    {
        $client = $this->client;
        same([$client->zadd('z', ['a' => 1, 'b' => 2, 'c' => 3.5]), $client->zincrby('z', 1, 'a')], [3, '2']);
        same($client->zrange('z', 0, -1, 'WITHSCORES'), ['a' => '2', 'b' => '2', 'c' => '3.5']);
        same($client->zrevrange('z', 0, 0, ['withscores' => true]), ['c' => '3.5']);
        same($client->zrangebyscore('z', '(2', '+inf', ['withscores' => true, 'limit' => [0, 5]]), ['c' => '3.5']);
        same($client->zrevrangebyscore('z', '+inf', '-inf'), ['c', 'b', 'a']);
        same([$client->zcount('z', 2, 3), $client->zrank('z', 'c'), $client->zscore('z', 'c')], [2, 2, '3.5']);
        $client->zadd('z2', ['a' => 10, 'd' => 20]);
        same($client->zunionstore('zu', ['z', 'z2'], ['weights' => [1, 2], 'aggregate' => 'max']), 4);
        same($client->zrange('zu', 0, -1), ['b', 'c', 'a', 'd']);
        same([$client->zinterstore('zi', ['z', 'z2']), $client->zscore('zi', 'a')], [1, '12']);
        same([$client->zremrangebyscore('z', 0, 3), $client->zremrangebyrank('z', 0, -1), $client->exists('z')],
            [2, 1, 0]);
        $client->zadd('names', ['ada' => 0, 'bob' => 0, 'cyd' => 0]);
        same([$client->zrangebylex('names', '[b', '(c'), $client->zlexcount('names', '-', '+')], [['bob'], 3]);
    }

    public function scanning_collections(): void
    {
        $client = $this->client;
        $names = array_map(fn ($i) => "field $i", range(1, 1200));
        $client->hmset('many h', array_combine($names, array_map('strval', range(1, 1200))));
        $client->sadd('many s', $names);
        $client->zadd('many z', array_combine($names, range(1, 1200)));
        $hash = iterator_to_array(new Iterator\HashKey($client, 'many h', null, 100));
        same([count($hash), $hash['field 7']], [1200, '7']);
        $zset = iterator_to_array(new Iterator\SortedSetKey($client, 'many z', null, 100));
        same([count($zset), $zset['field 7']], [1200, 7.0]);
        $set = iterator_to_array(new Iterator\SetKey($client, 'many s', 'field 1??', 100), false);
        same(count(array_unique($set)), 100);
    }

    public function channels(): void
    {
        $heard = in_processes(function (int $number): array {
            $own = predis($this->host, $this->port);
            if ($number > 0) {
                until(fn () => (int) $own->pubsub('numsub', 'news')['news'] === 1);
                until(fn () => (int) $own->get('turn') === $number);
                $told = $own->publish('news', AWKWARD . $number);
                $own->set('turn', $number + 1);
                return [$told];
            }
            $own->set('turn', 1);
            return $this->hear($own, 3);
        });
        same($heard, [[AWKWARD . '1', AWKWARD . '2', AWKWARD . '3'], [1], [1], [1]]);
    }

    public function prefix(): void
    {
        $client = predis($this->host, $this->port, 6, ['prefix' => 'app:']);
        $client->mset(['k' => 'x', 'l' => 'y']);
        same([$client->get('k'), $client->eval('return KEYS[1]', 1, 'k')], ['x', 'app:k']);
        same_values($client->keys('*'), ['app:k', 'app:l']);
        same([$client->del('k', 'l'), $client->dbsize()], [2, 0]);
    }

    public function introspection(): void
    {
        $client = $this->client;
        same([(string) $client->ping(), $client->echo('text')], ['PONG', 'text']);
        holds(version_compare($client->info('server')['Server']['redis_version'], '6.0', '>='));
        holds(isset($client->info()['Memory']['maxmemory_policy']));
        same(array_keys($client->config('get', 'maxmemory-policy')), ['maxmemory-policy']);
        same([(string) $client->client('setname', 'of-the-tests'), $client->client('getname')], ['OK', 'of-the-tests']);
        same(in_array('of-the-tests', array_column($client->client('list'), 'name')), true);
        between(time() - 60, $client->time()[0], time() + 60);
        same(is_array($client->slowlog('get')), true);
    }

    public function errors(): void
    {
        $client = $this->client;
        $client->set('string', 'x');
        $client->hset('hash', 'f', 'v');
        $wrong = 'WRONGTYPE Operation against a key holding the wrong kind of value';
        refused($wrong, fn () => $client->hget('string', 'f'));
        refused($wrong, fn () => $client->sadd('string', ['m']));
        refused($wrong, fn () => $client->zadd('string', ['m' => 1]));
        refused($wrong, fn () => $client->get('hash'));
        refused('ERR wrong number of arguments', fn () => $client->get());
        refused('ERR syntax error', fn () => $client->set('k', 'v', 'BADLY'));
        $error = null;
        $client->executeRaw(['NONE'], $error);
        same([$error, $client->get('string')], [true, 'x']);
    }

    public function refused_commands(): void
    {
        needs_larder($this->host, $this->port);
        $client = $this->client;
        refused("ERR unknown command 'LPUSH': Larder has no lists", fn () => $client->lpush('l', 'x'));
        refused("ERR unknown command 'BRPOP': Larder has no lists", fn () => $client->brpop('l', 1));
        refused("ERR unknown command 'PFADD': Larder has no", fn () => $client->pfadd('p', ['x']));
        refused("ERR unknown command 'GEOADD': Larder has no", fn () => $client->geoadd('g', 1, 2, 'x'));
        same($client->get('string'), 'x');
    }

    public function session_handler(): void
    {
        $handler = new Handler($this->client, ['gc_maxlifetime' => 100]);
        same([$handler->open('', ''), $handler->read('session'), $handler->write('session', AWKWARD)],
            [true, '', true]);
        same([$handler->read('session'), $handler->destroy('session'), $handler->read('session')], [AWKWARD, true, '']);
        $handler->write('session', 'x');
        between(90, $this->client->ttl('session'), 100);
    }

    public function several_servers(): void
    {
        $servers = ["tcp://$this->host:$this->port?database=10", "tcp://localhost:$this->port?database=11"];
        $client = new Client($servers, ['cluster' => 'predis']);
        $client->pipeline(function ($pipe): void {
            for ($i = 0; $i < 100; $i++) {
                $pipe->set("spread $i", $i);
            }
        });
        same(array_map(fn ($i) => $client->get("spread $i"), range(0, 99)), array_map('strval', range(0, 99)));
        $client->mset(['{user}:name' => 'Ada', '{user}:mail' => 'a@b']);
        same($client->mget('{user}:name', '{user}:mail', '{user}:none'), ['Ada', 'a@b', null]);
        $sizes = [predis($this->host, $this->port, 10)->dbsize(), predis($this->host, $this->port, 11)->dbsize()];
        same([array_sum($sizes), min($sizes) > 0], [102, true]);
    }

    /** The first `$wanted` messages of two channels that the connection subscribes to. */
    private function hear(Client $client, int $wanted): array
    {
        $heard = [];
        $loop = $client->pubSubLoop(['subscribe' => ['news', 'other']]);
        foreach ($loop as $message) {
            if ($message->kind === 'message') {
                same($message->channel, 'news');
                $heard[] = $message->payload;
                if (count($heard) === $wanted) {
                    $loop->unsubscribe();
                }
            }
        }
        same((string) $client->set('after', 'x'), 'OK');
        return $heard;
    }
}

return fn (string $host, int $port): array => [[
    'Predis' => fn (string $label) => new PredisSuite($label, $host, $port),
]];
