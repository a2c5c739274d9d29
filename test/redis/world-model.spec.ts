import fc from 'fast-check';
import { Redis } from 'ioredis';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { LOCK_SCRIPT } from '../../lib/providers/redis/lua/lock-script.js';
import { LOCK_SCRIPT as REDLOCK_SCRIPT, roundDigits, tokenDigits } from '../../lib/providers/redlock/lock-script.js';
import { exploration } from '../exploration.js';
import { type ClusterNode, type RedisCluster, startRedisCluster } from '../servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { makeServerClock, NO_COMPILER } from '../servers/server-clock.js';
import { describeUnless } from '../unless.js';
import { LuaEngine } from '../world/lua-engine.js';
import { type ModelClient, RedisModel } from '../world/redis-model.js';
import { SlotMap, SLOTS } from '../world/slot-map.js';

/**
 * The simulation is only as good as its Redis. So its model and a real server execute the same calls of the lock
 * script, from several processes with all kinds of operations, with a clock that stands still between calls: all
 * replies and messages must be equal.
 */
const RUNS = exploration(40, 1_000);
const LAYOUT = new KeyLayout('lock');
const PROCESSES = ['aaaaaaaaaaaa', 'bbbbbbbbbbbb', 'cccccccccccc'] as const;
const LOCKS = ['x', 'y', 'z'].map((key) => LAYOUT.lockOf(key));
const KINDS = ['exclusive', 'several', 'minHold', 'shared', 'limited', 'limited with minHold'] as const;
const ACTIONS = ['ask', 'ask', 'ask', 'once', 'renew', 'release', 'leave', 'keep', 'inspect', 'force'] as const;
const EPOCH = 1_800_000_000_000;
const clock = makeServerClock();

const LETTERS = {
  exclusive: ['A', 'T', 'R'],
  several: ['N', 'M', 'R'],
  minHold: ['B', 'U', 'R'],
  shared: ['a', 't', 'r'],
  limited: ['l', 'm', 'e'],
  'limited with minHold': ['l', 'm', 'e'],
} as const;

const operation = fc.record({
  action: fc.constantFrom(...ACTIONS),
  request: fc.nat({ max: 7 }),
  age: fc.nat({ max: 2_000_000 }),
  isSame: fc.boolean(),
  link: fc.constantFrom('+', '-', '-'),
});
const request = fc.record({
  process: fc.nat({ max: 2 }),
  lock: fc.nat({ max: 2 }),
  kind: fc.constantFrom(...KINDS),
  lease: fc.constantFrom(100, 3_000, 30_000),
});
const call = fc.record({
  passed: fc.constantFrom(0, 0, 1, 5, 100, 700, 3_500),
  process: fc.nat({ max: 2 }),
  operations: fc.array(operation, { minLength: 1, maxLength: 4 }),
});

interface Operation {
  readonly action: (typeof ACTIONS)[number];
  readonly request: number;
  readonly age: number;
  readonly isSame: boolean;
  readonly link: string;
}

interface Request {
  readonly process: number;
  readonly lock: number;
  readonly kind: (typeof KINDS)[number];
  readonly lease: number;
}

const COUNTER = 'lock:redlock';
// Close to the server's time, so counters are both ahead of it and behind it.
const TOKENS = [-1, 0, 1, 2, 3].map((count) => tokenDigits(EPOCH * 1_000 + count));
const redlockOperation = fc
  .record({
    code: fc.constantFrom('V', 'V', 'V', 'W', 'W', 'A', 'E', 'R', 'C', 'I', 'F'),
    lock: fc.constantFrom('a', 'b'),
    holder: fc.constantFrom('1'.repeat(32), '2'.repeat(32)),
    ms: fc.constantFrom('0', '60000'),
    token: fc.constantFrom('0'.repeat(16), ...TOKENS),
    /** The first token of a block that a vote names. */
    first: fc.constantFrom('', ...TOKENS),
    round: fc.constantFrom(1, 2, 3).map(roundDigits),
  })
  .map(({ code, lock, holder, ms, token, first, round }) => {
    // No process writes an empty token, and Redis rejects an expiry of zero.
    const known = ['W', 'A'].includes(code) && Number(token) === 0 ? (TOKENS[0] ?? '') : token;
    const block = code === 'V' && Number(token) > 0 && first < token ? first : '';
    const vote = code === 'R' ? holder : holder + known + round + block;
    return { lock: `${COUNTER}:${lock}`, args: [code, vote, ['V', 'A'].includes(code) ? '60000' : ms] };
  });
