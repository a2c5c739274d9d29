import { jest } from '@jest/globals';
import { Batcher, HEAVY, type Operation } from '../../lib/providers/redis/client/batcher.js';
import { type CommandSender, NotSent } from '../../lib/providers/redis/client/redis-connection.js';
import { systemClock } from '../../lib/core/toolkit/clock.js';

interface Call {
  readonly command: string;
  readonly args: string[];
  readonly locks: string[];
  readonly answer: (reply: unknown) => void;
  readonly fail: (error: Error) => void;
}

/** A connection whose calls the test answers. */
class Wire implements CommandSender {
  isUp = true;
  cause: unknown;
  readonly calls: Call[] = [];
  unanswered = 0;

  send(command: string, args: string[], onReply: (reply: unknown) => void, fail: (error: Error) => void): void {
    this.unanswered += 1;
    const locks = args.slice(3, 2 + Number(args[1]));
    this.calls.push({
      command,
      args,
      locks,
      fail,
      answer: (reply) => {
        this.unanswered -= 1;
        onReply(reply);
      },
    });
  }
}

function batcherOn(wire: Wire, onNotice: (notice: string) => void = () => undefined): Batcher {
  const script = { text: 'return', sha: 'sha' };
  const batcher = new Batcher('process', 'counter', script, systemClock, onNotice);
  batcher.connection = wire;
  return batcher;
}

/** Adds an operation on the lock, and another one when its reply arrives. */
function loop(batcher: Batcher, lock: string, answers: unknown[]): void {
  batcher.add({
    lock,
    weight: HEAVY,
    encode: () => ['A', lock, '1'],
    onReply: (reply) => {
      answers.push(reply);
      // Callers also react some promise jobs later.
      void Promise.resolve()
        .then(() => undefined)
        .then(() => {
          loop(batcher, lock, answers);
        });
    },
    onFailure: () => undefined,
  });
}

const turn = () => new Promise((resolve) => setImmediate(resolve));
const LOCKS = ['a', 'b', 'c', 'd', 'e'];

describe('a batch of operations', () => {
  it('delivers a reply that leaves the server idle in halves: sends what follows the first half before it delivers the second', async () => {
    const wire = new Wire();
    const batcher = batcherOn(wire);
    const answers: unknown[] = [];
    for (const lock of LOCKS) loop(batcher, lock, answers);
    await turn();
    expect(wire.calls.map(({ locks }) => locks)).toEqual([LOCKS]);
    wire.calls[0]?.answer([1, 2, new Error('three'), 4, 5]);
    expect(answers).toEqual([1, 2]);
    await turn();
    expect(answers).toEqual([1, 2, 4, 5]);
    expect(wire.calls.slice(1).map(({ locks }) => locks)).toEqual([
      ['a', 'b'],
      ['d', 'e'],
    ]);
  });

  it('delivers a reply in one go while another call is in flight, so calls do not shrink', async () => {
    const wire = new Wire();
    const batcher = batcherOn(wire);
    const answers: unknown[] = [];
    for (const lock of LOCKS) loop(batcher, lock, answers);
    await turn();
    loop(batcher, 'f', answers);
    await turn();
    wire.calls[0]?.answer([1, 2, 3, 4, 5]);
    expect(answers).toEqual([1, 2, 3, 4, 5]);
    await turn();
    expect(wire.calls.slice(2).map(({ locks }) => locks)).toEqual([LOCKS]);
  });

  it('delivers a reply that hands off a lock in one go, so that a caller that released can reacquire before others have had their turns', async () => {
    const wire = new Wire();
    const answers: unknown[] = [];
    const batcher = batcherOn(wire, (notice) => answers.push(notice));
    for (const lock of LOCKS) loop(batcher, lock, answers);
    await turn();
    wire.calls[0]?.answer([1, 2, 3, 4, 5, 'notice']);
    expect(answers).toEqual(['notice', 1, 2, 3, 4, 5]);
  });
});

describe('an operation', () => {
  const operationOn = (lock: string, fields: readonly [string, string, string] | undefined) => {
    const outcomes: unknown[] = [];
    const encode = jest.fn(() => fields);
    const settle = (outcome: unknown) => void outcomes.push(outcome);
    return { lock, weight: HEAVY, encode, onReply: settle, onFailure: settle, outcomes };
  };

  it('is encoded the same way alone as in a batch, and its reply need not be an array', async () => {
    const wire = new Wire();
    const batcher = batcherOn(wire);
    const alone = operationOn('a', ['A', 'holder', '1']);
    batcher.add(alone);
    await turn();
    const [first, second] = [operationOn('a', ['A', 'holder', '1']), operationOn('b', ['R', 'other', '0'])];
    batcher.add(first);
    batcher.add(second);
    await turn();
    expect(wire.calls.map(({ command, args }) => [command, ...args])).toEqual([
      ['evalsha', 'sha', '2', 'counter', 'a', 'process', 'A', 'holder', '1'],
      ['evalsha', 'sha', '3', 'counter', 'a', 'b', 'process', 'A', 'holder', '1', 'R', 'other', '0'],
    ]);
    wire.calls[0]?.answer('reply');
    wire.calls[1]?.answer(['one', 'two']);
    await turn();
    expect([alone, first, second].map(({ outcomes }) => outcomes)).toEqual([['reply'], ['one'], ['two']]);
  });

  it('resends a lone operation with the text of the script to a server that does not know it', async () => {
    const wire = new Wire();
    const batcher = batcherOn(wire);
    const alone = operationOn('a', ['A', 'holder', '1']);
    batcher.add(alone);
    await turn();
    wire.calls[0]?.fail(new Error('NOSCRIPT No matching script.'));
    expect(wire.calls.map(({ command, args }) => [command, args[0]])).toEqual([
      ['evalsha', 'sha'],
      ['eval', 'return'],
    ]);
    wire.calls[1]?.answer(['reply', 'notice']);
    expect(alone.outcomes).toEqual(['reply']);
  });

  it('is not sent if it has become pointless', async () => {
    const wire = new Wire();
    const batcher = batcherOn(wire);
    batcher.add(operationOn('a', undefined));
    await turn();
    batcher.add(operationOn('a', undefined));
    batcher.add(operationOn('b', undefined));
    await turn();
    expect(wire.calls).toEqual([]);
  });

  it.each([1, 2])('is not encoded until it is sent: %i without a connection', async (count) => {
    const wire = new Wire();
    wire.isUp = false;
    wire.cause = new Error('why');
    const batcher = batcherOn(wire);
    const operations = LOCKS.slice(0, count).map((lock) => operationOn(lock, ['A', 'holder', '1']));
    for (const operation of operations) batcher.add(operation);
    await turn();
    for (const { encode, outcomes } of operations) {
      expect(encode).not.toHaveBeenCalled();
      expect(outcomes).toEqual([expect.any(NotSent)]);
      expect(outcomes[0]).toMatchObject({ cause: wire.cause });
    }
    expect(wire.calls).toEqual([]);
  });
});

