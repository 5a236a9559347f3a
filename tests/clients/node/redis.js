// ioredis and node-redis, against a live server: HOST PORT ioredis|node-redis.
// Prints a line per check: `ok NAME` or `not ok NAME: REASON`.
'use strict';

const assert = require('assert');

const [, , host, port, library] = process.argv;
const same = assert.deepStrictEqual;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
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
  'what is refused': async ({ call }) => {
    await assert.rejects(call('LPUSH', 'list', 'x'), /no lists/);
    await assert.rejects(call('EVAL', 'return 1', '0'), /DELEX key IFEQ token/);
    await assert.rejects(call('SUBSCRIBE', 'channel'), /no channels/);
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
