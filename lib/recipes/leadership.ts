import type { Duration } from '../api/duration.js';
import { LockDeadlockError, LockKeyError } from '../api/errors.js';
import type { Leader } from '../api/lock-info.js';
import { shown } from '../api/printable.js';
import { type LockPlan, subjectOf } from '../core/plan/lock-plan.js';
import { OF_LOCK } from '../core/plan/lock-settings.js';
import { type LockOrigin, nameOf } from '../core/events/subject.js';
import { surroundingLocks } from '../core/hold/granted-lock.js';
import type { LockManager } from '../core/lock-manager.js';
import { underAny, untilAborted } from '../core/toolkit/abort-listeners.js';
import { type OptionTable, read, type Settings } from '../core/toolkit/options.js';
import { withJson } from '../core/toolkit/with-json.js';
import { normalizeKeys } from '../key/lock-key.js';
import { Campaign, type Candidacy, type LeaderTask, type Term } from './campaign.js';

/** Campaign options. */
export interface CampaignOptions {
  /** Name of the provider. Default: the module's default provider. */
  provider?: string | undefined;
  /**
   * How long the key stays locked after its leader crashes, in ms. At least 100 ms and at most 24.8 days. Default:
   * `lease` of the module's `defaults`, or 30 s.
   */
  lease?: Duration | undefined;
}

/** Options of `runAsLeader`. */
export interface RunAsLeaderOptions extends CampaignOptions {
  /**
   * Ends the campaign: the term's signal aborts, the process resigns when the task has ended, and `runAsLeader`
   * resolves.
   */
  signal?: AbortSignal | undefined;
}

const { provider, lease, signal } = OF_LOCK;
const OPTIONS = {
  '@RunAsLeader': { provider, lease } satisfies OptionTable<CampaignOptions>,
  // No `lease`: a key's methods share one campaign, which sets it.
  '@OnlyLeader': { provider },
  'runAsLeader()': { provider, lease, signal } satisfies OptionTable<RunAsLeaderOptions>,
};

/** One of this process's campaigns, for health checks. */
export interface CampaignState {
  readonly key: string;
  readonly provider: string;
  /** Whether this process currently leads. */
  readonly isLeading: boolean;
  /**
   * How long anything from a term has kept running after its loss, or after its task ended or failed, in ms. 0 if
   * nothing has.
   */
  readonly overdue: number;
}

/** The signal that ends a campaign, and the listener for errors that do not end it. */
type EndOptions = Partial<Pick<Candidacy, 'signal' | 'onError'>>;

/** One application's campaigns. */
export class Leadership {
  /** Each campaign, with its end. */
  readonly #campaigns = new Map<Campaign, Promise<void>>();
  /** Make the campaigns without a task yield, by {@link campaignIdOf}. */
  readonly #idle = new Map<string, AbortController>();
  readonly #end = new AbortController();

  constructor(private readonly manager: LockManager) {}

