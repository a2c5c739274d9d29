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

/** A call of the core that waits for the test to respond. */
export interface Call<I, O> {
  readonly input: I;
  answer(outcome: O): void;
  fail(error: unknown): void;
}

export type Ask = Call<AcquireRequest, Grant | 'busy' | 'not-asked'> & { grant(over?: Partial<Grant>): void };

/** The arguments of a call of `renew`. */
export interface Renewal {
  readonly request: AcquireRequest;
  readonly lease: number;
}

/**
 * A provider and its backend in one. The test makes every response, in any order, at any time and with any fault.
 * Serves one application.
 */
export class ScriptedProvider implements LockProvider, LockBackend {
  readonly capabilities: LockCapabilities;
  commandTimeout: number | undefined;
  /** Whether a request may be chained to the previous one. */
  chains: (key: string, next: string) => boolean = () => false;
  readonly asks: Ask[] = [];
  readonly renewals: Call<Renewal, RenewOutcome>[] = [];
  readonly releases: (Call<AcquireRequest, ReleaseOutcome> & { readonly options: ReleaseOptions })[] = [];
  /** The calls so far, in order, with their keys. */
  readonly order: string[] = [];
  context!: BackendContext;
  closes = 0;
  /** Responds instead of the test if set. May throw, to simulate a provider with a bug. */
  onAcquire:
    | ((
        request: AcquireRequest,
        grant: (over?: Partial<Grant>) => Grant,
      ) => Awaitable<Grant | 'busy' | 'not-asked'> | undefined)
    | undefined;
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

  /** Simulates the server's report that the request with this id is queued. */
  queue(id: string): void {
    this.#requests.get(id)?.waits();
  }

  /** Simulates the server's report that it revoked the grant of the request with this id. */
  revoke(id: string, cause?: unknown): void {
    this.#requests.get(id)?.lost(cause);
  }

  /** Grants every request immediately, acknowledges every renewal and confirms every release. */
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
