// node-memcached, against a live server: HOST and PORT are the arguments.
// Prints a line per check: `ok NAME` or `not ok NAME: REASON`.
'use strict';

const assert = require('assert');
const { promisify } = require('util');
const Memcached = require('memcached');

const client = new Memcached(`${process.argv[2]}:${process.argv[3]}`, {
  timeout: 20000, retries: 0, maxValue: 5000000, poolSize: 8, encoding: 'utf8',
});
const call = (name) => promisify(client[name].bind(client));
const [get, getMulti, gets, set, add, replace, append, prepend] =
  ['get', 'getMulti', 'gets', 'set', 'add', 'replace', 'append', 'prepend'].map(call);
const [cas, incr, decr, touch, del, flush, stats, version, settings, items] =
  ['cas', 'incr', 'decr', 'touch', 'del', 'flush', 'stats', 'version', 'settings', 'items'].map(call);

// The library reports NOT_STORED and the like as errors; here they count as `false`.
const refused = (promise) => promise.then(() => false, (error) => /not stored/i.test(error.message));

const checks = {
  'set and get': async () => {
    assert.strictEqual(await set('a', 'hello', 0), true);
    assert.strictEqual(await get('a'), 'hello');
    assert.strictEqual(await get('absent'), undefined);
    await set('number', 42, 0);
    assert.strictEqual(await get('number'), 42);
    await set('object', { two: [2.5] }, 0);
    assert.deepStrictEqual(await get('object'), { two: [2.5] });
  },
  'several keys': async () => {
    const keys = Array.from({ length: 200 }, (_, i) => `m${i}`);
    await Promise.all(keys.map((key) => set(key, key, 0)));
    const got = await getMulti([...keys, 'absent']);
    assert.strictEqual(Object.keys(got).length, 200);
    assert.strictEqual(got.m7, 'm7');
  },
  'add and replace': async () => {
    assert(await refused(replace('b', 'x', 0)));
    assert.strictEqual(await add('b', 'x', 0), true);
    assert(await refused(add('b', 'y', 0)));
    assert.strictEqual(await replace('b', 'z', 0), true);
    assert.strictEqual(await get('b'), 'z');
  },
  'append and prepend': async () => {
    await set('c', 'mid', 0);
    assert.strictEqual(await append('c', '>'), true);
    assert.strictEqual(await prepend('c', '<'), true);
    assert.strictEqual(await get('c'), '<mid>');
  },
  'compare and swap': async () => {
    await set('d', '1', 0);
    const before = await gets('d');
    assert.strictEqual(before.d, '1');
    assert.strictEqual(await cas('d', '2', before.cas, 0), true);
    assert.strictEqual(await cas('d', '3', before.cas, 0), false);
    assert.strictEqual(await get('d'), '2');
  },
  arithmetic: async () => {
    await set('n', 10, 0);
    assert.strictEqual(await incr('n', 5), 15);
    assert.strictEqual(await decr('n', 20), 0);
    assert.strictEqual(await incr('absent', 1), false);
  },
  touch: async () => {
    await set('t', 'x', 0);
    assert.strictEqual(await touch('t', 100), true);
    assert.strictEqual(await touch('absent', 100), false);
  },
  expiry: async () => {
    await set('e', 'x', 1);
    await set('f', 'x', 100);
    await new Promise((resolve) => setTimeout(resolve, 2200));
    assert.strictEqual(await get('e'), undefined);
    assert.strictEqual(await get('f'), 'x');
  },
  'large values and line ends': async () => {
    const large = '0123456789abcdef'.repeat(60000);
    await set('large', large, 0);
    assert.strictEqual(await get('large'), large);
    const bytes = Buffer.from(Array.from({ length: 1024 }, (_, i) => i % 256));
    await set('bytes', bytes, 0);
    assert(bytes.equals(await get('bytes')));
    await set('wide', 'grüße 世界 \u{1f600}', 0);
    assert.strictEqual(await get('wide'), 'grüße 世界 \u{1f600}');
  },
  'keys of 250 bytes': async () => {
    await set('k'.repeat(250), 'x', 0);
    assert.strictEqual(await get('k'.repeat(250)), 'x');
  },
  delete: async () => {
    await set('x', 'x', 0);
    assert.strictEqual(await del('x'), true);
    assert.strictEqual(await del('x'), false);
  },
  'stats, settings, items and version': async () => {
    const [found] = await stats();
    assert(found.pid > 0 && found.curr_items > 0);
    assert((await version())[0].version);
    assert.strictEqual((await settings())[0].evictions, 'on');
    await items();
  },
  flush: async () => {
    await set('z', 'x', 0);
    await flush();
    assert.strictEqual(await get('z'), undefined);
  },
};

(async () => {
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok node-memcached ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`not ok node-memcached ${name}: ${String(error && error.message).split('\n').join(' ')}`);
    }
  }
  client.end();
  process.exitCode = failed ? 1 : 0;
})();
