import { EventEmitter } from 'node:events';
import { silentLogger } from '../../lib/engine/logger.js';
import { systemRandom } from '../../lib/engine/random.js';
import { QuorumNode } from '../../lib/providers/redis/quorum/node.js';
import type { RedisConnection } from '../../lib/providers/redis/redis-client.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';

/** A connection whose server answers INFO when the test says so, and everything else at once. */
class SlowServer extends EventEmitter {
  answerInfo!: (info: string) => void;

  connect(): Promise<unknown> {
    this.emit('ready');
    return Promise.resolve();
  }

  disconnect(): void {
    this.emit('close');
  }

  call(command: string): Promise<unknown> {
    return command === 'info' ? new Promise((resolve) => (this.answerInfo = resolve)) : Promise.resolve([]);
  }

  subscribe(): Promise<unknown> {
    return Promise.resolve();
  }
}

describe('delayedRestart', () => {
  it('a question for the uptime that waits at the server does not shorten its probation', async () => {
    const clock = new FakeClock();
    const begin = clock.now();
    const server = new SlowServer();
    const connection: RedisConnection = server;
    const node = new QuorumNode(connection, {
      context: {
        name: 'redlock',
        namespace: 'lock',
        clock,
        random: systemRandom(),
        logger: silentLogger,
        emit: () => undefined,
      },
      counter: 'lock:redlock',
      patience: 500,
      maxLease: 10_000,
      probation: 10_000,
      isTaken: () => false,
      onChange: () => undefined,
    });
    // The server starts 10 ms before a full second of its clock, is asked 610 ms later, and reads the question after another 400 ms:
    // it counts two full seconds then.
    const startedAt = begin - 610;
    const connected = node.connect();
    await clock.advance(400);
    server.answerInfo('run_id:a\r\nuptime_in_seconds:2\r\n');
    await connected;
    expect(node.cause).toMatchObject({ message: 'It has started within the last maxLease.' });
    expect(node.mayVote(startedAt + 9_999)).toBe(false);
    expect(node.mayVote(startedAt + 12_000)).toBe(true);
    // Once it is down, that is why it does not answer.
    server.emit('close');
    expect(node.cause).toMatchObject({ message: 'The connection was closed.' });
    await node.close();
  });
});
