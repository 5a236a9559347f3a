<?php
/** Hashes, sets and sorted sets with phpredis. */

/** Hashes, sets and sorted sets. */
final class PhpRedisCollections extends Suite
{
    private Redis $client;

    public function __construct(string $label, string $host, int $port)
    {
        parent::__construct($label, $host, $port);
        $this->client = phpredis($host, $port, 7);
    }

    public function hashes(): void
    {
        $client = $this->client;
        same([$client->hSet('h', 'a', '1'), $client->hSet('h', 'a', '2'), $client->hSetNx('h', 'a', '3')],
            [1, 0, false]);
        same([$client->hMSet('h', ['b' => 'x', 'c' => 3]), $client->hLen('h'), $client->hStrLen('h', 'b')],
            [true, 3, 1]);
        same($client->hGetAll('h'), ['a' => '2', 'b' => 'x', 'c' => '3']);
        same($client->hMGet('h', ['a', 'absent']), ['a' => '2', 'absent' => false]);
        same([$client->hKeys('h'), $client->hVals('h')], [['a', 'b', 'c'], ['2', 'x', '3']]);
        same([$client->hIncrBy('h', 'a', 5), $client->hIncrByFloat('h', 'c', 0.5)], [7, 3.5]);
        same([$client->hExists('h', 'b'), $client->hDel('h', 'b', 'absent'), $client->hGet('h', 'b')],
            [true, 1, false]);
        same([$client->hGetAll('absent'), $client->hLen('absent')], [[], 0]);
        same([$client->hDel('h', 'a', 'c'), $client->exists('h')], [2, 0]);
    }

    public function sets(): void
    {
        $client = $this->client;
        same([$client->sAdd('s', 'a', 'b', 'c', 'a'), $client->sAddArray('s', ['d', 'e']), $client->sCard('s')],
            [3, 2, 5]);
        same([$client->sIsMember('s', 'a'), $client->sMisMember('s', 'a', 'z')], [true, [1, 0]]);
        same([$client->sRem('s', 'a', 'z'), $client->sMove('s', 's2', 'b')], [1, true]);
        same_values($client->sMembers('s'), ['c', 'd', 'e']);
        $client->sAdd('s2', 'c');
        same_values($client->sInter('s', 's2'), ['c']);
        same_values($client->sUnion('s', 's2'), ['b', 'c', 'd', 'e']);
        same_values($client->sDiff('s', 's2'), ['d', 'e']);
        same([$client->sInterStore('si', 's', 's2'), $client->sUnionStore('su', 's', 's2')], [1, 4]);
        same([$client->sDiffStore('sd', 's', 's2'), $client->sCard('sd')], [2, 2]);
        same([count($client->sRandMember('su', 2)), in_array($client->sPop('su'), ['b', 'c', 'd', 'e'])], [2, true]);
        same([count($client->sPop('su', 9)), $client->exists('su'), $client->sMembers('su')], [3, 0, []]);
    }

