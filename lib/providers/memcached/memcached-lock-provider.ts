import {
  type AcquireRequest,
  type Finding,
  type Grant,
  type Holder,
  type LockCapabilities,
  type LockProvider,
  type ProviderContext,
  type ReleaseManner,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../../api/lock-provider.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import { Ask } from './ask.js';
import type { Connection, Item } from './connection.js';
import { findingsOf } from './doctor.js';
import { secondsFor } from './expiry.js';
import { itemKeyOf } from './item-key.js';
import { type MemcachedLockProviderOptions, type MemcachedSettings, readOptions } from './memcached-options.js';
import { type Hold, holdOf, PARKED, textOf } from './record.js';
import { Session } from './session.js';

// How often a write is tried again whose item has changed since it was read. Only our own other writes can change it.
const TRIES = 3;

/**
 * Locks on one memcached server (1.6 or later), to avoid doing work twice. They protect nothing.
 *
 * Two never hold a lock as long as the server keeps its items. It need not: it evicts when its memory is full, and a restart or a
 * `flush_all` empties it; whoever asks then gets the lock, while the holder learns of the loss at its next renewal, and no fencing
 * token tells the two apart. Where damage must be prevented, use another provider.
 *
 * Waiters of one process are served in order; among processes whoever looks first has it. A holder that crashes keeps others out
 * for its lease and up to three seconds more, as the server counts in whole seconds.
 */
export class MemcachedLockProvider implements LockProvider {
  readonly capabilities: LockCapabilities = {
    shared: false,
    fair: false,
    // cas ids start again at 1 with the server.
    fencing: false,
    lease: 'per-lock',
    minHold: true,
    forceRelease: true,
    queue: 'engine',
  };
  readonly #settings: MemcachedSettings;
  readonly #asks = new Map<string, Ask>();
  #running: { readonly context: ProviderContext; readonly session: Session } | undefined;

  /** @throws LockConfigError for options that cannot work. Connects to nothing: `start` does. */
  constructor(options: MemcachedLockProviderOptions) {
    this.#settings = readOptions(options);
  }

  async start(context: ProviderContext): Promise<void> {
    const session = new Session(context, this.#settings);
    this.#running = { context, session };
    await session.start();
  }

  async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { clock, random } = this.#started().context;
    const ask = new Ask(clock, random);
    this.#asks.set(request.holder, ask);
    const answer = this.#ask(request, ask);
    ask.answer = answer;
    try {
      return await answer;
    } finally {
      if (this.#asks.get(request.holder) === ask) this.#asks.delete(request.holder);
    }
  }

  renew({ key, holder }: Grant, lease: number): Promise<RenewOutcome> {
    const { clock } = this.#started().context;
    const name = this.#nameOf(key);
    return this.#change(key, holder, async (connection, item, hold) => {
      const now = clock.now();
      const next = { ...hold, leaseEndsAt: now + lease };
      const seconds = secondsFor(Math.max(lease, hold.keptUntil - now));
      return (await connection.replace(name, item, textOf(next), seconds))
        ? { validUntil: validUntil(now, lease) }
        : undefined;
    });
  }

  release({ key, holder }: Holder, { keepFor }: ReleaseManner): Promise<ReleaseOutcome> {
    this.#asks.get(holder)?.release();
    const name = this.#nameOf(key);
    return this.#change(key, holder, async (connection, item) => {
      const isDone = await (keepFor > 0
        ? connection.replace(name, item, PARKED, secondsFor(keepFor))
        : connection.delete(name, item));
      return isDone ? 'released' : undefined;
    });
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const item = await this.#started().session.use((connection) => connection.read(this.#nameOf(key)));
    if (!item) return null;
    const isParked = item.value === PARKED;
    return {
      key,
      state: isParked ? 'parked' : 'held',
      mode: 'exclusive',
      holders: isParked ? 0 : 1,
      waiters: null,
      expiresIn: item.seconds * 1_000,
      fencingToken: null,
    };
  }

  forceRelease(key: string): Promise<boolean> {
    return this.#started().session.use((connection) => connection.remove(this.#nameOf(key)));
  }

  check(): Promise<Finding[]> {
    return this.#started().session.use(findingsOf);
  }

  async stop(): Promise<void> {
    const asks = [...this.#asks.values()];
    for (const ask of asks) ask.release();
    // What has been sent is answered before the connection goes, or is given up after `commandTimeout`.
    await Promise.allSettled(asks.flatMap(({ answer }) => answer ?? []));
    this.#running?.session.stop();
  }

  async #ask(request: AcquireRequest, ask: Ask): Promise<Grant | 'busy'> {
    const { context, session } = this.#started();
    const { holder, lease, minHold } = request;
    const name = this.#nameOf(request.key);
    const seconds = secondsFor(Math.max(lease, minHold));
    let isOthers = false;
    let isQueued = false;
    while (!ask.isReleased) {
      // A caller whose time is up while it pauses looks once more: the lock may have become free.
      const isLast = request.wait <= 0 || request.signal.aborted;
      const now = context.clock.now();
      const hold: Hold = { holder, leaseEndsAt: now + lease, keptUntil: now + minHold };
      if (await session.use((connection) => connection.add(name, textOf(hold), seconds))) return grantOf(request, hold);
      if (!isOthers) {
        // An earlier ask of this holder, or this one, may have got it and lost the reply.
        const item = await session.use((connection) => connection.read(name));
        if (!item) continue;
        const own = holdOf(item.value, holder);
        if (own) return grantOf(request, own);
        isOthers = true;
      }
      if (isLast) break;
      if (!isQueued) context.emit({ type: 'waiting', holder });
      isQueued = true;
      await ask.pause(request.signal);
    }
    return 'busy';
  }

  /** Does `write` to the item of this holder, again if the item has changed since it was read. */
  async #change<T>(
    key: string,
    holder: string,
    write: (connection: Connection, item: Item, hold: Hold) => Promise<T | undefined>,
  ): Promise<T | 'lost' | 'unknown'> {
    try {
      return await this.#started().session.use(async (connection) => {
        for (let tries = 0; tries < TRIES; tries += 1) {
          const item = await connection.read(this.#nameOf(key));
          const hold = item && holdOf(item.value, holder);
          if (!hold) return 'lost';
          const outcome = await write(connection, item, hold);
          if (outcome !== undefined) return outcome;
        }
        return 'unknown';
      });
    } catch (error) {
      if (error instanceof LockUnavailableError) return 'unknown';
      throw error;
    }
  }

  #nameOf(key: string): string {
    return itemKeyOf(this.#started().context.namespace, key);
  }

  #started() {
    if (this.#running) return this.#running;
    throw new LockConfigError('A MemcachedLockProvider was used before it was started.');
  }
}

function grantOf({ key, holder, mode, lease }: AcquireRequest, { leaseEndsAt }: Hold): Grant {
  return { key, holder, mode, lease, validUntil: validUntil(leaseEndsAt - lease, lease), fencingToken: null };
}
