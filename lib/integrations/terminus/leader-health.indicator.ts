import { Inject, Injectable } from '@nestjs/common';
import { type HealthIndicatorResult, HealthIndicatorService } from '@nestjs/terminus';
import { toMilliseconds, type Duration } from '../../api/duration.js';
import { LockService } from '../../nest/service/lock.service.js';

/** When a leader is unhealthy. */
export interface LeaderHealthOptions {
  /** How long the task of a lost term may run on, in ms. Default 20 s. */
  readonly tolerance?: Duration;
}

/** One campaign of this process, as a result of a health check shows it. */
export interface LeaderHealth {
  readonly key: string;
  readonly provider: string;
  /** Whether this process leads now. A process that waits for its election is as healthy as one that leads. */
  readonly leading: boolean;
}

/**
 * Reports to Terminus what this process leads, and whether it has ceased to lead where it should have. It asks no backend.
 *
 * Down: a lock was lost longer than `tolerance` ago, and the task of that term still runs. It ignores its signal, and only a restart
 * of the process ends it, so this check belongs to liveness. The model is `HealthzAdaptor` of Kubernetes' leader election, with its
 * 20 s.
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
  isHealthy<const Key extends string>(
    key: Key,
    { tolerance = 20_000 }: LeaderHealthOptions = {},
  ): HealthIndicatorResult<Key> {
    const session = this.health.check(key);
    const longest = toMilliseconds(tolerance, 'tolerance');
    const all = this.locks.leadership.campaigns;
    const campaigns = all.map(({ key, provider, isLeading }): LeaderHealth => ({ key, provider, leading: isLeading }));
    const overdue = all.filter((campaign) => campaign.overdue > longest).map((campaign) => campaign.key);
    if (overdue.length === 0) return session.up({ campaigns });
    const message = `The lock was lost, and the task still runs: ${overdue.join(', ')}.`;
    return session.down({ message, campaigns });
  }
}
