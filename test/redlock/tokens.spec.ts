import { jest } from '@jest/globals';
import fc from 'fast-check';
import { LOCK_SCRIPT } from '../../lib/providers/redlock/lock-script.js';
import { RedlockNodes } from '../../lib/providers/redlock/nodes.js';
import { AgreementPoll } from '../../lib/providers/redlock/poll.js';
import { Round } from '../../lib/providers/redlock/round.js';
import { exploration, isCaught } from '../exploration.js';
import { play, type Step, type Story } from './interleaved-quorum.js';

/** The script with faults: tokens are written without a vote, or the last token of a block is compared. */
const CREDULOUS = scriptWith('(not last and mine and sub(standing, 49) == round)', 'not last');
const COMPARING_LAST = scriptWith('if last and first > last then', 'if last and token > last then');

const ALL = [0, 1, 2];
const NONE = -1;

const process = fc.constantFrom(...ALL);
const key = fc.constantFrom('a', 'a', 'b', 'c');

const callers = fc.constantFrom(1, 1, 3, 64);

const ask = (who: number, wanted: string, withheld = NONE, nodes: readonly number[] = ALL, several = 1): Step => ({
  do: 'ask',
  process: who,
  key: wanted,
  callers: several,
  nodes,
  withheld,
});
const handBack = (who: number): Step[] => [
  { do: 'release', process: who },
  ...ALL.map((each): Step => ({ do: 'arrive', process: who, node: each, all: true })),
];

const turn = fc
  .tuple(process, key, callers)
  .map(([who, wanted, several]) => [ask(who, wanted, NONE, ALL, several), ...handBack(who)]);
// A new process knows no token, and writes back what the nodes return.
const first = fc
  .tuple(process, key, fc.constantFrom(NONE, ...ALL), callers)
  .map(([who, wanted, withheld, several]): Step[] => [
    { do: 'replace', process: who },
    ask(who, wanted, withheld, ALL, several),
  ]);
const odd: fc.Arbitrary<Step[]> = fc.oneof(
  process.map(handBack),
  fc
    .tuple(process, fc.constantFrom(...ALL), fc.boolean())
    .map(([who, where, all]): Step[] => [{ do: 'arrive', process: who, node: where, all }]),
  fc.constantFrom(1, 1, 600).map((ms): Step[] => [{ do: 'wait', ms }]),
  fc
    .tuple(process, key, fc.constantFrom([0, 1], [0, 2], [1, 2]), callers)
    .map(([who, wanted, nodes, several]) => [ask(who, wanted, NONE, nodes, several)]),
);
const losses = fc
  .tuple(fc.shuffledSubarray(ALL, { minLength: 1 }), fc.constantFrom(true, true, true, false))
  .map(([which, late]) => which.map((each): Step => ({ do: 'lose', node: each, late })));
const newcomer = fc
  .tuple(process, key, fc.constantFrom(ALL, [0, 1], [0, 2], [1, 2]))
  .map(([who, wanted, nodes]): Step[] => [{ do: 'replace', process: who }, ask(who, wanted, NONE, nodes)]);

const several = (steps: fc.Arbitrary<Step[]>, minLength: number, maxLength: number) =>
  fc.array(steps, { minLength, maxLength, size: 'max' }).map((each) => each.flat());
// Processes take locks, nodes lose their data, and new processes arrive, repeatedly.
const chapter = fc
  .tuple(several(fc.oneof(first, turn, odd), 4, 9), losses, several(newcomer, 2, 4))
  .map((parts) => parts.flat());
const story: fc.Arbitrary<Story> = fc.record({
  skews: fc.constantFrom([3_000, 0, 0], [0, 3_000, 0], [0, 0, 3_000], [0, 0, 0]),
  steps: several(chapter, 1, 2),
});

/** A process takes a lock with a token newer than two writes still in flight. Then two nodes lose their data. */
const LATE_WRITES: Story = {
  // The first node's clock is ahead, so the tokens that the others choose are smaller.
  skews: [3_000, 0, 0],
  steps: [
    ask(2, 'a'),
    ...handBack(2),
    ask(0, 'b', 1),
    ask(1, 'c', 2),
    { do: 'wait', ms: 1 },
    ask(2, 'a'),
    ...handBack(2),
    { do: 'lose', node: 1, late: true },
    { do: 'lose', node: 2, late: true },
    { do: 'replace', process: 2 },
    ask(2, 'a', NONE, [1, 2]),
  ],
};

describe('tokens of one key, with data loss on nodes and late messages', () => {
  afterEach(() => {
    jest.restoreAllMocks();
  });

  it('grow as long as a majority of the nodes has its counter', async () => {
    const seen = { grants: 0, blocks: 0, losses: 0, runs: 0 };
    await fc.assert(
      fc.asyncProperty(story, async (each) => {
        const { violations, grants, blocks, losses } = await play(each);
        expect(violations).toEqual([]);
        seen.runs += 1;
        seen.grants += grants;
        seen.blocks += blocks;
        seen.losses += losses;
      }),
      { numRuns: exploration(40, 3_000) },
    );
    // Without these counts, the test shows nothing.
    expect(seen.grants).toBeGreaterThan(2 * seen.runs);
    expect(seen.blocks).toBeGreaterThan(seen.runs / 2);
    expect(seen.losses).toBeGreaterThan(seen.runs / 4);
  }, 60_000);

  it('grow even if a write from before a data loss makes a node believe that it remembers', async () => {
    expect(await play(LATE_WRITES)).toMatchObject({ violations: [], losses: 1 });
    expect((await play(LATE_WRITES, CREDULOUS)).violations).toHaveLength(1);
  });

  // Shows that the search finds these faults.
  it.each<[string, string, () => void]>([
    ['if nodes learn a token from a write without their vote', CREDULOUS, () => undefined],
    ['if the last token of a block is compared instead of the first', COMPARING_LAST, () => undefined],
    [
      'without the write-back',
      LOCK_SCRIPT.text,
      () => {
        const { send } = RedlockNodes.prototype;
        const { start } = AgreementPoll.prototype;
        jest.spyOn(AgreementPoll.prototype, 'start').mockImplementation(function (this: AgreementPoll) {
          return this.args[0] === 'W' ? Promise.resolve('agreed') : start.call(this);
        });
        jest.spyOn(RedlockNodes.prototype, 'send').mockImplementation(function (this: RedlockNodes, command) {
          if (command.args[0] !== 'W') send.call(this, command);
        });
      },
    ],
    [
      'if nodes without a counter count',
      LOCK_SCRIPT.text,
      () => {
        jest.spyOn(Round.prototype, 'decide').mockImplementation(function (this: Round) {
          return this.isAgreed ? 'elected' : this.isComplete ? 'busy' : undefined;
        });
      },
    ],
    [
      'with the token of one vote instead of the largest',
      LOCK_SCRIPT.text,
      () => {
        jest.spyOn(Round.prototype, 'largest', 'get').mockReturnValue(1);
      },
    ],
  ])(
    'are found to shrink %s',
    async (_, script, plant) => {
      plant();
      // This seed finds the faults soon. Two out of three other seeds need more than 400 stories for the rarest.
      expect(await isCaught(story, (each) => play(each, script), { seed: 4, numRuns: 1_000 })).toBe(true);
    },
    120_000,
  );
});

function scriptWith(from: string, to: string): string {
  const { text } = LOCK_SCRIPT;
  const script = text.replace(from, to);
  if (script === text) throw new Error(`The script does not contain "${from}".`);
  return script;
}
