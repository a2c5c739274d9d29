import { Batcher, HEAVY } from '../../lib/providers/redis/batcher.js';
import type { CommandSender } from '../../lib/providers/redis/client/redis-connection.js';
import { systemClock } from '../../lib/core/toolkit/clock.js';

/** A connection whose calls the test answers. */
class Wire implements CommandSender {
  readonly isUp = true;
  readonly cause = undefined;
  readonly calls: { readonly locks: string[]; readonly answer: (reply: unknown) => void }[] = [];
  #inFlight = 0;

  get isIdle(): boolean {
    return this.#inFlight === 0;
  }

  send(_command: string, args: string[], onReply: (reply: unknown) => void): void {
    this.#inFlight += 1;
    const locks = args.slice(3, 2 + Number(args[1]));
    this.calls.push({
      locks,
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
