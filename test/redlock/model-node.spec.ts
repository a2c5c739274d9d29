import fc from 'fast-check';
import { LOCK_SCRIPT, roundDigits, tokenDigits } from '../../lib/providers/redlock/lock-script.js';
import { exploration } from '../exploration.js';
import { redisForTests } from '../redis/seam.js';
import { ModelNode } from './model-node.js';

const COUNTER = 'lock:redlock';
// Tokens of the year 2100, so that the answers do not depend on the server's clock.
const TOKENS = [1, 2, 3, 4].map((count) => tokenDigits(4_102_444_800_000_000 + count));

const operation = fc.record({
  code: fc.constantFrom('V', 'V', 'V', 'W', 'W', 'A', 'E', 'R', 'C', 'I', 'F'),
  lock: fc.constantFrom('a', 'b'),
  holder: fc.constantFrom('1'.repeat(32), '2'.repeat(32)),
  ms: fc.constantFrom('0', '60000'),
  token: fc.constantFrom('0'.repeat(16), ...TOKENS),
  /** The first token of a block that a vote names. */
  first: fc.constantFrom('', '', ...TOKENS),
  round: fc.constantFrom(1, 2, 3).map(roundDigits),
});
function tokenOf({ code, token }: { code: string; token: string }): string {
  return ['W', 'A'].includes(code) && Number(token) === 0 ? TOKENS[0]! : token;
}
/** The first token of a block, behind the vote that has its last one. */
function firstOf({ code, token, first }: { code: string; token: string; first: string }): string {
  return code === 'V' && first < token && Number(token) > 0 ? first : '';
}
const call = fc.array(
  operation.map((each) => ({
    ...each,
    // Redis refuses an expiry of no time, and nobody writes no token.
    ms: ['V', 'A'].includes(each.code) ? '60000' : ['E', 'R'].includes(each.code) ? each.ms : '',
    vote: each.holder + tokenOf(each) + each.round + firstOf(each),
  })),
  { minLength: 1, maxLength: 3 },
);

// Milliseconds left, and the time of a node that knows no token: they come from its clock.
function withoutTimes(reply: unknown): unknown {
  if (Array.isArray(reply)) return reply.map(withoutTimes);
  if (typeof reply !== 'string' || reply.length <= 16) return reply;
  if (reply.startsWith('?')) return reply.slice(0, 17);
  return reply.startsWith('+') ? reply.slice(0, 33) : reply.slice(0, 48);
}

describe('the model of a node', () => {
  const redis = redisForTests();

  it('answers what the script answers on a real server, and keeps what it keeps', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(call, { minLength: 3, maxLength: 12 }), async (calls) => {
        await redis.admin.flushall();
        const model = new ModelNode(() => Date.now());
        for (const operations of calls) {
          const args = [
            String(operations.length + 1),
            COUNTER,
            ...operations.map(({ lock }) => `${COUNTER}:${lock}`),
            'process',
            ...operations.flatMap(({ code, ms, vote, holder }) => [code, code === 'R' ? holder : vote, ms]),
          ];
          const reply = await redis.admin.call('eval', LOCK_SCRIPT.text, ...args);
          expect(withoutTimes(model.run(args))).toEqual(withoutTimes(reply));
        }
        expect(model.counter ?? null).toBe(await redis.admin.get(COUNTER));
        for (const lock of [`${COUNTER}:a`, `${COUNTER}:b`]) {
          expect(model.votes.get(lock)?.text ?? null).toBe(await redis.admin.get(lock));
        }
      }),
      { numRuns: exploration(100, 3_000) },
    );
  });
});