  /** All of this process's campaigns. */
  get campaigns(): CampaignState[] {
    return Array.from(this.#campaigns.keys(), ({ subject: { key, provider }, term, overdue }) => ({
      ...{ key, provider, isLeading: term !== undefined, overdue },
    }));
  }

  /**
   * Runs `task` whenever this process leads, until the signal aborts or the application stops. See {@link planCampaign}
   * and {@link Campaign}.
   */
  async run(key: string, task: LeaderTask, plan: LockPlan, options: EndOptions = {}): Promise<void> {
    const isNested = surroundingLocks(this.manager).some(
      (lock) => lock.provider === plan.core.name && lock.keys.includes(key),
    );
    if (isNested) {
      const subject = subjectOf(key, plan);
      throw new LockDeadlockError(
        `${nameOf(subject)} is held by the caller of runAsLeader(), so the campaign would wait for its caller. Start the campaign outside that lock.`,
        subject,
      );
    }
    this.#idle.get(campaignIdOf(key, plan))?.abort();
    await this.#campaign(key, task, plan, options);
  }

  /**
   * Campaigns for {@link isLeader} and {@link runIfLeader} only, whenever no campaign with a task for the same key runs
   * here, until the application stops.
   */
  async runIdle(key: string, plan: LockPlan, onError: (error: unknown) => void): Promise<void> {
    while (!this.manager.stopping.aborted && !this.#end.signal.aborted) {
      const others = this.#campaignsFor(key, plan).map(([, end]) => end);
      await Promise.allSettled(others);
      if (others.length > 0) continue;
      const idle = new AbortController();
      this.#idle.set(campaignIdOf(key, plan), idle);
      await this.#campaign(key, (term) => untilAborted(term.signal), plan, { signal: idle.signal, onError });
    }
  }

  /**
   * Whether this process leads the key now, according to its lock's validity, without sending a request.
   *
   * @throws LockConfigError for an unknown provider
   */
  isLeader(key: string, provider?: string): boolean {
    return this.#termOf(key, this.manager.plan({ provider })) !== undefined;
  }

  /** The process that holds the key, according to the backend. See `LockService.leader`. */
  async leader(key: string, provider: string | undefined): Promise<Leader | null> {
    assertLeaderKey(key);
    const info = await this.manager.admin.inspect(key, provider);
    if (info?.state !== 'held') return null;
    const { instances, since, fencingToken } = info;
    return withJson({ instance: instances[0] ?? null, since, fencingToken });
  }

  /** Runs `work` under the term's lock if this process currently leads the key. Otherwise returns `undefined`. */
  runIfLeader<T>(key: string, plan: LockPlan, work: () => T | PromiseLike<T>): Promise<T> | undefined {
    return this.#termOf(key, plan)?.join(work);
  }

  /** Ends all campaigns, including future ones. Does not wait for their tasks. */
  end(): void {
    this.#end.abort();
  }

  async #campaign(key: string, task: LeaderTask, plan: LockPlan, { signal, onError }: EndOptions): Promise<void> {
    assertLeaderKey(key);
    const campaign = new Campaign(this.manager, { key, plan, task, signal, onError });
    const ends = [this.manager.stopping, this.#end.signal, ...(signal ? [signal] : [])];
    const end = underAny(ends, (ending) => campaign.run(ending)).finally(() => this.#campaigns.delete(campaign));
    this.#campaigns.set(campaign, end);
    await end;
  }

  #campaignsFor(key: string, { core }: LockPlan): [Campaign, Promise<void>][] {
    return [...this.#campaigns].filter(([{ subject }]) => subject.key === key && subject.provider === core.name);
  }

  #termOf(key: string, plan: LockPlan): Term | undefined {
    for (const [{ term }] of this.#campaignsFor(key, plan)) if (term) return term;
    return undefined;
  }
}

/**
 * The plan for a campaign's lock: unlimited wait and hold times, regardless of the module's defaults for tasks.
 *
 * @throws LockConfigError for an unknown option, or one that the provider does not support
 */
export function planCampaign(
  manager: LockManager,
  options: CampaignOptions,
  caller: keyof typeof OPTIONS,
  origin?: LockOrigin,
): LockPlan {
  const table: (typeof OPTIONS)['@RunAsLeader'] | (typeof OPTIONS)['@OnlyLeader'] = OPTIONS[caller];
  const { provider, lease } = read({ name: caller }, options, table) as Partial<
    Settings<(typeof OPTIONS)['@RunAsLeader']>
  >;
  return manager.plan({ provider, lease, wait: Infinity, maxHold: Infinity }, origin);
}

/** @throws LockKeyError for an invalid key or several keys */
export function assertLeaderKey(key: unknown): asserts key is string {
  if (typeof key !== 'string')
    throw new LockKeyError(
      `A leader key must be one string, but it is ${shown(key)}. Campaign for each key separately.`,
    );
  normalizeKeys(key);
}

/** Identifies the campaigns for one key of one provider. */
export function campaignIdOf(key: string, { core }: LockPlan): string {
  return JSON.stringify([core.name, key]);
}
