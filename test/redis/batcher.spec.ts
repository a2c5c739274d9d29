import { describe, expect, it, jest } from '@jest/globals';
import { Batcher, HEAVY } from '../../lib/providers/redis/batcher.js';
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
  #inFlight = 0;

  get isIdle(): boolean {
    return this.#inFlight === 0;
  }

  send(command: string, args: string[], onReply: (reply: unknown) => void, fail: (error: Error) => void): void {
    this.#inFlight += 1;
    const locks = args.slice(3, 2 + Number(args[1]));
    this.calls.push({
      command,
      args,
      locks,
      fail,
      answer: (reply) => {
        this.#inFlight -= 1;
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

/** Adds an operation on the lock, and another one when it is answered. */
function loop(batcher: Batcher, lock: string, answers: unknown[]): void {
  batcher.add({
    lock,
    weight: HEAVY,
    encode: () => ['A', lock, '1'],
    onReply: (reply) => {
      answers.push(reply);
      // As a caller does, some promise jobs later.
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
  it('whose reply leaves the server idle is answered in halves: what follows the first is sent before the second is delivered', async () => {
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

  it('whose reply comes while another one is in flight is answered at once, so calls do not become smaller', async () => {
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

  it('whose reply hands a lock on is answered at once, so that a caller that released can come again before others have had their turns', async () => {
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

  it('that is alone travels as one of several does, and its reply may be no array', async () => {
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

  it('that is alone is sent with the text of the script to a server that does not know it', async () => {
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

  it('that has become pointless is not sent', async () => {
    const wire = new Wire();
    const batcher = batcherOn(wire);
    batcher.add(operationOn('a', undefined));
    await turn();
    batcher.add(operationOn('a', undefined));
    batcher.add(operationOn('b', undefined));
    await turn();
    expect(wire.calls).toEqual([]);
  });

  it.each([1, 2])('is encoded only where it is sent: %i without a connection', async (count) => {
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
