// memjs, a client of the binary protocol, against a live server: HOST PORT [USER PASSWORD].
// Prints a line per check: `ok NAME` or `not ok NAME: REASON`.
'use strict';

const assert = require('assert');
const { promisify } = require('util');
const memjs = require('memjs');

const [, , host, port, username, password] = process.argv;
const connect = (more) => memjs.Client.create(`${host}:${port}`, {
  timeout: 20, conntimeout: 20, retries: 0, logger: { log() {} }, username, password, ...more,
});
const client = connect();
const name = username ? 'memjs with a login' : 'memjs';
const text = async (key) => {
  const { value } = await client.get(key);
  return value === null ? null : value.toString();
};

const stats = () => new Promise((resolve, reject) => {
  client.stats((error, _, found) => (error ? reject(error) : resolve(found)));
});

const checks = {
  'set and get': async () => {
    assert.strictEqual(await client.set('a', 'hello'), true);
    assert.strictEqual(await text('a'), 'hello');
    assert.strictEqual(await text('absent'), null);
  },
  'several requests at once': async () => {
    const keys = Array.from({ length: 200 }, (_, i) => `m${i}`);
    await Promise.all(keys.map((key) => client.set(key, key)));
    assert.deepStrictEqual(await Promise.all(keys.map(text)), keys);
  },
  'add and replace': async () => {
    assert.strictEqual(await client.replace('b', 'x'), false);
    assert.strictEqual(await client.add('b', 'x'), true);
    assert.strictEqual(await client.add('b', 'y'), false);
    assert.strictEqual(await client.replace('b', 'z'), true);
    assert.strictEqual(await text('b'), 'z');
  },
  // Its `prepend` sends the opcode of `append`.
  append: async () => {
    await client.set('c', 'mid');
    assert.strictEqual(await client.append('c', '>'), true);
    assert.strictEqual(await text('c'), 'mid>');
    await assert.rejects(client.append('absent', '>'));
  },
  arithmetic: async () => {
    assert.deepStrictEqual(await client.increment('n', 5, { initial: 10 }), { success: true, value: 10 });
    assert.deepStrictEqual(await client.increment('n', 5, {}), { success: true, value: 15 });
    assert.deepStrictEqual(await client.decrement('n', 20, {}), { success: true, value: 0 });
    await client.set('word', 'a');
    await assert.rejects(client.increment('word', 1, {}));
  },
  touch: async () => {
    await client.set('t', 'x');
    assert.strictEqual(await client.touch('t', 100), true);
    assert.strictEqual(await client.touch('absent', 100), false);
  },
  expiry: async () => {
    await client.set('e', 'x', { expires: 1 });
    await client.set('f', 'x', { expires: 100 });
    await new Promise((resolve) => setTimeout(resolve, 2200));
    assert.strictEqual(await text('e'), null);
    assert.strictEqual(await text('f'), 'x');
  },
  'large values and every byte': async () => {
    const large = Buffer.from(Array.from({ length: 1000000 }, (_, i) => i % 256));
    await client.set('large', large);
    assert((await client.get('large')).value.equals(large));
    await client.set('empty', '');
    assert.strictEqual(await text('empty'), '');
    await assert.rejects(client.set('huge', Buffer.alloc(2000000)), /too large/i);
    assert.strictEqual(await text('huge'), null);
  },
  'keys of 250 bytes': async () => {
    await client.set('k'.repeat(250), 'x');
    assert.strictEqual(await text('k'.repeat(250)), 'x');
  },
  delete: async () => {
    await client.set('x', 'x');
    assert.strictEqual(await client.delete('x'), true);
    assert.strictEqual(await client.delete('x'), false);
  },
  stats: async () => {
    const found = await stats();
    assert(Number(found.pid) > 0 && Number(found.curr_items) > 0);
  },
  flush: async () => {
    await client.set('z', 'x');
    await promisify(client.flush.bind(client))();
    assert.strictEqual(await text('z'), null);
  },
};

if (username) {
  // memjs does not say why it failed: the server counts a refused login, and no other.
  checks['a wrong password'] = async () => {
    const before = Number((await stats()).auth_errors);
    const stranger = connect({ password: 'wrong' });
    await assert.rejects(stranger.set('stranger', 'x'));
    stranger.close();
    assert.strictEqual(Number((await stats()).auth_errors), before + 1);
    assert.strictEqual(await text('stranger'), null);
  };
}

(async () => {
  let failed = 0;
  for (const [title, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok ${name} ${title}`);
    } catch (error) {
      failed += 1;
      console.log(`not ok ${name} ${title}: ${String(error && error.message).split('\n').join(' ')}`);
    }
  }
  client.quit();
  process.exitCode = failed ? 1 : 0;
})();
