import type { Timer } from '../../api/clock.js';
import { LockError } from '../../api/errors.js';
import type { BackendContext, Member, MemberLockRequest, RenewOutcome } from '../../api/lock-provider.js';
import { probeFor, UNUSED } from '../shared/probe.js';
import { isUnavailable } from '../../core/toolkit/retryable.js';
import { jitter, pause } from '../../core/toolkit/timing.js';
import type { FailoverSettings } from './failover-options.js';
import { MemberHealth } from './member-health.js';
import type { ProviderState } from '../../api/failover-state.js';

const PROBE_LEASE = 1_000;
/** After a failure, a member is probed this many times as often. */
const PROBES_WHILE_FAILING = 4;
const PROBE_JITTER = 0.25;

/**
 * A failover member. Its health is determined from every call and, because an idle member receives none, from a probe
 * that acquires and releases a lock.
 */
export class FailoverMember {
  readonly health: MemberHealth;
  readonly #probeTimeout: number;
  #timer: Timer | undefined;
  #probing: Promise<void> | undefined;
  /** Ends the current probe's wait. */
  #waiting: AbortController | undefined;
  #isClosed = false;

  constructor(
    readonly name: string,
    readonly locking: Member,
    private readonly settings: FailoverSettings,
    private readonly context: BackendContext,
    onChange: (state: ProviderState) => void,
  ) {
    this.#probeTimeout = settings.probeInterval / 2;
    const terms = {
      failingFor: this.#probeTimeout,
      refusingFor: Math.max(settings.window, this.#probeTimeout),
      stableFor: settings.failbackDelay / 2,
    };
    this.health = new MemberHealth(terms, context.clock, onChange);
    locking.observe((event) => {
      if (event.type === 'unavailable') this.health.failed();
    });
  }

  /** Starts probing. Resolves to whether the first probe got a response. */
  async connect(): Promise<boolean> {
    this.#probing = this.#probe();
    await this.#probing;
    return !this.health.isFailing;
  }

  /** Cuts short a probe in flight. The probe's release is still sent, and the member waits for it when closing. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#waiting?.abort();
    if (this.#timer) this.context.clock.clearTimer(this.#timer);
    await this.#probing;
  }

  /** Never rejects. */
  async renew(request: MemberLockRequest, lease: number): Promise<RenewOutcome> {
    try {
      const outcome = await request.renew(lease);
      if (outcome === 'unknown') this.health.failed();
      else this.health.renewed();
      return outcome;
    } catch (error) {
      if (isUnavailable(error)) this.health.failed();
      return 'unknown';
    }
  }

  /**
   * Called when a caller's request failed. A rejection doesn't count, because the caller may have requested something
   * impossible. The probe detects real rejections.
   */
  notGranted(error: unknown): void {
    if (isUnavailable(error)) this.#failed();
  }

  #failed(): void {
    this.health.failed();
    this.health.refused();
  }

  async #probe(): Promise<void> {
    const { random, name } = this.context;
    const leaving = new AbortController();
    // One key for all processes, because a SQL member keeps one row per key. If another process is probing, "busy"
    // counts as a response too.
    const key = `failover:${name}:probe`;
    const probe = this.locking.request(probeFor(key, random.id(), PROBE_LEASE, leaving.signal));
    try {
      const answer = await this.#inTime(probe.acquire(), leaving);
      if (answer !== undefined) this.health.succeeded();
      else if (!this.#isClosed) this.#failed();
    } catch (error) {
      if (isUnavailable(error)) this.#failed();
      // Running out of connections in this process isn't counted: it says nothing about the server's health.
      else if (!LockError.is(error) || error.code !== 'LOCK_CAPACITY') this.health.refused();
    }
    // Release even after a failure, because a late grant may still arrive.
    const released = probe.release(UNUSED);
    if (!this.#isClosed) await this.#inTime(released, new AbortController());
    this.#schedule();
  }

  /**
   * Resolves to the result of `work`, or to undefined if it takes too long or `waiting` aborts. Aborts `waiting` at the
   * end.
   */
  async #inTime<T>(work: Promise<T>, waiting: AbortController): Promise<T | undefined> {
    this.#waiting = waiting;
    const over = pause(this.context.clock, this.#probeTimeout, waiting.signal, true).then(() => undefined);
    try {
      return await Promise.race([work, over]);
    } finally {
      waiting.abort();
    }
  }

  #schedule(): void {
    if (this.#isClosed) return;
    const { clock, random } = this.context;
    const { probeInterval } = this.settings;
    const interval = this.health.isFailing ? probeInterval / PROBES_WHILE_FAILING : probeInterval;
    const probe = () => {
      this.#probing = this.#probe();
    };
    this.#timer = clock.setTimer(probe, jitter(random, interval, PROBE_JITTER));
  }
}
