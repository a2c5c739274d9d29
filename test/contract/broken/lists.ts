import type { LockInfo } from '../../../lib/api/lock-info.js';
import { DistantBackend } from '../memory-server.js';

// Faults in the list of all locks. See ../kit-catches.spec.ts.

type Query = Parameters<DistantBackend['list']>[0];

export class ListsItsFirstPage extends DistantBackend {
  override async *list(query: Query): AsyncIterable<LockInfo> {
    let count = 0;
    for await (const lock of super.list(query)) {
      if (count === 500) return;
      count += 1;
      yield lock;
    }
  }
}

export class ListsTwice extends DistantBackend {
  override async *list(query: Query): AsyncIterable<LockInfo> {
    yield* super.list(query);
    yield* super.list(query);
  }
}

export class ReadsPrefixesAsPatterns extends DistantBackend {
  override async *list({ prefix }: Query): AsyncIterable<LockInfo> {
    const pattern = new RegExp(
      `^${prefix
        .replace(/[[\]%]/g, '\\$&')
        .replaceAll('*', '.*')
        .replaceAll('_', '.')}`,
    );
    for await (const lock of super.list({ prefix: '' })) if (pattern.test(lock.key)) yield lock;
  }
}

export class ListsWithoutNames extends DistantBackend {
  override async *list(query: Query): AsyncIterable<LockInfo> {
    for await (const lock of super.list(query)) yield { ...lock, instances: lock.instances.map(() => 'somebody') };
  }
}

export class InspectsWithoutNames extends DistantBackend {
  override async inspect(key: string): Promise<LockInfo | null> {
    const info = await super.inspect(key);
    return info && { ...info, instances: info.instances.map(() => 'somebody') };
  }
}

export class ListsRetainedKeysAsHeld extends DistantBackend {
  override async *list(query: Query): AsyncIterable<LockInfo> {
    for await (const lock of super.list(query)) yield { ...lock, state: 'held' };
  }
}
