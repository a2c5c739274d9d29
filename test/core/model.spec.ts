import fc from 'fast-check';
import { LockLostError } from '../../lib/api/errors.js';
import type { Lock } from '../../lib/api/lock.js';
import type { LimitShare, LockMode } from '../../lib/api/lock-mode.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import type { BackendContext, LockBackend, LockProvider } from '../../lib/api/lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { exploration } from '../exploration.js';
import { BACKENDS, startManager } from './manager-rig.js';

const KEYS = ['a', 'b'] as const;
type Key = (typeof KEYS)[number];

/** The mode of a lock, which decides what conflicts with it. */
interface Kind {
  readonly mode: LockMode;
  readonly limited?: LimitShare;
}

const optionsOf = ({ mode, limited }: Kind): LockOptions => (mode === 'limited' ? { ...limited } : { mode });

/** The model's state of one lock that the test holds a reference to. */
interface Entry {
  readonly id: number;
  /** The first entry of the hold that this one joined, or its own id if it acquired the lock. */
  readonly root: number;
  readonly key: Key;
  readonly kind: Kind;
  state: 'held' | 'lost' | 'released';
}

interface ModelHold {
  readonly root: number;
  readonly key: Key;
  readonly kind: Kind;
  /** The end of the guaranteed validity. */
  validUntil: number;
  readonly keepUntil: number;
  entries: number;
}

class Model {
  now = 0;
  nextId = 0;
  readonly entries: Entry[] = [];
  holds: ModelHold[] = [];
  retained: ModelHold[] = [];

  occupants(key: Key): ModelHold[] {
    return this.holds.filter((hold) => hold.key === key);
  }

  pass(milliseconds: number): void {
    this.now += milliseconds;
    for (const hold of [...this.holds]) if (hold.validUntil <= this.now) this.lose(hold);
  }

  lose(hold: ModelHold): void {
    this.holds = this.holds.filter((each) => each !== hold);
    // Whoever detects the loss releases the rest of the lease, and retains the key for the rest of `minHold`.
    this.retain(hold);
    for (const entry of this.entries) if (entry.root === hold.root && entry.state === 'held') entry.state = 'lost';
  }

  retain(hold: ModelHold): void {
    if (hold.keepUntil > this.now) this.retained.push(hold);
  }

  retainedOf(key: Key): ModelHold[] {
    return this.retained.filter((hold) => hold.key === key && hold.keepUntil > this.now);
  }

  /**
   * Readers may join readers, and limited holders may join limited ones while there is room. A retained lock counts as
   * held.
   */
  admits(key: Key, { mode, limited }: Kind): boolean {
    const present = [...this.occupants(key), ...this.retainedOf(key)].map(({ kind }) => kind);
    if (present.length === 0) return true;
    if (mode === 'exclusive' || present.some((each) => each.mode !== mode)) return false;
    if (!limited) return true;
    const all = [limited, ...present.flatMap((each) => each.limited ?? [])];
    const used = all.reduce((sum, { weight }) => sum + weight, 0);
    return used <= Math.min(...all.map(({ limit }) => limit));
  }
}

type Rig = Awaited<ReturnType<typeof startManager>>;
interface Real extends Rig {
  readonly server: Server;
  readonly inHand: Map<number, Lock>;
  lastToken: Record<Key, bigint>;
}
type Command = fc.AsyncCommand<Model, Real>;

/** Responds to no renewal while it is silent, so that leases expire. */
class Server implements LockProvider {
  isSilent = false;

  constructor(private readonly provider: LockProvider) {}

  createBackend(context: BackendContext): LockBackend {
    const backend = this.provider.createBackend(context);
    const renew = backend.renew.bind(backend);
    backend.renew = (...args) => (this.isSilent ? Promise.resolve('unknown') : renew(...args));
    return backend;
  }
}

class Take implements Command {
  constructor(
    readonly key: Key,
    readonly kind: Kind,
    readonly lease: number,
    readonly minHold: number,
  ) {}

  check = () => true;