const redlockCall = fc.record({
  passed: fc.constantFrom(0, 0, 1, 40_000),
  operations: fc.array(redlockOperation, { minLength: 1, maxLength: 3 }),
});

describeUnless(clock ? undefined : NO_COMPILER)('the model of Redis', () => {
  let server: RedisServer;
  let redis: Redis;
  let subscriber: Redis;
  let engine: LuaEngine;
  const heard: string[] = [];

  beforeAll(async () => {
    clock?.freeze(EPOCH);
    server = await startRedisServer({ env: clock?.env ?? {} });
    redis = new Redis(server.port);
    subscriber = new Redis(server.port);
    for (const process of PROCESSES) await subscriber.subscribe(LAYOUT.channelOf(process));
    subscriber.on('message', (channel, message) => heard.push(`${channel} ${message}`));
    engine = await LuaEngine.create();
  });
  afterAll(async () => {
    redis.disconnect();
    subscriber.disconnect();
    await server.stop();
    clock?.remove();
  });

  it('replies as the server does', async () => {
    let now = EPOCH;
    await fc.assert(
      fc.asyncProperty(
        fc.array(request, { minLength: 8, maxLength: 8 }),
        fc.array(call, { minLength: 20, maxLength: 60 }),
        async (requests, calls) => {
          await redis.flushall();
          const told: string[] = [];
          const model = modelWith(() => now, told);
          for (const { passed, process, operations } of calls) {
            now += passed;
            clock?.freeze(now);
            const args = argumentsOf(process, operations, requests);
            heard.length = told.length = 0;
            const real: unknown = await redis.call('eval', LOCK_SCRIPT.text, ...args).catch((error: unknown) => error);
            // Once this is answered, everything published before has arrived.
            await subscriber.ping();
            const answer = model.execute(NOBODY, ['eval', LOCK_SCRIPT.text, ...args]);
            expect({ args, answer: texts(answer), told }).toEqual({ args, answer: texts(real), told: heard });
          }
        },
      ),
      { numRuns: RUNS },
    );
  });

  it('replies to the Redlock script as a node does, and stores the same values', async () => {
    let now = EPOCH;
    await fc.assert(
      fc.asyncProperty(fc.array(redlockCall, { minLength: 3, maxLength: 12 }), async (calls) => {
        await redis.flushall();
        now = EPOCH;
        const model = modelWith(() => now, []);
        for (const { passed, operations } of calls) {
          now += passed;
          clock?.freeze(now);
          const args = [
            ...[String(1 + operations.length), COUNTER, ...operations.map(({ lock }) => lock), ''],
            ...operations.flatMap((each) => each.args),
          ];
          const real: unknown = await redis.call('eval', REDLOCK_SCRIPT.text, ...args);
          const answer = model.execute(NOBODY, ['eval', REDLOCK_SCRIPT.text, ...args]);
          expect({ args, answer: texts(answer) }).toEqual({ args, answer: texts(real) });
        }
        for (const key of [COUNTER, `${COUNTER}:a`, `${COUNTER}:b`]) {
          expect({ key, text: model.textAt(key) ?? null }).toEqual({ key, text: await redis.get(key) });
        }
      }),
      { numRuns: RUNS },
    );
  });

  it('rejects foreign values as the server does', async () => {
    for (const fill of [
      ['set', LOCKS[0] ?? '', 'text'],
      ['zadd', LOCKS[0] ?? '', '1', 'member'],
      ['set', `${LOCKS[0]}}q`, 'text'],
    ]) {
      await redis.flushall();
      const model = modelWith(() => EPOCH, []);
      clock?.freeze(EPOCH);
      const [command = '', ...args] = fill;
      await redis.call(command, ...args);
      model.execute(NOBODY, fill);
      const ask = [
        '2',
        'lock:{0}',
        LOCKS[0] ?? '',
        PROCESSES[0],
        'A3000:0',
        `${PROCESSES[0]}${'0'.repeat(20)}`,
        '3000',
      ];
      const real: unknown = await redis.call('eval', LOCK_SCRIPT.text, ...ask).catch((error: unknown) => error);
      expect(texts(model.execute(NOBODY, ['eval', LOCK_SCRIPT.text, ...ask]))).toEqual(texts(real));
    }
  });

  function modelWith(time: () => number, told: string[]): RedisModel {
    const model = new RedisModel(engine, time);
    const listener: ModelClient = {
      id: 1,
      push: (channel, message) => told.push(`${channel} ${message}`),
      unsubscribed: () => undefined,
      end: () => undefined,
    };
    for (const process of PROCESSES) model.execute(listener, ['subscribe', LAYOUT.channelOf(process)]);
    return model;
  }
});

