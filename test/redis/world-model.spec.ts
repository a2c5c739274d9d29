import fc from 'fast-check';
import { Redis } from 'ioredis';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { LOCK_SCRIPT } from '../../lib/providers/redis/lua/lock-script.js';
import { exploration } from '../exploration.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { makeServerClock, NO_COMPILER } from '../servers/server-clock.js';
import { describeUnless } from '../unless.js';
import { LuaEngine } from '../world/lua-engine.js';
import { type ModelClient, RedisModel } from '../world/redis-model.js';

/**
 * The simulation is worth as much as its Redis is like Redis. So both execute the same calls of the lock script, of several processes with all
 * kinds of operations, with a clock that stands still between them: each answer and each message must be the same.
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

  it('answers as the server does', async () => {
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
            // What was published before has arrived when this is answered.
            await subscriber.ping();
            const answer = model.execute(NOBODY, ['eval', LOCK_SCRIPT.text, ...args]);
            expect({ args, answer: texts(answer), told }).toEqual({ args, answer: texts(real), told: heard });
          }
        },
      ),
      { numRuns: RUNS },
    );
  });

  it('refuses what was not written for locks as the server does', async () => {
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
      end: () => undefined,
    };
    for (const process of PROCESSES) model.execute(listener, ['subscribe', LAYOUT.channelOf(process)]);
    return model;
  }
});

const NOBODY: ModelClient = { id: 2, push: () => undefined, end: () => undefined };

/** The keys and arguments of a call, which has only operations of requests of its process. */
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

/** An answer with its errors as texts: where an error was raised in the script is of no interest. */
function texts(answer: unknown): unknown {
  if (Array.isArray(answer)) return answer.map(texts);
  return answer instanceof Error ? `error ${answer.message.slice(0, 30)}` : answer;
}
