import { isDeepStrictEqual } from 'node:util';
import { expect } from '@jest/globals';
import fc from 'fast-check';
import { LOCK_SCRIPT } from '../../lib/providers/redis/lua/lock-script.js';
import { exploration, SEED } from '../exploration.js';
import { HERE, THERE, redisForTests } from './seam.js';

type Operation = readonly [key: string, code: string, holder: string, ms: number];

const KEYS = ['a', 'b', 'c', 'd', 'e'];
// LONG outlasts a run. SHORT leases end before the chain runs.
const [LONG, SHORT] = [60_000, 5];
/** Requests of processes that have not polled for 3 s are removed, so a slower run proves nothing. */
const LIVE = 2_500;

describe('linked requests in the lock script', () => {
  const redis = redisForTests();

  /** Runs the script once in a namespace. `links` marks which operations are linked. */
  const run = async (world: string, process: string, operations: readonly Operation[], links?: string) => {
    const locks = operations.map(([key]) => `${world}:{0}:${key}`);
    const fields = operations.flatMap(([, code, holder, ms]) => [code, holder, ms]);
    const values = [process, ...fields, ...(links === undefined ? [] : [links])];
    const reply = await redis.admin.eval(LOCK_SCRIPT.text, 1 + locks.length, `${world}:{0}`, ...locks, ...values);
    return Array.isArray(reply) ? (reply as unknown[]) : [reply];
  };

  const asks = (codes: readonly string[], ms = LONG): Operation[] =>
    codes.map((code, index) => [KEYS[index] ?? '', code, `chain${index}`, ms]);
  const token = expect.stringMatching(/^\d{16}$/);
  const queued = expect.stringMatching(/^q\d{17,}(?: (?:\w+(?: \d+)?|\+\d+))?$/);
  const refusedBy = (holder: string) => expect.stringMatching(new RegExp(`^b ${holder} \\d+$`));
  const lockOf = (key: string) => redis.admin.get(`one:{0}:${key}`);

  it('are granted one after another, with growing tokens', async () => {
    const replies = await run('one', HERE, asks(['A3000', 'A3000', 'A3000']), '-++');
    expect(replies).toEqual([token, token, token]);
    expect([...replies].sort()).toEqual(replies);
  });

  it.each(KEYS.slice(0, 3))(
    'stop at the first busy key, "%s": it is queued, and later ones leave nothing behind',
    async (busy) => {
      await run('one', THERE, [[busy, 'A3000', 'other', LONG]]);
      const replies = await run('one', HERE, asks(['A3000:0', 'A3000:0', 'A3000:0']), '-++');
      expect(replies).toEqual(KEYS.slice(0, 3).map((key) => (key < busy ? token : key === busy ? queued : 'n')));
      for (const key of KEYS.slice(0, 3).filter((each) => each > busy)) {
        expect(await redis.admin.keys(`one:{0}:${key}*`)).toEqual([]);
      }
      expect(await redis.admin.exists(`one:{0}:${busy}}q`)).toBe(1);
    },
  );

  it('stop at a request that fails, which returns its own error', async () => {
    await redis.admin.hset('one:{0}:b', 'not', 'a lock');
    expect(await run('one', HERE, asks(['A3000', 'A3000', 'A3000']), '-++')).toEqual([
      token,
      expect.objectContaining({ message: expect.stringContaining('WRONGTYPE') }),
      'n',
    ]);
    expect(await lockOf('c')).toBeNull();
  });

  it('continue past a lock that the request already holds, and leave unlinked operations alone', async () => {
    await run('one', HERE, asks(['A3000']));
    const operations = [...asks(['A3000', 'T', 'T']), ['d', 'A3000', 'single', LONG] as const];
    expect(await run('one', HERE, operations, '-++-')).toEqual([
      expect.stringMatching(/^h\d{16}/),
      token,
      token,
      token,
    ]);
    await run('one', THERE, [['d', 'R', 'single', 0]]);
    const behindBusy: Operation[] = [
      ['a', 'T', 'late', LONG],
      ['b', 'T', 'late', LONG],
      ['c', 'T', 'late', LONG],
      ['d', 'T', 'late', LONG],
    ];
    expect(await run('one', HERE, behindBusy, '-+--')).toEqual([refusedBy('chain0'), 'n', refusedBy('chain2'), token]);
  });

  // The steps produce every state that two processes can write with the script.
  const key = fc.constantFrom(...KEYS);
  const process = fc.constantFrom(HERE, THERE);
  const holder = fc.constantFrom('h0', 'h1', 'h2');
  const lease = fc.constantFrom(LONG, LONG, SHORT);
  const code = fc.constantFrom(
    ...['A3000:0', 'A5:0', 'N3000:0::3', 'B3000m:0:60000', 'B5m:0:5', 'a3000:0', 'a5:0', 'l3000 1 2:0', 'l5 2 3:0'],
    ...['T', 'M:::2', 'U::60000', 't', 'm 1 2', 'm 2 4'],
    ...['R', 'R3000', 'r', 'e 1 2', 'C', 'F'],
  );
  const step = fc.record({ key, process, holder, code, lease, keeps: fc.boolean() });
  // A lock has the same terms on all of its keys.
  const terms = fc.constantFrom(
    ...['A3000:0', 'N3000:0::2', 'B3000m:0:60000', 'a3000:0', 'l3000 1 2:0', 'T', 'M:::3', 'U::60000', 't', 'm 1 2'],
  );

  it(`have the effect of requests sent one by one up to the first that is not granted, whatever is stored (LOCK_TESTS_SEED=${SEED})`, async () => {
    const seen = new Set<string>();
    const listener = redis.admin.duplicate();
    // Keeps the other process live.
    await listener.subscribe(`one:{0}${THERE}`, `two:{0}${THERE}`);
    const checked = fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 14 }), terms, async (steps, chained) => {
        await redis.admin.flushall();
        const begun = Date.now();
        for (const { key: on, process: by, holder: who, code: what, lease: ms, keeps } of steps) {
          const isRelease = /^[Rre]/.test(what);
          const operation: Operation = [on, what, who, isRelease ? (keeps ? ms : 0) : ms];
          // Notices are not compared here: they describe what an operation did, and the final states are compared.
          await Promise.all(['one', 'two'].map((world) => run(world, by, [operation])));
        }
        await new Promise((resolve) => setTimeout(resolve, 4 * SHORT));
        // A lease may have ended between a step in one namespace and the same step in the other.
        fc.pre(isDeepStrictEqual(await stateOf('one'), await stateOf('two')));
        const chain = KEYS.map((on, index): Operation => [on, chained, `c${index}`, LONG]);
        const together = await run('one', HERE, chain, `-${'+'.repeat(KEYS.length - 1)}`);
        const inTurn: unknown[] = [];
        const notices: unknown[] = [];
        for (const operation of chain) {
          const isOver = inTurn.some((reply) => typeof reply !== 'string' || !/^[\dh]/.test(reply));
          const [reply, ...others] = isOver ? ['n'] : await run('two', HERE, [operation]);
          inTurn.push(reply);
          notices.push(...others);
        }
        const [one, two] = [await stateOf('one'), await stateOf('two')];
        fc.pre(Date.now() - begun < LIVE);
        for (const reply of inTurn) seen.add(kindOf(reply).replace(/^b .*/, 'b'));
        expect(together.map(kindOf)).toEqual([...inTurn, ...notices].map(kindOf));
        expect(one).toEqual(two);
      }),
      { numRuns: exploration(60, 3_000) },
    );
    await checked.finally(() => {
      listener.disconnect();
    });
    // The run drew chains that stop at the first key, stop in the middle, and run to the end.
    expect([...seen].sort()).toEqual(expect.arrayContaining(['b', 'n', 'q', 'token']));
  }, 600_000);

  /** Returns the whole state of a namespace, without times and tokens, which differ between runs. */
  const stateOf = async (world: string) => {
    const names = (await redis.admin.keys(`${world}:{0}:*`)).sort();
    const state: Record<string, unknown> = {};
    for (const name of names) {
      const type = await redis.admin.type(name);
      const value = type === 'zset' ? await redis.admin.zrange(name, '0', '-1') : await redis.admin.get(name);
      const withoutTimes = (text: string) => text.replace(/\d{13,}/g, '#');
      state[name.slice(world.length)] = Array.isArray(value) ? value.map(withoutTimes) : withoutTimes(String(value));
    }
    return state;
  };
});

/** Returns a reply without its times and tokens. */
function kindOf(reply: unknown): string {
  if (typeof reply !== 'string')
    return `error ${String((reply as Error | undefined)?.message).replace(/(one|two):/, '')}`;
  if (/^\d{16}$/.test(reply)) return 'token';
  if (/^[hq]\d/.test(reply)) return reply.charAt(0);
  // Drops how many ms it remains held.
  if (reply.startsWith('b')) return reply.replace(/ (\w+) \d+$/, ' $1');
  return reply.replace(/^\d{32}/, '').replace(/(one|two):/, '');
}
