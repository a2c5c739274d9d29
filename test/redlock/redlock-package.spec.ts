import { Redis } from 'ioredis';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { granted, RELEASE, request } from '../redis/seam.js';
import { type Quorum, startQuorum, startRedlock } from './quorum.js';

/** The part of redlock 5.0.0-beta.2 used here. Its types can't be imported from an ES module. */
interface Redlock {
  acquire(keys: string[], duration: number): Promise<{ release(): Promise<unknown> }>;
}
type RedlockPackage = {
  default: new (clients: Redis[], settings: object, scripts?: Record<string, (script: string) => string>) => Redlock;
};
const PACKAGE: string = 'redlock';
const NO_RETRIES = { retryCount: 0 };

// maintainers/decisions/0001-count-votes-ourselves.md explains why we count the votes ourselves. The package fails each
// of these cases.
describe('vote counting in the redlock package and in ours', () => {
  let quorum: Quorum;
  let clients: Redis[];
  let RedlockClass: RedlockPackage['default'];
  beforeAll(async () => {
    quorum = await startQuorum(5);
    clients = quorum.servers.map(({ url }) => new Redis(url));
    ({ default: RedlockClass } = (await import(PACKAGE)) as RedlockPackage);
  });
  beforeEach(() => quorum.flush());
  afterAll(async () => {
    for (const client of clients) client.disconnect();
    await quorum.stop();
  });

  it("the package treats a script's token as a vote against, since it is not a number of keys", async () => {
    const withToken = {
      acquireScript: () => "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return '1771000000000000'",
    };
    const redlock = new RedlockClass(clients, NO_RETRIES, withToken);
    await expect(redlock.acquire(['order'], 60_000)).rejects.toThrow('quorum');

    const { backend } = await startRedlock(quorum);
    expect(granted(await backend.acquire(request('order'))).fencingToken).toBeGreaterThan(1n);
  });

  it("the package can't retry an attempt with its id: it draws a new one, against which its own votes count", async () => {
    const redlock = new RedlockClass(clients, NO_RETRIES);
    await redlock.acquire(['order'], 60_000);
    await expect(redlock.acquire(['order'], 60_000)).rejects.toThrow('quorum');

    const { backend } = await startRedlock(quorum);
    const attempt = request('order');
    const first = granted(await backend.acquire(attempt));
    expect(granted(await backend.acquire(attempt)).fencingToken).toBe(first.fencingToken);
  });

  it('the package never decides with two votes for, two against and one silent node, since it has no timeout for a node', async () => {
    const redlock = new RedlockClass(clients, NO_RETRIES);
    const ourLock = new RedlockKeyLayout('lock').lockOf('order');
    for (const admin of quorum.admins.slice(0, 2)) await admin.mset('order', 'other', ourLock, 'other');
    const { backend } = await startRedlock({ ...quorum, commandTimeout: '2s' });
    quorum.servers[4]!.signal('SIGSTOP');
    try {
      const theirs = redlock.acquire(['order'], 60_000).then(
        () => 'decided',
        () => 'decided',
      );
      expect(await backend.acquire(request('order', { wait: 0 }))).toBe('busy');
      const waited = new Promise((resolve) => setTimeout(resolve, 1_000, 'undecided'));
      expect(await Promise.race([theirs, waited])).toBe('undecided');
    } finally {
      quorum.servers[4]!.signal('SIGCONT');
    }
  });

  it('the package reports a busy lock and a majority that is down with the same error', async () => {
    const dead = [0, 1, 2].map(() => new Redis({ port: 1, retryStrategy: () => null, maxRetriesPerRequest: 0 }));
    for (const client of dead) client.on('error', () => undefined);
    const outcomeOf = (redlock: Redlock) => redlock.acquire(['order'], 60_000).catch((error: unknown) => error);
    const busy = new RedlockClass(clients, NO_RETRIES);
    await busy.acquire(['order'], 60_000);
    const [one, other] = [await outcomeOf(busy), await outcomeOf(new RedlockClass(dead, NO_RETRIES))] as [Error, Error];
    expect(one.message).toBe(other.message);
    expect(one.constructor).toBe(other.constructor);
    // For ours, see "Q1" in nodes.spec.ts.
  });

  it('ours releases what it acquired', async () => {
    const { backend } = await startRedlock(quorum);
    const grant = granted(await backend.acquire(request('order')));
    expect(await quorum.votes('order')).toBe(5);
    expect(await backend.release(grant, RELEASE)).toBe('released');
    expect(await quorum.votes('order')).toBe(0);
  });
});
