// ioredis and node-redis, against a live server: HOST PORT ioredis|node-redis.
// Prints a line per check: `ok NAME` or `not ok NAME: REASON`.
'use strict';

const assert = require('assert');

const [, , host, port, library] = process.argv;
const same = assert.deepStrictEqual;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const until = async (happens) => {
  for (const deadline = Date.now() + 60000; !(await happens()); await pause(20)) assert(Date.now() < deadline);
};
const every = Buffer.from(Array.from({ length: 1024 }, (_, i) => i % 256));

// One door to either library: `call` sends words and gives the reply, `bytes` the same with a reply of bytes.
const connect = {
  ioredis: async () => {
    const Redis = require('ioredis');
    const client = new Redis({ host, port: Number(port), maxRetriesPerRequest: 3 });
    client.on('error', () => {});
    return {
      client,
      call: (...words) => client.call(...words),
      bytes: (...words) => client.callBuffer(...words),
      other: async () => {
        const other = client.duplicate();
        other.on('error', () => {});
        return { client: other, call: (...words) => other.call(...words), end: () => other.quit() };
      },
      end: () => client.quit(),
    };
  },
  'node-redis': async () => {
    const redis = require('redis');
    const open = async (more) => {
      const client = redis.createClient({ socket: { host, port: Number(port) }, ...more });
      client.on('error', () => {});
      await client.connect();
      const texts = (words) => words.map((word) => (Buffer.isBuffer(word) ? word : String(word)));
      const toBytes = { typeMapping: { [redis.RESP_TYPES.BLOB_STRING]: Buffer } };
      return {
        client,
        call: (...words) => client.sendCommand(texts(words)),
        bytes: (...words) => client.withTypeMapping(toBytes.typeMapping).sendCommand(texts(words)),
        other: () => open(more),
        end: () => client.close(),
      };
    };
    return open({});
  },
};

const common = {
  'set and get': async ({ call }) => {
    same(await call('SET', 'a', 'hello'), 'OK');
    same(await call('GET', 'a'), 'hello');
    same(await call('GET', 'absent'), null);
    same(await call('EXISTS', 'a', 'absent'), 1);
  },
  conditions: async ({ call }) => {
    await call('DEL', 'b');
    same(await call('SET', 'b', 'x', 'XX'), null);
    same(await call('SET', 'b', 'x', 'NX', 'EX', 100), 'OK');
    same(await call('SET', 'b', 'y', 'NX'), null);
    same(await call('SET', 'b', 'y', 'KEEPTTL', 'GET'), 'x');
    same(await call('TTL', 'b'), 100);
    same(await call('GETDEL', 'b'), 'y');
  },
  'bytes, large values and wide characters': async ({ call, bytes }) => {
    const large = Buffer.concat(Array.from({ length: 900 }, () => every));
    for (const value of [every, large, Buffer.alloc(0)]) {
      await call('SET', 'bytes', value);
      assert(value.equals(await bytes('GET', 'bytes')));
    }
    await call('SET', 'grüße-世界', '\u{1f600}');
    same(await call('GET', 'grüße-世界'), '\u{1f600}');
    await assert.rejects(call('SET', 'huge', Buffer.alloc(2000000)), /maximum allowed size/);
    same(await call('GET', 'huge'), null);
  },
  'many requests at once': async ({ call }) => {
    const keys = Array.from({ length: 1000 }, (_, i) => `m${i}`);
    await Promise.all(keys.map((key) => call('SET', key, key)));
    same(await Promise.all(keys.map((key) => call('GET', key))), keys);
    same(await call('MGET', ...keys, 'absent'), [...keys, null]);
  },
  arithmetic: async ({ call }) => {
    await call('DEL', 'n', 'f');
    same(Number(await call('INCRBY', 'n', 41)), 41);
    same(Number(await call('DECR', 'n')), 40);
    same(await call('INCRBYFLOAT', 'f', '10.6'), '10.6');
    await assert.rejects(call('INCR', 'a'), /not an integer/);
  },
  'time to live': async ({ call }) => {
    await call('SET', 't', 'x', 'PX', 150);
    assert((await call('PTTL', 't')) <= 150);
    await pause(400);
    same(await call('GET', 't'), null);
    same(await call('TTL', 't'), -2);
    await call('SET', 't', 'x');
    same(await call('EXPIRE', 't', 100), 1);
    same(await call('TTL', 't'), 100);
    same(await call('PERSIST', 't'), 1);
  },
  'a lock': async ({ call }) => {
    await call('DEL', 'lock');
    same(await call('SET', 'lock', 'mine', 'NX', 'PX', 30000), 'OK');
    same(await call('DELEX', 'lock', 'IFEQ', 'theirs'), 0);
    same(await call('SET', 'lock', 'mine', 'IFEQ', 'mine', 'PX', 60000), 'OK');
    same(await call('DELEX', 'lock', 'IFEQ', 'mine'), 1);
  },
  scripts: async ({ call, bytes }) => {
    const release = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    await call('SET', 'lock', 'mine', 'PX', 60000);
    same(await call('EVAL', release, 1, 'lock', 'theirs'), 0);
    same(await call('EVAL', release, 1, 'lock', 'mine'), 1);
    same(await call('SCRIPT', 'FLUSH'), 'OK');
    const name = await call('SCRIPT', 'LOAD', 'return {KEYS[1], ARGV[1], 3.9, false, {}}');
    same(await call('EVALSHA', name, 1, 'k', 'v'), ['k', 'v', 3, null, []]);
    same(await call('SCRIPT', 'EXISTS', name, '0'.repeat(40)), [1, 0]);
    assert(every.equals(await bytes('EVAL', 'return ARGV[1]', 0, every)));
    await assert.rejects(call('EVALSHA', '0'.repeat(40), 0), /NOSCRIPT/);
    await assert.rejects(call('EVAL_RO', "return redis.call('SET', KEYS[1], 1)", 1, 'k'), /read-only/);
  },
  'a rate limiter': async ({ client, call }) => {
    const { RateLimiterRedis } = require('rate-limiter-flexible');
    const limiter = new RateLimiterRedis({
      storeClient: client, useRedisPackage: library === 'node-redis', keyPrefix: 'rate', points: 10, duration: 600,
    });
    await limiter.delete('user');
    const results = await Promise.allSettled(Array.from({ length: 15 }, () => limiter.consume('user')));
    same(results.filter(({ status }) => status === 'fulfilled').length, 10);
    assert(results[14].reason.msBeforeNext > 0 && (await call('TTL', 'rate:user')) <= 600);
    same((await limiter.get('user')).consumedPoints, 15);
    same((await limiter.reward('user', 10)).remainingPoints, 5);
    await limiter.block('user', 60);
    await assert.rejects(limiter.consume('user'), ({ msBeforeNext }) => msBeforeNext <= 60000);
    same(await limiter.delete('user'), true);
  },
  'what is refused': async ({ call }) => {
    await assert.rejects(call('LPUSH', 'list', 'x'), /no lists/);
    await assert.rejects(call('FCALL', 'f', '0'), /keeps no functions/);
    await assert.rejects(call('SELECT', '16'), /out of range/);
    same(await call('GET', 'a'), 'hello');
  },
};

