import { LockManager } from '../../lib/core/lock-manager.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { IOREDIS, NODE_REDIS } from '../redis/client-libraries.js';
import { until } from '../until.js';
import { type Quorum, startQuorum, wiresTo } from './quorum.js';

let quorum: Quorum;
beforeAll(async () => {
  quorum = await startQuorum(3);
});
afterAll(() => quorum.stop());

describe.each([IOREDIS, NODE_REDIS])('connections to nodes that were idle, by %s', (library) => {
  const start = async () => {
    const { wires, nodes } = await wiresTo(quorum, library);
    const provider = new RedlockLockProvider({ nodes, maxLease: '1m', commandTimeout: 1_200 });
    const locks = new LockManager({ providers: { redlock: provider }, shutdownGrace: 0 });
    await locks.start();
    const stop = async () => {
      await locks.stop();
      await Promise.all(wires.map((wire) => wire.close()));
    };
    return { locks, wires, stop };
  };

  it('are replaced for a call with wait: 0 when a NAT has dropped them', async () => {
    const { locks, wires, stop } = await start();
    for (const wire of wires) wire.drop();
    expect((await locks.tryAcquire('dropped'))?.isHeld()).toBe(true);
    await stop();
  });

  it('fail no call with wait: 0 when the servers have ended them', async () => {
    const { locks, stop } = await start();
    let isLost = false;
    locks.events.on('unavailable', () => (isLost = true));
    for (const admin of quorum.admins) await admin.call('client', 'KILL', 'TYPE', 'normal');
    await until(() => isLost, 'it is noticed');
    const taken = await Promise.all([1, 2, 3, 4, 5].map((each) => locks.tryAcquire(`ended${each}`)));
    expect(taken.map((lock) => lock?.isHeld())).toEqual(Array(5).fill(true));
    await stop();
  });
});
