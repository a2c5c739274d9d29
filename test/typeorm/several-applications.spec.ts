import { LockManager } from '../../lib/core/lock-manager.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import {
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { SqlBackend } from './sql-backend.js';

let backend: SqlBackend;
beforeAll(async () => {
  backend = await SqlBackend.start('mariadb');
}, 60_000);
afterAll(async () => {
  await backend.stop();
});

// A busy machine answers a statement late, which must not look like an outage.
const common = () => ({ dataSource: backend.source(), synchronize: true, commandTimeout: '10s' });

it.each<[string, () => LockProvider]>([
  ['row locks', () => new TypeOrmRowLockProvider({ ...common(), fencing: true })],
  ['version locks', () => new TypeOrmVersionLockProvider(common())],
  ['advisory locks', () => new TypeOrmAdvisoryLockProvider({ ...common(), fencing: true })],
])(
  'one provider of %s serves several applications, at the same time and one after the other',
  async (_, make) => {
    const provider = make();
    const managers: LockManager[] = [];
    const start = async () => {
      const locks = new LockManager({ providers: { sql: provider }, defaults: { wait: '1m' }, shutdownGrace: 0 });
      managers.push(locks);
      await locks.start();
      return locks;
    };
    const [first, second] = [await start(), await start()];
    const held = await first.acquire('order');
    expect(await second.tryAcquire('order')).toBeNull();
    await first.stop();
    expect(held.isHeld()).toBe(false);
    const lock = await second.acquire('order');
    expect(lock.fencingToken).toBeGreaterThan(held.fencingToken!);
    const third = await start();
    expect(await third.tryAcquire('order')).toBeNull();
    expect(await lock.release()).toBe('released');
    await (await third.acquire('order')).release();
    await Promise.all(managers.map((locks) => locks.stop()));
  },
  60_000,
);
