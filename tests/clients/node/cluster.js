// The cluster clients of ioredis and node-redis, against a fleet: HOST PORT ioredis|node-redis, PORT of one server.
// Prints a line per check: `ok NAME` or `not ok NAME: REASON`. In the middle it prints `ready` and waits for a line:
// the slots of the fleet have changed then. `absent N` says how many keys were not found afterwards.
'use strict';

const assert = require('assert');
const readline = require('readline');

const [, , host, port, library] = process.argv;
const same = assert.deepStrictEqual;
const KEYS = Array.from({ length: 1000 }, (_, i) => `key:${i}`);
const TAGS = Array.from({ length: 50 }, (_, i) => [0, 1, 2, 3, 4].map((each) => `{tag${i}}:${each}`));

const connect = {
  ioredis: async () => {
    const Redis = require('ioredis');
    const client = new Redis.Cluster([{ host, port: Number(port) }]);
    return { client, mget: (keys) => client.mget(keys), end: () => client.quit() };
  },
  'node-redis': async () => {
    const client = require('redis').createCluster({ rootNodes: [{ socket: { host, port: Number(port) } }] });
    client.on('error', () => {});
    await client.connect();
    return { client, mget: (keys) => client.mGet(keys), end: () => client.close() };
  },
};

const readAll = ({ client }, keys) => Promise.all(keys.map((key) => client.get(key)));
const storeAll = ({ client }, keys, word) => Promise.all(keys.map((key) => client.set(key, `${word} of ${key}`)));

const before = {
  'set and get': async (door) => {
    await storeAll(door, KEYS, 'value');
    same(await readAll(door, KEYS), KEYS.map((key) => `value of ${key}`));
    same(await door.client.get('absent'), null);
  },
  'several keys of one slot': async (door) => {
    for (const keys of TAGS) {
      await storeAll(door, keys, 'value');
      same(await door.mget([...keys, `${keys[0]}:absent`]), [...keys.map((key) => `value of ${key}`), null]);
    }
  },
  'keys of different slots': async (door) => {
    // node-redis asks each server for its share, as COMMAND tells it to.
    await door.client.set('{a}1', 'x');
    await door.client.set('{b}1', 'y');
    const found = door.mget(['{a}1', '{b}1']);
    if (library === 'ioredis') await assert.rejects(found, /slot/i);
    else same(await found, ['x', 'y']);
  },
};

const after = {
  'slots that moved': async (door) => {
    const found = await readAll(door, KEYS);
    found.forEach((value, i) => assert([null, `value of ${KEYS[i]}`].includes(value)));
    console.log(`absent ${found.filter((value) => value === null).length}`);
    await storeAll(door, KEYS, 'new value');
    same(await readAll(door, KEYS), KEYS.map((key) => `new value of ${key}`));
  },
  'several keys of a slot that moved': async (door) => {
    for (const keys of TAGS) {
      await storeAll(door, keys, 'new value');
      same(await door.mget(keys), keys.map((key) => `new value of ${key}`));
    }
  },
};

(async () => {
  let failed = 0;
  const door = await connect[library]();
  const run = async (checks) => {
    for (const [name, check] of Object.entries(checks)) {
      try {
        await check(door);
        console.log(`ok ${library} cluster: ${name}`);
      } catch (error) {
        failed += 1;
        console.log(`not ok ${library} cluster: ${name}: ${String(error && error.message).split('\n').join(' ')}`);
      }
    }
  };
  await run(before);
  const lines = readline.createInterface({ input: process.stdin });
  const told = new Promise((resolve) => lines.once('line', resolve));
  console.log('ready');
  await told;
  lines.close();
  await run(after);
  await door.end();
  process.exit(failed ? 1 : 0);
})();
