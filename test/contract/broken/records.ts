import { LockUnavailableError } from '../../../lib/api/errors.js';
import type { RecordStore, StoredRecord } from '../../../lib/api/lock-provider.js';
import { DistantBackend } from '../memory-server.js';

// Faults in job records. See ../kit-catches.spec.ts.

/** A backend whose record store is modified by `change`. */
function recordsThat(change: (records: RecordStore, backend: DistantBackend) => Partial<RecordStore>) {
  return class extends DistantBackend {
    constructor(...terms: ConstructorParameters<typeof DistantBackend>) {
      super(...terms);
      const { records } = this;
      const right: RecordStore = {
        read: (name) => records.read(name),
        replace: (name, expected, next) => records.replace(name, expected, next),
        list: () => records.list(),
      };
      Object.assign(this, { records: { ...right, ...change(right, this) } });
    }
  };
}

function set({ memory, surrounding: { namespace } }: DistantBackend, name: string, value: string): void {
  memory.records.set(`${namespace}:${name}`, value);
}

export class NoRecords extends DistantBackend {
  override readonly records = undefined as never;
}

export const WritesOverAnything = recordsThat((right, backend) => ({
  replace(name, _, next) {
    set(backend, name, next);
    return right.read(name);
  },
}));

export const AnswersWhatItWasAskedToWrite = recordsThat((right) => ({
  replace: async (name, expected, next) => ({ ...(await right.replace(name, expected, next)), value: next }),
}));

export const ComparesWithoutCase = recordsThat((right) => ({
  async replace(name, expected, next) {
    const { value } = await right.read(name);
    return right.replace(name, value?.toLowerCase() === expected?.toLowerCase() ? value : expected, next);
  },
}));

export const ReadsThenWrites = recordsThat((right, backend) => ({
  async replace(name, expected, next) {
    const before = await right.read(name);
    if (before.value !== expected) return before;
    set(backend, name, next);
    return { ...before, value: next };
  },
}));

export const renamedRecords = (rename: (name: string) => string) =>
  recordsThat((right) => ({
    read: (name) => right.read(rename(name)),
    replace: (name, expected, next) => right.replace(rename(name), expected, next),
  }));

export const CutsTexts = recordsThat((right) => ({
  replace: (name, expected, next) => right.replace(name, expected, next.slice(0, 1_000)),
}));

export const ListsItsFirstPage = recordsThat((right) => ({
  async *list() {
    let count = 0;
    for await (const record of right.list()) if ((count += 1) <= 500) yield record;
  },
}));

export const ListsAllNamespaces = recordsThat((_, { memory, surrounding: { namespace } }) => ({
  async *list() {
    await Promise.resolve();
    for (const [name, value] of memory.records.entries()) {
      if (name.startsWith(namespace)) yield { name: name.replace(`${namespace}:`, ''), value };
    }
  },
}));

const at = async (answer: Promise<StoredRecord>, now: () => number) => ({ ...(await answer), serverTime: now() });

export const KnowsItsOwnClockOnly = recordsThat((right, { surrounding: { clock } }) => ({
  read: (name) => at(right.read(name), () => clock.wallTime()),
}));

export const KnowsTheDateOnly = recordsThat((right) => ({
  replace: (name, expected, next) => at(right.replace(name, expected, next), () => Date.now()),
}));

export const CountsInSeconds = recordsThat((right) => ({
  async read(name) {
    const { value, serverTime } = await right.read(name);
    return { value, serverTime: serverTime / 1_000 };
  },
}));

export const TakesAnOutageForNothing = recordsThat((right, backend) => ({
  read: (name) => (backend.isConnected ? right.read(name) : Promise.resolve({ value: null, serverTime: 0 })),
}));

export const RefusalIsOutage = recordsThat((right) => ({
  replace: (...write) =>
    right.replace(...write).catch((cause: unknown) => {
      throw new LockUnavailableError('No answer.', { cause });
    }),
}));

export class FreesRecords extends DistantBackend {
  override forceRelease(key: string): Promise<boolean> {
    this.memory.records.delete(`${this.surrounding.namespace}:${key}`);
    return super.forceRelease(key);
  }
}
