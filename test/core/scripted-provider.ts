import { validUntil } from '../../lib/core/toolkit/validity.js';
import {
  type AcquireRequest,
  type Grant,
  type LockCapabilities,
  type LockProvider,
  type BackendContext,
  type LockBackend,
  type ReleaseOptions,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../../lib/api/lock-provider.js';

type Awaitable<T> = T | Promise<T>;

/** One call of the core that waits for the test to answer it. */
export interface Call<I, O> {
  readonly input: I;
  answer(outcome: O): void;
  fail(error: unknown): void;
}

export type Ask = Call<AcquireRequest, Grant | 'busy' | 'not-asked'> & { grant(over?: Partial<Grant>): void };

/** What one call of `renew` asks for. */
export interface Renewal {
  readonly request: AcquireRequest;
  readonly lease: number;
}

/**
 * A provider, and its backend, whose every answer is given by the test: in the order, at the time and with the faults it wants. It serves one
 * application.
 */
export class ScriptedProvider implements LockProvider, LockBackend {
  readonly capabilities: LockCapabilities;
  commandTimeout: number | undefined;
  /** Whether a request may name the one before it. */
  chains: (key: string, next: string) => boolean = () => false;
  readonly asks: Ask[] = [];
  readonly renewals: Call<Renewal, RenewOutcome>[] = [];
  readonly releases: (Call<AcquireRequest, ReleaseOutcome> & { readonly options: ReleaseOptions })[] = [];
  /** What was called, in order, with the last three characters of each holder id. */
  readonly order: string[] = [];
  context!: BackendContext;
  closes = 0;
  /** Answers instead of the test, where it is set. May throw, to fail like a provider with a bug. */
  onAcquire:
    ((request: AcquireRequest, grant: () => Grant) => Awaitable<Grant | 'busy' | 'not-asked'> | undefined) | undefined;
  onRenew: ((renewal: Renewal) => Promise<RenewOutcome> | undefined) | undefined;
  onRelease: ((request: AcquireRequest, options: ReleaseOptions) => Awaitable<ReleaseOutcome> | undefined) | undefined;
  onConnect: () => Promise<void> = () => Promise.resolve();
  #token = 0n;
  readonly #requests = new Map<string, AcquireRequest>();

  constructor(capabilities: Partial<LockCapabilities> = {}) {
    this.capabilities = {
      shared: true,
      fair: true,
      fencing: true,
      lease: 'per-lock',
      minHold: true,
      forceRelease: false,
      ...capabilities,
    };
  }

  createBackend(context: BackendContext): this {
    this.context = context;
    return this;
  }

  connect(): Promise<void> {
    return this.onConnect();
  }

  close(): Promise<void> {
    this.closes += 1;
    return Promise.resolve();
  }

  async acquire(request: AcquireRequest): Promise<Grant | 'busy' | 'not-asked'> {
    this.order.push(`acquire ${request.key}`);
    this.#requests.set(request.id, request);
    const { asks, context } = this;
    const grant = (over: Partial<Grant> = {}): Grant => ({
      fencingToken: (this.#token += 1n),
      lease: request.lease,
      validUntil: validUntil(context.clock.now(), request.lease),
      ...over,
    });
    const scripted = this.onAcquire?.(request, grant);
    if (scripted !== undefined) return scripted;
    return new Promise((resolve, reject) => {
      asks.push({
        input: request,
        answer: resolve,
        fail: reject,
        grant: (over) => {
          resolve(grant(over));
        },
      });
    });
  }

  renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
    this.order.push(`renew ${request.key}`);
    const renewal = { request, lease };
    return (
      this.onRenew?.(renewal) ??
      new Promise((resolve, reject) => {
        this.renewals.push({ input: renewal, answer: resolve, fail: reject });
      })
    );
  }

  async release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    this.order.push(`release ${request.key}`);
    return (
      this.onRelease?.(request, options) ??
      new Promise((resolve, reject) => {
        this.releases.push({ input: request, options, answer: resolve, fail: reject });
      })
    );
  }

  /** The server reports that the request of this id is queued. */
  queue(id: string): void {
    this.#requests.get(id)?.waits();
  }

  /** The server reports that it has taken away what the request of this id was granted. */
  revoke(id: string, cause?: unknown): void {
    this.#requests.get(id)?.lost(cause);
  }

  /** Every ask is granted at once, every renewal acknowledged, every release confirmed. */
  static obliging(capabilities: Partial<LockCapabilities> = {}): ScriptedProvider {
    const provider = new ScriptedProvider(capabilities);
    provider.onAcquire = (_, grant) => grant();
    provider.onRenew = (renewal) => Promise.resolve(provider.acknowledge(renewal));
    provider.onRelease = () => 'released';
    return provider;
  }

  acknowledge({ lease }: Renewal): RenewOutcome {
    return { validUntil: validUntil(this.context.clock.now(), lease) };
  }
}
