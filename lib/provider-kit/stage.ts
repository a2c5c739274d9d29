import assert from 'node:assert/strict';
import { LockManager } from '../core/lock-manager.js';
import { LockConfigError } from '../api/errors.js';
import type { Clock } from '../api/clock.js';
import type { BackendEvent, LockProvider } from '../api/lock-provider.js';
import type { LockOptions } from '../api/lock-options.js';
import type { Lock } from '../api/lock.js';
import { instanceIdOf } from '../core/toolkit/instance-ids.js';
import { withPrefix } from '../core/toolkit/random.js';
import { ArmedTimers } from './armed-timers.js';
import { type AskOptions, DirectCaller, type DirectGrant, type DirectRequest } from './direct-caller.js';
import { DEFAULT_BOUNDS, DEFAULT_LEASE, type ProviderBounds, type ProviderHarness } from './provider-harness.js';
import { Secrets } from './secrets.js';
import { TestProcess } from './test-process.js';
import type { TestTime } from './test-time.js';

const POLL = 5;
const PATIENT = 120_000;

/** A case's stage: its processes, its time, and its own namespace, so cases can run concurrently. */
export class Stage {
  readonly clock: ArmedTimers;
  readonly secrets = new Secrets();
  /** The longest times the backend may take, in ms: the harness's times, multiplied by ten on a real clock. */
  readonly bounds: ProviderBounds;
  /** The short lease, in ms. */
  readonly lease: number;
  readonly #closing: (() => Promise<unknown>)[] = [];
  readonly #cutOff = new Set<LockProvider>();

  constructor(
    readonly harness: ProviderHarness,
    readonly time: TestTime,
    readonly namespace: string,
    readonly seed: number,
  ) {
    this.clock = new ArmedTimers(time.clock);
    this.bounds = scaled({ ...DEFAULT_BOUNDS, ...harness.bounds }, time.generosity);
    this.lease = harness.lease ?? DEFAULT_LEASE;
  }

  get capabilities() {
    return this.harness.capabilities;
  }

  /** The option that sets the short lease, if leases can be set. */
  get shortLease(): Pick<LockOptions, 'lease'> {
    return this.capabilities.lease === 'per-lock' ? { lease: this.lease } : {};
  }

  /** A new process, with the core running. */
  async process(namespace = this.namespace): Promise<TestProcess> {
    const provider = await this.harness.create();
    const process = this.embody(provider, namespace);
    await process.locks.start();
    return process;
  }

  /** Several processes. */
  async processes<const N extends number>(count: N): Promise<ListOf<N, TestProcess>> {
    return (await Promise.all(Array.from({ length: count }, () => this.process()))) as ListOf<N, TestProcess>;
  }

  /** A process with this provider, not started. */
  embody(provider: LockProvider, namespace = this.namespace): TestProcess {
    const locks = new LockManager({
      providers: { kit: provider },
      namespace,
      shutdownGrace: 0,
      clock: this.clock,
      random: this.secrets,
      logger: this.secrets,
    });
    this.#closing.push(() => locks.stop());
    return new TestProcess(locks, provider, (event) => {
      this.secrets.overheard(event);
    });
  }

  /** A new process without the core. */
  async direct(clock: Clock = this.clock, namespace = this.namespace): Promise<DirectCaller> {
    const caller = this.caller(await this.harness.create(), clock, namespace);
    await caller.backend.connect();
    await caller.backend.register?.();
    return caller;
  }

  /** Several processes without the core. */
  async directs<const N extends number>(count: N): Promise<ListOf<N, DirectCaller>> {
    return (await Promise.all(Array.from({ length: count }, () => this.direct()))) as ListOf<N, DirectCaller>;
  }

  /** A process without the core, with an unconnected backend from this provider. */
  caller(provider: LockProvider, clock: Clock = this.clock, namespace = this.namespace): DirectCaller {
    const { secrets } = this;
    const events: BackendEvent[] = [];
    const id = instanceIdOf(secrets.id());
    const instance = { id, name: `caller-${id}` };
    const random = withPrefix(secrets, id);
    const backend = provider.createBackend({
      ...{ name: 'kit', namespace, instance, clock, random, logger: secrets },
      emit: (event) => {
        events.push(event);
      },
      member: (name) => {
        throw new LockConfigError(
          `The kit has no member "${name}": its harness wraps providers that are built on others.`,
        );
      },
    });
    this.#closing.push(() => backend.close());
    return new DirectCaller(provider, backend, events, instance, clock, random);
  }

  /** How many of `most` rounds to play (all of them on a fake clock). */
  rounds(most: number): number {
    return Math.ceil(most * this.time.share);
  }

  sleep(milliseconds: number): Promise<void> {
    return this.time.sleep(milliseconds);
  }

  /** Waits until an earlier lease of `lease` ms has ended and the backend has dropped it. */
  leaseEnds(lease = this.lease): Promise<void> {
    return this.sleep(lease + this.bounds.expiry + this.time.pause);
  }

