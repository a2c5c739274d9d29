// Compiled by `npm run typecheck`, never run.
/* eslint-disable @typescript-eslint/no-unused-vars -- methods of all shapes, for their types alone. */
import type { EntityManager } from 'typeorm';
import { DistributedLock, type Lock, type LockAdmin } from '../../lib/index.js';
import { RetryOnConflict, saveFenced } from '../../lib/providers/typeorm/index.js';

declare const manager: EntityManager;
declare const lock: Lock;
declare const admin: LockAdmin;

class Account {
  id!: string;
  fence!: bigint | null;
  version?: number;
  owner!: { name: string };
  changedAt!: Date;
  isOpen!: boolean;
}

/** What can guard a row. */
async function guards(account: Account) {
  const saved: Account = await saveFenced(manager, account, lock, { column: 'fence' });
  await saveFenced(manager, account, lock, { column: 'version' });
  // @ts-expect-error: no property of the entity
  await saveFenced(manager, account, lock, { column: 'fense' });
  // @ts-expect-error: a token is no object
  await saveFenced(manager, account, lock, { column: 'owner' });
  // @ts-expect-error: nor a date
  await saveFenced(manager, account, lock, { column: 'changedAt' });
  // @ts-expect-error: nor a boolean
  await saveFenced(manager, account, lock, { column: 'isOpen' });
  // @ts-expect-error: nothing is guarded
  await saveFenced(manager, account, lock, {});

  const unlocked: Account = await saveFenced(manager, account, { column: 'version' });
  // @ts-expect-error: no property of the entity
  await saveFenced(manager, account, { column: 'versoin' });
  // @ts-expect-error: a version is no date
  await saveFenced(manager, account, { column: 'changedAt' });
  // @ts-expect-error: nothing is guarded
  await saveFenced(manager, account, lock);
}

/** How operators delete unused rows. */
async function purges() {
  const deleted: number = await admin.purge({ unusedFor: '7d' }, 'sql');
  await admin.purge({ unusedFor: 1_000 });
  // @ts-expect-error: of when?
  await admin.purge();
}

/** What can be run again. */
abstract class Retried {
  @RetryOnConflict()
  async async(id: string) {}
  @RetryOnConflict({ attempts: 5 })
  promise(): Promise<number> {
    return Promise.resolve(1);
  }
  @DistributedLock('account:#{id}')
  @RetryOnConflict()
  protected async locked(id: string) {}
  @RetryOnConflict()
  static async static() {}

  // @ts-expect-error: synchronous
  @RetryOnConflict()
  sync(): number {
    return 1;
  }
  // @ts-expect-error: what it has yielded cannot be taken back
  @RetryOnConflict()
  async *generator() {
    yield 1;
  }
  // @ts-expect-error: no such option
  @RetryOnConflict({ tries: 3 })
  async option() {}
}