  async run(model: Model, real: Real): Promise<void> {
    const { key, kind, lease, minHold } = this;
    const lock = await real.locks.tryAcquire(key, { ...optionsOf(kind), lease, minHold });
    expect(lock !== null).toBe(model.admits(key, kind));
    if (!lock) return;
    const id = model.nextId;
    model.nextId += 1;
    const together = kind.mode === 'shared' && model.occupants(key).length > 0;
    const token = lock.fencingToken;
    if (kind.mode === 'limited') expect(token).toBeNull();
    else if (together) expect(token).toBe(real.lastToken[key]);
    else expect(token).toBeGreaterThan(real.lastToken[key]);
    real.lastToken[key] = token ?? real.lastToken[key];
    real.inHand.set(id, lock);
    model.entries.push({ id, root: id, key, kind, state: 'held' });
    model.holds.push({
      root: id,
      key,
      kind,
      validUntil: model.now + lease - (lease * 0.01 + 2),
      keepUntil: model.now + minHold,
      entries: 1,
    });
  }

  toString = () => `take ${JSON.stringify(this.kind)} ${this.key} for ${this.lease}, at least ${this.minHold}`;
}

/** Picks one of the known locks, by a number taken modulo their count. */
abstract class OnEntry implements Command {
  constructor(readonly pick: number) {}

  check = (model: Readonly<Model>) => model.entries.length > 0;

  async run(model: Model, real: Real): Promise<void> {
    const entry = model.entries[this.pick % model.entries.length];
    const lock = entry && real.inHand.get(entry.id);
    if (!lock) throw new Error('The lock is unknown.');
    const hold = entry.state === 'held' ? model.holds.find(({ root }) => root === entry.root) : undefined;
    await this.apply(model, real, entry, lock, hold);
  }

  abstract apply(model: Model, real: Real, entry: Entry, lock: Lock, hold: ModelHold | undefined): Promise<void>;

  toString = () => `${this.constructor.name} ${this.pick}`;
}

class Release extends OnEntry {
  async apply(model: Model, real: Real, entry: Entry, lock: Lock, hold: ModelHold | undefined): Promise<void> {
    const before = entry.state;
    const result = await lock.release();
    if (before === 'released') return;
    entry.state = 'released';
    if (!hold) {
      expect(result).toBe('lost');
      return;
    }
    hold.entries -= 1;
    expect(result).toBe(hold.entries > 0 ? 'nested' : 'released');
    if (hold.entries > 0) return;
    model.holds = model.holds.filter((each) => each !== hold);
    model.retain(hold);
    expect(real.locks.admin.held().filter(({ key }) => key === hold.key)).toHaveLength(
      model.occupants(hold.key).length,
    );
  }
}

class Enter extends OnEntry {
  async apply(model: Model, real: Real, entry: Entry, lock: Lock, hold: ModelHold | undefined): Promise<void> {
    if (entry.state === 'released') {
      expect(() => lock.run(() => undefined)).toThrow(LockLostError);
      return;
    }
    const inner = await lock
      .run(() => real.locks.tryAcquire(entry.key, optionsOf(entry.kind)))
      .catch((error: unknown) => (error as { code: string }).code);
    const isRoot = hold !== undefined;
    const lost = model.entries.some(({ root, state }) => root === entry.root && state === 'lost');
    if (typeof inner === 'string') {
      expect([inner, isRoot, lost]).toEqual(['LOCK_LOST', false, true]);
      return;
    }
    if (!inner) {
      expect(isRoot).toBe(false);
      return;
    }
    if (!hold || inner.holder !== lock.holder) {
      await inner.release();
      expect(isRoot).toBe(false);
      return;
    }
    hold.entries += 1;
    real.inHand.set(model.nextId, inner);
    model.entries.push({ ...entry, id: model.nextId, state: 'held' });
    model.nextId += 1;
  }
}

class Extend extends OnEntry {
  async apply(model: Model, _: Real, entry: Entry, lock: Lock, hold: ModelHold | undefined): Promise<void> {
    const lease = 700;
    const error: unknown = await lock.extend(lease).catch((reason: unknown) => reason);
    if (!hold) {
      expect(error).toMatchObject({ code: 'LOCK_LOST' });
      return;
    }
    expect(error).toBeUndefined();
    hold.validUntil = model.now + lease - (lease * 0.01 + 2);
    expect(entry.state).toBe('held');
  }
}