const own = {
  ioredis: {
    'its own calls': async ({ client }) => {
      same(await client.set('own', 'x', 'EX', 10), 'OK');
      same(await client.mset({ m1: '1', m2: '2' }), 'OK');
      same(await client.mget('m1', 'm2'), ['1', '2']);
      same(await client.pipeline().incr('counter').get('counter').exec(), [[null, 1], [null, '1']]);
      assert((await client.info()).includes('redis_version'));
    },
    transactions: async ({ client, other }) => {
      same(await client.multi().set('w', '1').incr('w').exec(), [[null, 'OK'], [null, 2]]);
      await client.watch('w');
      const stranger = await other();
      await stranger.call('SET', 'w', '9');
      await stranger.end();
      same(await client.multi().set('w', '3').exec(), null);
      same(await client.get('w'), '9');
    },
    'a scan': async ({ client }) => {
      const found = new Set();
      for await (const keys of client.scanStream({ match: 'm*', count: 100 })) keys.forEach((key) => found.add(key));
      same(found.size, 1000);
    },
    'commands of its own': async ({ client }) => {
      client.defineCommand('add', { numberOfKeys: 1, lua: "return redis.call('INCRBY', KEYS[1], ARGV[1])" });
      client.defineCommand('echo2', { lua: 'return {KEYS[1], KEYS[2], ARGV[1]}', readOnly: true });
      await client.del('sum');
      same(await client.script('FLUSH'), 'OK');
      same(await Promise.all([1, 2, 3].map((number) => client.add('sum', number))), [1, 3, 6]);
      same(await client.echo2(2, 'k1', 'k2', 'v'), ['k1', 'k2', 'v']);
      same(await client.pipeline().set('other', '1').add('sum', 4).get('sum').exec(),
        [[null, 'OK'], [null, 10], [null, '10']]);
      same(await client.multi().add('sum', 5).get('sum').exec(), [[null, 15], [null, '15']]);
      assert(Buffer.from('k1').equals((await client.echo2Buffer(2, 'k1', 'k2', 'v'))[0]));
    },
    'publish and subscribe': async ({ client, other }) => {
      const heard = await other();
      const got = [];
      heard.client.on('message', (channel, text) => got.push([channel, text]));
      heard.client.on('pmessage', (pattern, channel, text) => got.push([pattern, channel, text]));
      heard.client.on('smessage', (channel, text) => got.push(['shard', channel, text]));
      heard.client.on('messageBuffer', (channel, bytes) => got.push(bytes));
      same([await heard.client.subscribe('news', 'grüße'), await heard.client.psubscribe('n?ws')], [2, 3]);
      same(await heard.client.ssubscribe('news'), 1);
      same([await client.publish('news', 'x'), await client.spublish('news', 'y')], [2, 1]);
      await until(() => got.length === 4);
      same(got.filter((each) => Array.isArray(each)), [['news', 'x'], ['n?ws', 'news', 'x'], ['shard', 'news', 'y']]);
      same(await client.publish('grüße', every), 1);
      await until(() => got.length === 6);
      assert(every.equals(got.find((each) => Buffer.isBuffer(each) && each.length > 1)));
      same(await client.pubsub('NUMSUB', 'news', 'none'), ['news', 1, 'none', 0]);
      // A subscriber whose connection ends subscribes again.
      assert((await client.call('CLIENT', 'KILL', 'TYPE', 'PUBSUB')) >= 1);
      await until(async () => (await client.publish('news', 'again')) === 2);
      await until(() => got.some((each) => each[2] === 'again'));
      same([await heard.client.unsubscribe('news', 'grüße'), await heard.client.punsubscribe('n?ws')], [1, 0]);
      await heard.client.sunsubscribe('news');
      same([await client.publish('news', 'x'), await heard.call('GET', 'own')], [0, 'x']);
      await heard.end();
    },
    'a killed connection': async ({ client, other }) => {
      const stranger = await other();
      const id = await stranger.call('CLIENT', 'ID');
      same(await client.call('CLIENT', 'KILL', 'ID', id), 1);
      same(await stranger.call('GET', 'a'), 'hello');
      await stranger.end();
    },
  },
  'node-redis': {
    'its own calls': async ({ client }) => {
      same(await client.set('own', 'x', { expiration: { type: 'EX', value: 10 }, condition: 'NX' }), 'OK');
      same(await client.mSet({ m1: '1', m2: '2' }), 'OK');
      same(await client.mGet(['m1', 'm2']), ['1', '2']);
      same(await client.getEx('own', { type: 'PERSIST' }), 'x');
      assert((await client.info()).includes('redis_version'));
      assert((await client.configGet('maxmemory')).maxmemory > 0);
    },
    transactions: async ({ client, other }) => {
      same(await client.multi().set('w', '1').incr('w').exec(), ['OK', 2]);
      const watcher = await other();
      await watcher.client.watch('w');
      await client.set('w', '9');
      await assert.rejects(watcher.client.multi().set('w', '3').exec(), /watch/i);
      same(await client.get('w'), '9');
      await watcher.end();
    },
    'a scan': async ({ client }) => {
      const found = new Set();
      for await (const keys of client.scanIterator({ MATCH: 'm*', COUNT: 100 })) keys.forEach((key) => found.add(key));
      same(found.size, 1000);
    },
    'a killed connection': async ({ client, other }) => {
      const stranger = await other();
      const id = await stranger.call('CLIENT', 'ID');
      same(await client.sendCommand(['CLIENT', 'KILL', 'ID', String(id)]), 1);
      await pause(300);
      same(await stranger.call('GET', 'a'), 'hello');
      await stranger.end();
    },
    'commands of its own': async ({ client }) => {
      const redis = require('redis');
      const add = redis.defineScript({
        SCRIPT: "return redis.call('INCRBY', KEYS[1], ARGV[1])",
        NUMBER_OF_KEYS: 1,
        parseCommand: (parser, key, number) => {
          parser.pushKey(key);
          parser.push(String(number));
        },
        transformReply: (reply) => reply,
      });
      const scripted = redis.createClient({ socket: { host, port: Number(port) }, scripts: { add } });
      await scripted.connect();
      await client.del('sum');
      same(await client.scriptFlush(), 'OK');
      same([await scripted.add('sum', 1), await scripted.add('sum', 2)], [1, 3]);
      same(await scripted.multi().add('sum', 4).get('sum').exec(), [7, '7']);
      same(await client.eval('return {KEYS[1], ARGV[1]}', { keys: ['k'], arguments: ['v'] }), ['k', 'v']);
      same(await client.evalRo("return redis.call('GET', KEYS[1])", { keys: ['sum'] }), '7');
      same(await client.scriptExists([add.SHA1, '0'.repeat(40)]), [1, 0]);
      await scripted.close();
    },
    'publish and subscribe': async ({ client }) => {
      const redis = require('redis');
      for (const RESP of [2, 3]) {
        const heard = redis.createClient({ socket: { host, port: Number(port) }, RESP });
        heard.on('error', () => {});
        await heard.connect();
        const got = [];
        const keep = (text, channel) => got.push([channel, text]);
        await heard.subscribe(['news', 'grüße'], keep);
        await heard.pSubscribe('n?ws', keep);
        await heard.sSubscribe('news', keep);
        same([await client.publish('news', 'x'), await client.sPublish('news', 'y')], [2, 1]);
        await until(() => got.length === 3);
        same(got, [['news', 'x'], ['news', 'x'], ['news', 'y']]);
        const bytes = [];
        await heard.subscribe('bytes', (text) => bytes.push(text), true);
        same(await client.publish('bytes', every), 1);
        await until(() => bytes.length === 1 && every.equals(bytes[0]));
        same({ ...(await client.pubSubNumSub(['news', 'none'])) }, { news: 1, none: 0 });
        same((await client.pubSubChannels('*s')).sort(), ['bytes', 'news']);
        if (RESP === 3) same(String(await heard.get('a')), 'hello');
        await heard.ping();
        // A subscriber whose connection ends subscribes again.
        await client.sendCommand(['CLIENT', 'KILL', 'TYPE', 'PUBSUB']);
        await until(async () => (await client.publish('news', 'again')) === 2);
        await until(() => got.some(([, text]) => text === 'again'));
        await heard.unsubscribe();
        await heard.pUnsubscribe();
        await heard.sUnsubscribe();
        same([await client.publish('news', 'x'), await client.sPublish('news', 'x')], [0, 0]);
        same(String(await heard.get('a')), 'hello');
        await heard.close();
      }
    },
    'a cache on the side of the client': async ({ client }) => {
      const redis = require('redis');
      const cache = new redis.BasicClientSideCache({ maxEntries: 100 });
      const address = { socket: { host, port: Number(port) }, RESP: 3 };
      const caching = await redis.createClient({ ...address, clientSideCache: cache }).connect();
      await client.set('cached', 'x', { expiration: { type: 'PX', value: 60000 } });
      for (let i = 0; i < 10; i++) same(await caching.get('cached'), 'x');
      same([cache.stats().hitCount, cache.stats().missCount, cache.size()], [9, 1, 1]);
      const forgets = async (change) => {
        await caching.get('cached');
        await change();
        await until(() => cache.size() === 0);
        same(await caching.get('cached'), await client.get('cached'));
      };
      await forgets(() => client.set('cached', 'y'));
      await forgets(() => client.expire('cached', 100));
      await forgets(() => caching.append('cached', 'own'));
      await forgets(() => client.eval("return redis.call('SET', KEYS[1], 'z')", { keys: ['cached'] }));
      await forgets(() => client.multi().set('cached', 'w').incr('counted').exec());
      await forgets(() => client.pExpire('cached', 100));
      await forgets(() => client.set('cached', 'last'));
      same(await caching.mGet(['cached', 'absent']), ['last', null]);
      await client.del('cached');
      await until(() => cache.size() === 0);
      await caching.get('a');
      await caching.close();
      const pool = redis.createClientPool(address, {
        minimum: 3, maximum: 3, clientSideCache: new redis.BasicPooledClientSideCache(),
      });
      await pool.connect();
      await client.set('cached', 'x');
      same(new Set(await Promise.all(Array.from({ length: 50 }, () => pool.get('cached')))), new Set(['x']));
      await client.set('cached', 'y');
      await until(async () => (await pool.get('cached')) === 'y');
      await pool.close();
    },
    'both versions of RESP': async () => {
      const redis = require('redis');
      for (const RESP of [2, 3]) {
        const client = redis.createClient({ socket: { host, port: Number(port) }, RESP });
        await client.connect();
        same(await client.get('a'), 'hello');
        same(await client.ttl('absent'), -2);
        assert((await client.hello()).proto === RESP);
        await client.close();
      }
    },
  },
};

const last = {
  flush: async ({ call }) => {
    same(await call('FLUSHALL'), 'OK');
    same(await call('DBSIZE'), 0);
  },
};

(async () => {
  let failed = 0;
  const door = await connect[library]();
  for (const [name, check] of Object.entries({ ...common, ...own[library], ...last })) {
    try {
      await check(door);
      console.log(`ok ${library} ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`not ok ${library} ${name}: ${String(error && error.message).split('\n').join(' ')}`);
    }
  }
  await door.end();
  process.exitCode = failed ? 1 : 0;
})();