describe('linked operations', () => {
  interface Linked extends Operation {
    readonly outcomes: unknown[];
  }
  const chainOf = (locks: readonly string[], encodes: (lock: string) => boolean = () => true): Linked[] => {
    const operations: Linked[] = [];
    for (const lock of locks) {
      const outcomes: unknown[] = [];
      const settle = (outcome: unknown) => void outcomes.push(outcome);
      const encode = () => (encodes(lock) ? (['A', `by-${lock}`, '1'] as const) : undefined);
      const after = operations.at(-1);
      operations.push({ lock, weight: HEAVY, after, encode, onReply: settle, onFailure: settle, outcomes });
    }
    return operations;
  };
  const linksIn = ({ args }: Call) => args.slice(3 + 4 * (Number(args[1]) - 1)).at(1);
  const numbered = (count: number) => Array.from({ length: count }, (_, index) => `k${String(index).padStart(2, '0')}`);

  it('travel in one call, whose last argument marks the links', async () => {
    const wire = new Wire();
    const batcher = batcherOn(wire);
    const [alone] = chainOf(['z']);
    batcher.add(alone!);
    const chain = chainOf(['a', 'b', 'c']);
    for (const operation of chain) batcher.add(operation);
    await turn();
    expect(wire.calls.map(({ args }) => args)).toEqual([
      [
        ...['sha', '5', 'counter', 'z', 'a', 'b', 'c', 'process'],
        ...['A', 'by-z', '1', 'A', 'by-a', '1', 'A', 'by-b', '1', 'A', 'by-c', '1'],
        '--++',
      ],
    ]);
    wire.calls[0]?.answer([1, 2, 'q', 'n']);
    await turn();
    expect(chain.map(({ outcomes }) => outcomes)).toEqual([[2], ['q'], ['n']]);
  });

  it('are never split over calls, however many there are; later operations go in the next call', async () => {
    const wire = new Wire();
    const batcher = batcherOn(wire);
    for (const operation of chainOf(['y', 'z']).map((each) => ({ ...each, after: undefined }))) batcher.add(operation);
    for (const operation of chainOf(numbered(100))) batcher.add(operation);
    for (const operation of chainOf(['last'])) batcher.add(operation);
    await turn();
    expect(wire.calls.map(({ locks }) => locks)).toEqual([['y', 'z', ...numbered(100)], ['last']]);
    expect(wire.calls.map(linksIn)).toEqual([`---${'+'.repeat(99)}`, undefined]);
  });

  it('are resent as a whole', async () => {
    const wire = new Wire();
    const batcher = batcherOn(wire);
    for (const operation of chainOf(numbered(20))) batcher.add(operation);
    await turn();
    wire.calls[0]?.fail(new Error('NOSCRIPT No matching script.'));
    expect(wire.calls.map(({ command }) => command)).toEqual(['evalsha', 'eval']);
    expect(wire.calls[1]?.args.slice(1)).toEqual(wire.calls[0]?.args.slice(1));
  });

  it.each<[string, readonly string[], readonly string[]]>([
    ['the first', ['a'], []],
    ['a middle one', ['b'], ['a']],
    ['the last', ['c'], ['a', 'b']],
  ])('do not run after one that has become pointless: %s', async (_, pointless, sent) => {
    const wire = new Wire();
    const batcher = batcherOn(wire);
    const chain = chainOf(['a', 'b', 'c'], (lock) => !pointless.includes(lock));
    for (const operation of chain) batcher.add(operation);
    await turn();
    expect(wire.calls.flatMap(({ locks }) => locks)).toEqual(sent);
    for (const { lock, outcomes } of chain) {
      const isVoid = lock > (pointless[0] ?? '');
      expect({ lock, outcomes }).toEqual({ lock, outcomes: isVoid ? ['n'] : [] });
    }
  });

  it('do not run if another operation came between them, or if one was added alone', async () => {
    const wire = new Wire();
    const batcher = batcherOn(wire);
    const [a, b, c] = chainOf(['a', 'b', 'c']);
    batcher.add(a!);
    batcher.add(chainOf(['z'])[0]!);
    batcher.add(b!);
    await turn();
    batcher.add(c!);
    await turn();
    expect(wire.calls.map(({ locks }) => locks)).toEqual([['a', 'z']]);
    expect([a, b, c].map((each) => each?.outcomes)).toEqual([[], ['n'], ['n']]);
  });
});