    public function sorted_sets(): void
    {
        $client = $this->client;
        same([$client->zAdd('z', 1, 'a', 2, 'b', 3.5, 'c'), $client->zAdd('z', ['NX'], 9, 'a')], [3, 0]);
        same([$client->zAdd('z', ['XX', 'CH'], 2.5, 'b'), $client->zIncrBy('z', 1, 'a')], [1, 2.0]);
        same($client->zRange('z', 0, -1, true), ['a' => 2.0, 'b' => 2.5, 'c' => 3.5]);
        same($client->zRevRange('z', 0, 1), ['c', 'b']);
        same($client->zRangeByScore('z', '(2', '+inf', ['withscores' => true]), ['b' => 2.5, 'c' => 3.5]);
        same($client->zRangeByScore('z', '-inf', '+inf', ['limit' => [1, 1]]), ['b']);
        same($client->zRevRangeByScore('z', '+inf', '-inf', ['limit' => [0, 2]]), ['c', 'b']);
        same([$client->zCount('z', '2', '3'), $client->zRank('z', 'c'), $client->zRevRank('z', 'c')], [2, 2, 0]);
        same([$client->zScore('z', 'a'), $client->zScore('z', 'absent'), $client->zCard('z')], [2.0, false, 3]);
        $client->zAdd('z2', 10, 'a', 20, 'd');
        same($client->zUnionStore('zu', ['z', 'z2'], [1, 2], 'MAX'), 4);
        same($client->zRange('zu', 0, -1, true), ['b' => 2.5, 'c' => 3.5, 'a' => 20.0, 'd' => 40.0]);
        same([$client->zInterStore('zi', ['z', 'z2']), $client->zScore('zi', 'a')], [1, 12.0]);
        same([$client->zPopMin('zu'), $client->zPopMax('zu')], [['b' => 2.5], ['d' => 40.0]]);
        same([$client->zRem('z', 'a', 'absent'), $client->zRemRangeByScore('z', 0, 3)], [1, 1]);
        same([$client->zRemRangeByRank('z', 0, -1), $client->exists('z')], [1, 0]);
    }

    public function sorted_by_name(): void
    {
        $client = $this->client;
        $client->zAdd('names', 0, 'ada', 0, 'bob', 0, 'cyd', 0, 'dan');
        same($client->zRangeByLex('names', '[b', '(d'), ['bob', 'cyd']);
        same($client->zRevRangeByLex('names', '+', '-'), ['dan', 'cyd', 'bob', 'ada']);
        same([$client->zLexCount('names', '-', '+'), $client->zRemRangeByLex('names', '-', '(c')], [4, 2]);
    }

    public function scanning_collections(): void
    {
        $client = $this->client;
        $fields = array_map(fn ($i) => "field $i", range(1, 1200));
        $client->hMSet('many h', array_combine($fields, array_map('strval', range(1, 1200))));
        $client->sAddArray('many s', $fields);
        $client->zAdd('many z', ...array_merge(...array_map(fn ($i, $name) => [$i, $name], range(1, 1200), $fields)));
        foreach ([Redis::SCAN_RETRY, Redis::SCAN_NORETRY] as $retry) {
            $client->setOption(Redis::OPT_SCAN, $retry);
            same($this->scanned('hScan', 'many h')['field 7'], '7');
            same($this->scanned('zScan', 'many z')['field 7'], 7.0);
            same_values($this->scanned('sScan', 'many s'), $fields);
            foreach (['hScan' => 'many h', 'zScan' => 'many z', 'sScan' => 'many s'] as $command => $key) {
                same(count($this->scanned($command, $key)), 1200);
                same(count($this->scanned($command, $key, 'field 1??')), 100);
                same($this->scanned($command, 'absent'), []);
            }
        }
    }

    public function collections_in_transactions(): void
    {
        $client = $this->client;
        $client->del('h', 's', 'z');
        $answers = $client->multi()->hSet('h', 'f', 'v')->sAdd('s', 'm')->zAdd('z', 1, 'm')->hGetAll('h')->sMembers('s')
            ->zRange('z', 0, -1, true)->hGet('s', 'f')->exec();
        same($answers, [1, 1, 1, ['f' => 'v'], ['m'], ['m' => 1.0], false]);
        same($client->multi()->expire('h', 100)->persist('h')->del('h', 's', 'z')->exec(), [true, true, 3]);
    }

    /** Everything that an iterator finds in a collection. */
    private function scanned(string $command, string $key, ?string $pattern = null): array
    {
        [$cursor, $found] = [null, []];
        while (($some = $this->client->$command($key, $cursor, $pattern, 100)) !== false) {
            $found = array_is_list($some) ? array_merge($found, $some) : $found + $some;
        }
        return array_is_list($found) ? array_values(array_unique($found)) : $found;
    }
}
