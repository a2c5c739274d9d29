import { LockUnavailableError } from '../../lib/api/errors.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { CountingClock } from '../redis/counting-clock.js';
import { contextFor, granted, RELEASE, request, until } from '../redis/seam.js';
import { type Quorum, startQuorum, startRedlock } from './quorum.js';

describe('what is left behind', () => {
  let quorum: Quorum;
  beforeAll(async () => {
    quorum = await startQuorum(3);
  });
  beforeEach(() => quorum.flush());
  afterAll(() => quorum.stop());

  const connections = async () => {
    const lists = await Promise.all(quorum.admins.map((admin) => admin.call('CLIENT', ['LIST'])));
    return lists.map((list) => String(list).trim().split('\n').length);
  };
  const keys = async () => (await Promise.all(quorum.admins.map((admin) => admin.keys('*')))).flat();

  it('by locks, refusals, and attempts that were aborted: the counter on each node, and no timer', async () => {
    const clock = new CountingClock();
    const { backend } = await startRedlock(quorum, { clock });
    const holder = granted(await backend.acquire(request('k', { lease: 600_000 })));
    for (let round = 0; round < 20; round += 1) {
      const asks = Array.from({ length: 20 }, (_, index) => request('k', index % 2 === 0 ? {} : { wait: 0 }));
      const answers = asks.map((ask) => backend.acquire(ask));
      // Some leave before they were sent, some before they were answered, some in a pause.
      if (round % 3 === 1) await Promise.resolve();
      if (round % 3 === 2) await backend.inspect('k');
      for (const ask of asks) ask.abort();
      expect(new Set(await Promise.all(answers))).toEqual(new Set(['busy']));
    }
    const others = await Promise.all(
      Array.from({ length: 300 }, async (_, index) =>
        granted(await backend.acquire(request(`k${index}`, { lease: 600_000 }))),
      ),
    );
    await Promise.all([holder, ...others].map((grant) => backend.release(grant, RELEASE)));
    const left = async () => new Set(await keys()).size === 1 && (await keys()).length === 3;
    await until(left, 'only the counters are left');
    await backend.close();
    expect(clock.armed).toBe(0);
  });

  it('by a backend that was closed, also with a node that hangs: no connection, no timer, no caller that waits forever', async () => {
    const before = await connections();
    const clock = new CountingClock();
    const { backend } = await startRedlock({ ...quorum, commandTimeout: '1s' }, { clock });
    granted(await backend.acquire(request('k')));
    const waiter = backend.acquire(request('k'));
    quorum.servers[2]!.signal('SIGSTOP');
    const asked = backend.acquire(request('other', { wait: 0 })).catch(() => 'busy');
    const stopped = backend.close();
    expect(await waiter.catch(() => 'busy')).toBe('busy');
    await asked;
    await stopped;
    quorum.servers[2]!.signal('SIGCONT');
    await until(async () => (await connections()).join() === before.join(), 'the connections are closed');
    await until(() => clock.armed === 0, 'no timer is set');
    await expect(backend.acquire(request('k', { wait: 0 }))).rejects.toThrow();
  });

  it('by a backend that was closed while a node refuses the script: no timer', async () => {
    const [admin] = quorum.admins;
    await admin!.call('ACL', ['SETUSER', 'default', '-eval']);
    try {
      const clock = new CountingClock();
      const { backend } = await startRedlock(quorum, { clock });
      // The start has waited for all three, so the node will be identified again in a second.
      await backend.close();
      expect(clock.armed).toBe(0);
    } finally {
      await admin!.call('ACL', ['SETUSER', 'default', '+eval']);
    }
  });

  it('by a backend that was closed while it connected: no connection', async () => {
    const before = await connections();
    const backend = new RedlockLockProvider({ nodes: quorum.nodes, maxLease: '10m' }).createBackend(contextFor([]));
    const connected = backend.connect();
    await Promise.all([backend.close(), expect(connected).rejects.toMatchObject({ sent: false })]);
    expect(await connections()).toEqual(before);
    await expect(backend.acquire(request('k', { wait: 0 }))).rejects.toThrow(LockUnavailableError);
  });
});