class Pass implements Command {
  constructor(readonly milliseconds: number) {}

  check = () => true;

  async run(model: Model, real: Real): Promise<void> {
    model.pass(this.milliseconds);
    real.server.isSilent = true;
    await real.clock.advance(this.milliseconds);
    real.server.isSilent = false;
  }

  toString = () => `pass ${this.milliseconds}`;
}

class Force implements Command {
  constructor(readonly key: Key) {}

  check = () => true;

  async run(model: Model, real: Real): Promise<void> {
    const occupants = model.occupants(this.key);
    const had = occupants.length > 0 || model.retainedOf(this.key).length > 0;
    expect(await real.locks.admin.forceRelease(this.key)).toBe(had);
    for (const hold of occupants) model.lose(hold);
    model.retained = model.retained.filter((hold) => hold.key !== this.key);
  }

  toString = () => `force ${this.key}`;
}

/** Compares everything that must match after each command. */
async function compare(model: Model, real: Real): Promise<void> {
  for (const entry of model.entries) {
    const lock = real.inHand.get(entry.id);
    expect(lock?.isHeld()).toBe(entry.state === 'held');
    const hold = model.holds.find(({ root }) => root === entry.root);
    const remaining = entry.state === 'held' && hold ? hold.validUntil - model.now : 0;
    expect(lock?.remaining()).toBeCloseTo(remaining);
  }
  for (const key of KEYS) {
    const occupants = model.occupants(key);
    const retained = model.retainedOf(key);
    const info = await real.locks.admin.inspect(key);
    expect(info?.state ?? 'free').toBe(occupants.length > 0 ? 'held' : retained.length > 0 ? 'retained' : 'free');
    if (occupants.length > 0) expect(info?.holders).toBe(occupants.length);
    const limits = [...occupants, ...retained].flatMap(({ kind }) => kind.limited ?? []);
    if (limits.length === 0) continue;
    expect(info?.limit).toBe(Math.min(...limits.map(({ limit }) => limit)));
    expect(info?.used).toBe(limits.reduce((sum, { weight }) => sum + weight, 0));
  }
  expect(real.locks.admin.held()).toHaveLength(model.holds.length);
}

class Checked implements Command {
  constructor(readonly command: Command) {}

  check = (model: Readonly<Model>) => this.command.check(model);

  async run(model: Model, real: Real): Promise<void> {
    await this.command.run(model, real);
    await compare(model, real);
  }

  toString = () => this.command.toString();
}

const pick = fc.nat({ max: 20 });
const key = fc.constantFrom(...KEYS);
const kind = fc.constantFrom<Kind>(
  { mode: 'exclusive' },
  { mode: 'shared' },
  ...[3, 5].flatMap((limit) => [1, 2].map((weight): Kind => ({ mode: 'limited', limited: { limit, weight } }))),
);
const commands = [
  fc
    .tuple(key, kind, fc.constantFrom(100, 1_000), fc.constantFrom(0, 0, 400))
    .map((terms) => new Checked(new Take(...terms))),
  pick.map((each) => new Checked(new Release(each))),
  pick.map((each) => new Checked(new Enter(each))),
  pick.map((each) => new Checked(new Extend(each))),
  fc.constantFrom(1, 50, 300, 1_000).map((each) => new Checked(new Pass(each))),
  key.map((each) => new Checked(new Force(each))),
];

describe.each(BACKENDS)('any sequence of calls (%s backend)', (_, provide) => {
  it('matches the model', async () => {
    await fc.assert(
      fc.asyncProperty(fc.commands(commands, { maxCommands: 40 }), async (sequence) => {
        const server = new Server(provide(new MemoryStore()));
        const rig = await startManager({ provider: server });
        const real: Real = { ...rig, server, inHand: new Map<number, Lock>(), lastToken: { a: 0n, b: 0n } };
        await fc.asyncModelRun(() => ({ model: new Model(), real }), sequence);
      }),
      { numRuns: exploration(150, 3_000) },
    );
  });
});
