import { jest } from '@jest/globals';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { direct } from '../direct-backend.js';
import { contextFor, granted, request } from '../redis/seam.js';
import { Line } from './interleaved-quorum.js';
import { ModelNode } from './model-node.js';

describe('a node that is silent', () => {
  it('is asked last, so that it does not delay those that answer', async () => {
    const clock = new FakeClock();
    const lines = [0, 1, 2].map(() => new Line(new ModelNode(() => clock.wallTime())));
    const provider = new RedlockLockProvider({ nodes: lines.map((client) => ({ client })), maxLease: '1h' });
    const backend = direct(provider.createBackend(contextFor([], { clock })));
    await backend.connect();
    const calls = lines.map((line) => jest.spyOn(line, 'call'));
    const inOrder = () =>
      [0, 1, 2].sort((one, other) => {
        const [first = 0, second = 0] = [one, other].map((line) => calls[line]!.mock.invocationCallOrder.at(-1));
        return first - second;
      });
    /** The votes, and then the token, with the answers of the second and the third node alone. */
    const take = async (key: string) => {
      const asked = backend.acquire(request(key));
      for (let round = 0; round < 2; round += 1) {
        await new Promise((resolve) => setImmediate(resolve));
        if (round === 0 && key === 'first') expect(inOrder()).toEqual([0, 1, 2]);
        for (const line of lines.slice(1)) line.arrive();
      }
      granted(await asked);
    };
    await take('first');
    await take('second');
    expect(inOrder()).toEqual([1, 2, 0]);
    void backend.close();
  });
});
