import { Inject, Injectable } from '@nestjs/common';
import { type HealthIndicatorResult, HealthIndicatorService } from '@nestjs/terminus';
import type { Duration } from '../../api/duration.js';
import { LockUnavailableError } from '../../api/errors.js';
import { OF_LOCK } from '../../core/plan/lock-settings.js';
import { systemClock } from '../../core/toolkit/clock.js';
import { anything, duration, type OptionTable, read } from '../../core/toolkit/options.js';
import { withTimeout } from '../../core/toolkit/timing.js';
import { LockService } from '../../nest/service/lock.service.js';
import { UNANSWERED, UNAVAILABLE } from './lock-health.indicator.js';

/** Defines when a leader is unhealthy. */
export interface LeaderHealthOptions {
  /**
   * How long a task or an `@OnlyLeader` call may continue after its term has ended, in ms. Default 20 s, at most 24.8
   * days.
   */
  readonly tolerance?: Duration;
}

/** The leader to look for. */
export interface LeaderCheckOptions {
  /** The leadership key. */
  readonly key: string;
  /** Name of the provider. Default: the module's default provider. */
  readonly provider?: string;
  /** How long the backend may take to respond, in ms. Default 1 s, at least 1 ms and at most 24.8 days. */
  readonly timeout?: Duration;
}

const OF_HEALTH = { tolerance: duration().or('20s') } satisfies OptionTable<LeaderHealthOptions>;
const OF_CHECK = {
  key: anything<string>().required(),
  provider: OF_LOCK.provider,
  timeout: duration({ min: 1 }).or('1s'),
} satisfies OptionTable<LeaderCheckOptions>;

/** One of this process's campaigns in a health check result. */
export interface LeaderHealth {
  readonly key: string;
  readonly provider: string;
  /** Whether this process is leading now. A process that is waiting to be elected is also healthy. */
  readonly leading: boolean;
}

/**
 * Reports to Terminus which keys this process leads, and whether it stopped leading when it should have. It doesn't
 * contact the backend.
 *
 * Down: a term's task or `@OnlyLeader` call is still running more than `tolerance` after the lock was lost or the
 * leader's task ended or failed. Until the task or call ends, this process doesn't campaign again and keeps the lock
 * unless it was lost. Only a restart ends a task that ignores its signal, so use this as a liveness check. It is
 * modeled on `HealthzAdaptor` in Kubernetes leader election, including its 20 s default.
 *
 * @example
 * ```ts
 * @Get('live') @HealthCheck()
 * live() {
 *   return this.health.check([() => this.leaders.isHealthy('leaders')]);
 * }
 * ```
 */
@Injectable()
export class LeaderHealthIndicator {
  constructor(
    @Inject(HealthIndicatorService) private readonly health: HealthIndicatorService,
    @Inject(LockService) private readonly locks: LockService,
  ) {}

  /**
   * @param key the name of this check in the result
   * @throws LockConfigError for an invalid tolerance
   */
  isHealthy<const Key extends string>(key: Key, options: LeaderHealthOptions = {}): HealthIndicatorResult<Key> {
    const { tolerance } = read({ name: 'isHealthy()' }, options, OF_HEALTH);
    const session = this.health.check(key);
    const all = this.locks.leadership.campaigns;
    const campaigns = all.map(({ key, provider, isLeading }): LeaderHealth => ({ key, provider, leading: isLeading }));
    const overdue = all.filter((campaign) => campaign.overdue > tolerance).map((campaign) => campaign.key);
    if (overdue.length === 0) return session.up({ campaigns });
    const message = `A term ended, but its task or an @OnlyLeader call is still running: ${overdue.join(', ')}.`;
    return session.down({ message, campaigns });
  }

  /**
   * Reports which instance in the whole fleet leads a key and since when. It works in any process but
   * queries the backend, so use it for monitoring, not for liveness.
   *
   * Down: nobody leads, or the backend did not respond in time. The result contains the key and the instance, but
   * neither the backend's address nor its error.
   *
   * @param name the name of this check in the result
   * @throws LockConfigError for an unknown provider, for one that cannot tell who holds a key, or for an invalid
   * timeout; LockKeyError
   */
  async leaderCheck<const Name extends string>(
    name: Name,
    options: LeaderCheckOptions,
  ): Promise<HealthIndicatorResult<Name>> {
    const { key, provider, timeout } = read({ name: 'leaderCheck()' }, options, OF_CHECK);
    const session = this.health.check(name);
    const locks = provider === undefined ? this.locks : this.locks.via(provider);
    try {
      const leader = await withTimeout(systemClock, timeout, locks.leader(key), () => 'late' as const);
      if (leader === 'late') return session.down({ key, message: UNANSWERED });
      if (leader === null) return session.down({ key, message: 'There is no leader.' });
      const { instance, since } = leader;
      return session.up({ key, instance, since });
    } catch (error) {
      if (error instanceof LockUnavailableError) return session.down({ key, message: UNAVAILABLE });
      throw error;
    }
  }
}