describe('the model of a Redis Cluster', () => {
  const BUCKET = 0;
  const SLOT = String(SLOTS[BUCKET]);
  const [COUNTER, KEY, NEW] = [
    LAYOUT.counterOf(BUCKET),
    `${LAYOUT.counterOf(BUCKET)}:k`,
    `${LAYOUT.counterOf(BUCKET)}:n`,
  ];
  const ELSEWHERE = LAYOUT.counterOf(1);
  const COMMANDS = [
    ['get', KEY],
    ['get', NEW],
    ['spublish', `${COUNTER}process`, 'text'],
    ['evalsha', '0'.repeat(40), '2', COUNTER, KEY],
    ['evalsha', '0'.repeat(40), '2', COUNTER, NEW],
    ['evalsha', '0'.repeat(40), '1', NEW],
    ['eval', 'return 1', '2', COUNTER, ELSEWHERE],
    ...[KEY, NEW].map((key) => ['eval', "return redis.call('EXISTS', ARGV[1])", '1', COUNTER, key]),
    ['eval', "return redis.call('EXISTS', ARGV[1])", '0', KEY],
    ['eval', "return redis.call('SPUBLISH', ARGV[1], 'text')", '1', COUNTER, `${COUNTER}process`],
    ['eval', "return redis.call('SPUBLISH', ARGV[1], 'text')", '0', `${COUNTER}process`],
  ];
  let cluster: RedisCluster;

  beforeAll(async () => {
    cluster = await startRedisCluster();
  }, 60_000);
  afterAll(() => cluster.stop());

  it('maps tags to their slots', async () => {
    for (const [bucket, slot] of SLOTS.entries()) {
      expect(await cluster.masters[0]?.admin.call('CLUSTER', ['KEYSLOT', LAYOUT.counterOf(bucket)])).toBe(slot);
    }
  });

  it('rejects what the servers reject, before, during and after a slot migration', async () => {
    const engine = await LuaEngine.create();
    const [other, , home] = cluster.masters as [ClusterNode, ClusterNode, ClusterNode];
    const nodes = [home, other];
    const portOf = (node: ClusterNode) => node.server.port;
    const models = nodes.map((node) => {
      const owners = SLOTS.map((slot) => portOf(cluster.masters[Math.floor((slot * 3) / 16_384)] as ClusterNode));
      return new RedisModel(engine, () => EPOCH, new SlotMap(owners, portOf(node)));
    }) as [RedisModel, RedisModel];
    const compare = async (state: string) => {
      for (const [index, { admin }] of nodes.entries()) {
        for (const command of COMMANDS) {
          const [name = '', ...args] = command;
          const real: unknown = await admin.call(name, ...args).catch((error: unknown) => error);
          const answer = models[index]?.execute(NOBODY, command);
          expect({ state, index, command, answer: placeless(answer) }).toEqual({
            state,
            index,
            command,
            answer: placeless(real),
          });
        }
      }
    };
    for (const key of [COUNTER, KEY]) {
      await home.admin.set(key, 'x');
      models[0].execute(NOBODY, ['set', key, 'x']);
    }
    await compare('before');

    await other.admin.call('CLUSTER', ['SETSLOT', SLOT, 'IMPORTING', home.id]);
    await home.admin.call('CLUSTER', ['SETSLOT', SLOT, 'MIGRATING', other.id]);
    models[0].slots?.migrating.set(BUCKET, portOf(other));
    await compare('migrating');
    for (const key of [COUNTER, KEY]) {
      await home.admin.call('MIGRATE', ['127.0.0.1', String(portOf(other)), key, '0', '5000']);
      models[0].give(key, models[1]);
      await compare(`without ${key}`);
    }

    for (const { admin } of [other, home]) await admin.call('CLUSTER', ['SETSLOT', SLOT, 'NODE', other.id]);
    for (const { slots } of models) slots?.owners.splice(BUCKET, 1, portOf(other));
    models[0].slots?.migrating.clear();
    await compare('after');
  });

  /** Returns an answer without the position in its script, and without the host. */
  function placeless(answer: unknown): unknown {
    return answer instanceof Error ? answer.message.replace(/ script: .*/s, '').replace(/ \S+:(\d+)$/, ' $1') : answer;
  }
});