  /** How long `work` took, in ms. */
  async duration(work: () => PromiseLike<unknown>): Promise<number> {
    const start = this.clock.now();
    await work();
    return this.clock.now() - start;
  }

  /** Resolves to `work`'s result; fails if it takes longer than `milliseconds` (plus some tolerance). */
  async within<T>(milliseconds: number, work: PromiseLike<T>, what: string): Promise<T> {
    const limit = milliseconds + this.time.tolerance;
    let timer: object | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = this.time.clock.setTimer(() => {
        reject(new Error(`${what}: took longer than ${limit} ms`));
      }, limit);
    });
    try {
      return await Promise.race([work, late]);
    } finally {
      if (timer) this.time.clock.clearTimer(timer);
    }
  }

  /** Checks repeatedly until `probe` is true; fails if it still isn't after `milliseconds` (plus some tolerance). */
  async eventually(milliseconds: number, probe: () => boolean | Promise<boolean>, what: string): Promise<void> {
    const limit = this.clock.now() + milliseconds + this.time.tolerance;
    while (!(await probe())) {
      if (this.clock.now() >= limit) throw new Error(`${what}: not after ${milliseconds} ms`);
      await this.sleep(POLL);
    }
  }

  /**
   * A caller in this process that is already queued for the key, so the order of several callers is known.
   *
   * @param keys the keys that it requests, including this one
   */
  async standInLine(
    process: TestProcess,
    key: string,
    options: LockOptions = {},
    keys: string | readonly string[] = key,
  ): Promise<{ readonly lock: Promise<Lock> }> {
    const before = process.queuedFor(key);
    const lock = unattended(process.locks.acquire(keys, { wait: PATIENT, ...options }));
    await this.#untilQueued(() => process.queuedFor(key) > before);
    return { lock };
  }

  /** Like {@link standInLine}, but without the core. */
  async askInLine(
    caller: DirectCaller,
    key: string,
    terms: Omit<AskOptions, 'request'> = {},
  ): Promise<{ readonly request: DirectRequest; readonly answer: Promise<DirectGrant | 'busy'> }> {
    const request = caller.request(key, terms);
    const answer = unattended(caller.ask(key, { wait: PATIENT, ...terms, request }));
    await this.#untilQueued(() => request.isQueued);
    return { request, answer };
  }

  #untilQueued(probe: () => boolean): Promise<void> {
    return this.eventually(this.bounds.handoff, probe, "a waiter that is queued is reported as 'waiting'");
  }

  /** Fails unless the key becomes free within the time allowed for a handoff. */
  async assertFree(caller: DirectCaller, key: string): Promise<void> {
    const grant = await this.within(
      this.bounds.handoff,
      caller.take(key, { wait: this.bounds.handoff }),
      `"${key.slice(0, 40)}" is free`,
    );
    await caller.release(grant);
  }

  /** Takes the lock away from its holder without any backend knowing. */
  async revoke(key: string): Promise<void> {
    const { faults } = this.harness;
    if (faults?.revoke) {
      await faults.revoke(this.namespace, key);
      return;
    }
    const operator = await this.process();
    assert.equal(await operator.locks.admin.forceRelease(key), true, 'somebody had it');
  }

  async cutOff({ provider }: { readonly provider: LockProvider }): Promise<void> {
    this.#cutOff.add(provider);
    await this.harness.faults?.cutOff?.(provider);
  }

  async silence({ provider }: { readonly provider: LockProvider }): Promise<void> {
    this.#cutOff.add(provider);
    await this.harness.faults?.silence?.(provider);
  }

  async refuse({ provider }: { readonly provider: LockProvider }): Promise<void> {
    this.#cutOff.add(provider);
    await this.harness.faults?.refuse?.(provider, this.namespace);
  }

  async restore({ provider }: { readonly provider: LockProvider }): Promise<void> {
    if (this.#cutOff.delete(provider)) await this.harness.faults?.restore?.(provider);
  }

  /** Everybody leaves. */
  async close(): Promise<void> {
    for (const provider of this.#cutOff) await this.harness.faults?.restore?.(provider);
    await Promise.all(this.#closing.map((close) => close()));
    this.secrets.assertKept();
  }
}

// How long a backend keeps a key beyond its lease depends on its unit of time, not on the machine's speed.
function scaled({ expiry, ...bounds }: ProviderBounds, factor: number): ProviderBounds {
  const entries = Object.entries(bounds).map(([name, bound]) => [name, bound * factor] as const);
  return { ...(Object.fromEntries(entries) as typeof bounds), expiry };
}

type ListOf<N extends number, T, L extends readonly T[] = []> = L['length'] extends N ? L : ListOf<N, T, [...L, T]>;

// A failed case leaves waiters behind. Their errors aren't a separate failure.
function unattended<T>(work: Promise<T>): Promise<T> {
  work.catch(() => undefined);
  return work;
}
