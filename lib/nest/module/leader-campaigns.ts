import { errorText } from '../../api/cause.js';
import type { LockPlan } from '../../core/plan/lock-plan.js';
import { detached } from '../../core/toolkit/detached.js';
import type { LeaderTask } from '../../recipes/campaign.js';
import { campaignIdOf } from '../../recipes/leadership.js';
import type { DeclaredMethod } from '../methods/declared-method.js';
import { logger } from '../options/module-logger.js';
import type { LockService } from '../service/lock.service.js';
import type { Application } from './explore-application.js';

/** A campaign that starts with the application. */
export interface ModuleCampaign {
  readonly method: DeclaredMethod;
  readonly key: string;
  readonly plan: LockPlan;
  /** `undefined` if only `@OnlyLeader` uses the key. */
  readonly task: LeaderTask | undefined;
}

/** Finds the campaigns that an application's decorators require. */
export function findCampaigns({ providers, plans, problems }: Application): ModuleCampaign[] {
  const campaigns = new Map<string, ModuleCampaign>();
  // A value may be provided under several tokens.
  const distinct = [...new Map(providers.map((provider) => [provider.instance ?? provider, provider])).values()];
  // A key's `@OnlyLeader` methods take part in the campaign of its `@RunAsLeader` method.
  const declared = (['@RunAsLeader', '@OnlyLeader'] as const).flatMap((decorator) =>
    distinct.flatMap(({ methods, ...provider }) =>
      methods.filter((each) => each.decorator === decorator).map((method) => ({ ...provider, method, decorator })),
    ),
  );
  for (const { method, decorator, instance, isSingleton } of declared) {
    const plan = plans.get(method)?.lock;
    if (!plan) continue;
    const key = method.key.source as string;
    const id = campaignIdOf(key, plan);
    const other = campaigns.get(id);
    if (decorator === '@OnlyLeader') {
      if (!other) campaigns.set(id, { method, key, plan, task: undefined });
    } else if (!isSingleton) {
      problems.add(
        `${method.name}: its provider is request-scoped or transient, so there is no instance to run as the leader: make it a singleton`,
      );
    } else if (other) {
      problems.add(
        `${method.name}: ${other.method.name} already leads "${key}", so only one of them would run: give each its own key, or call both from one method`,
      );
    } else {
      const leader = instance as Record<string | symbol, LeaderTask>;
      campaigns.set(id, { method, key, plan, task: async (term) => leader[method.methodName]?.(term) });
    }
  }
  return [...campaigns.values()];
}

/** Starts the campaigns without waiting for an election. */
export function startCampaigns({ leadership }: LockService, campaigns: readonly ModuleCampaign[]): void {
  for (const { method, key, plan, task } of campaigns) {
    const onError = (error: unknown) => {
      report(`${method.name} failed as leader of "${key}"; campaigning again.`, error);
    };
    // Elections and terms outlive startup.
    const campaign = detached(() =>
      task ? leadership.run(key, task, plan, { onError }) : leadership.runIdle(key, plan, onError),
    );
    campaign.catch((error: unknown) => {
      report(`${method.name} no longer campaigns for "${key}".`, error);
    });
  }
}

function report(what: string, error: unknown): void {
  try {
    logger.error(`${what} ${error instanceof Error ? (error.stack ?? error.message) : errorText(error)}`);
  } catch {
    // There is nowhere to report an error from the logger, and the campaign must go on.
  }
}