const NOBODY: ModelClient = { id: 2, push: () => undefined, unsubscribed: () => undefined, end: () => undefined };

/** Returns the keys and arguments of a call, whose operations all belong to requests of its process. */
function argumentsOf(process: number, operations: readonly Operation[], requests: readonly Request[]): string[] {
  const encoded = operations.map((each) => {
    const own = { ...(requests[each.request] as Request), process };
    const holder = `${PROCESSES[process]}${String(each.request).padStart(20, '0')}`;
    return { lock: LOCKS[own.lock] ?? '', fields: fieldsOf(each, own, holder), link: each.link };
  });
  const links = encoded.map(({ link }, index) => (index === 0 ? '-' : link)).join('');
  return [
    String(1 + encoded.length),
    'lock:{0}',
    ...encoded.map(({ lock }) => lock),
    PROCESSES[process] ?? '',
    ...encoded.flatMap(({ fields }) => fields),
    ...(links.includes('+') ? [links] : []),
  ];
}

function fieldsOf({ action, age, isSame }: Operation, { kind, lease }: Request, holder: string): string[] {
  const isRetaining = kind === 'minHold' || kind === 'limited with minHold';
  const terms = kind.startsWith('limited') ? ' 1 2' : '';
  const provisional = `${Math.min(lease, 3_000)}${isRetaining ? 'm' : ''}${terms}`;
  const after = isRetaining ? ':700' : kind === 'several' ? '::3' : '';
  const [ask, once, release] = LETTERS[kind];
  switch (action) {
    case 'ask':
      return [`${ask}${provisional}:${isSame ? '=' : ''}${age}${after}`, holder, String(lease)];
    case 'once':
      return [`${once}${isSame ? provisional : terms}${after === '' ? '' : `:${after}`}`, holder, String(lease)];
    case 'renew':
      return [`C${isRetaining ? '700' : ''}${terms}`, holder, String(lease)];
    case 'release':
      return [`${release}${terms}`, holder, '0'];
    case 'leave':
      return [`${release}${provisional}`, holder, '0'];
    case 'keep':
      return [`${release}${terms}`, holder, '500'];
    case 'inspect':
      return ['I', '', '0'];
    case 'force':
      return ['F', '', '0'];
  }
}

/** Returns an answer with errors as strings, without the position in the script. */
function texts(answer: unknown): unknown {
  if (Array.isArray(answer)) return answer.map(texts);
  return answer instanceof Error ? `error ${answer.message.slice(0, 30)}` : answer;
}
