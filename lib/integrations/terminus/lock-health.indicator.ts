import { Inject, Injectable } from '@nestjs/common';
import { type HealthIndicatorResult, HealthIndicatorService } from '@nestjs/terminus';
import type { Duration } from '../../api/duration.js';
import { LockUnavailableError } from '../../api/errors.js';
import { OF_LOCK } from '../../core/plan/lock-settings.js';
import { untilAborted } from '../../core/toolkit/abort-listeners.js';
import { duration, type OptionTable, read } from '../../core/toolkit/options.js';
import { LockService } from '../../nest/service/lock.service.js';

/** Options of a lock health check. */
export interface LockPingOptions {
  /** Name of the provider. Default: the module's default provider. */
  readonly provider?: string;
  /** How long the whole check may take, in ms. Default 1 s, at least 1 ms and at most 24.8 days. */
  readonly timeout?: Duration;
}

const OPTIONS = {
  provider: OF_LOCK.provider,
  timeout: duration({ min: 1 }).or('1s'),
} satisfies OptionTable<LockPingOptions>;

/**
 * The key that the check acquires and releases. The fleet shares it, because even "busy" is a response from the
 * backend.
 */
const PROBE = 'nestjs-distributed-lock:health';

/**
 * Reports to Terminus whether a lock provider works: the check acquires and releases its own lock within a timeout.
 *
 * Up: the backend responded, even if only that the probe is busy. Down: it did not respond in time, or the application
 * is shutting down and no longer acquires locks. A result contains neither the key nor the backend's address or error.
 *
 * @example
 * ```ts
 * @Get('ready') @HealthCheck()
 * ready() {
 *   return this.health.check([() => this.locks.pingCheck('locks', { provider: 'redis' })]);
 * }
 * ```
 */
@Injectable()
export class LockHealthIndicator {
  constructor(
    @Inject(HealthIndicatorService) private readonly health: HealthIndicatorService,
    @Inject(LockService) private readonly locks: LockService,
  ) {}

  /**
   * @param key the name of this check in the result
   * @throws LockConfigError for an unknown provider or an invalid timeout
   */
  async pingCheck<const Key extends string>(
    key: Key,
    options: LockPingOptions = {},
  ): Promise<HealthIndicatorResult<Key>> {
    const { provider, timeout } = read({ name: 'pingCheck()' }, options, OPTIONS);
    const session = this.health.check(key);
    const failure = await this.#probe(provider, timeout);
    return failure === undefined ? session.up() : session.down(failure);
  }

  /** Resolves to the reason why the provider can't grant locks, or to undefined if it can. */
  async #probe(provider: string | undefined, time: number): Promise<string | undefined> {
    const signal = AbortSignal.timeout(time);
    const late = untilAborted(signal).then(() => 'late' as const);
    try {
      // Runs detached so that a check inside a lock tests the backend instead of re-entering that lock.
      const lock = await this.locks.detached(() => this.locks.tryAcquire(PROBE, { provider, signal }));
      const release = await Promise.race([lock?.release(), late]);
      return release === 'pending' || release === 'late' ? UNANSWERED : undefined;
    } catch (error) {
      if (error === signal.reason) return UNANSWERED;
      if (error instanceof LockUnavailableError) return UNAVAILABLE;
      throw error;
    }
  }
}

export const UNANSWERED = 'The lock backend did not respond in time.';
export const UNAVAILABLE = 'The lock backend is unavailable, or the application is shutting down.';
