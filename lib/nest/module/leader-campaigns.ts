import type { LockPlan } from '../../core/plan/lock-plan.js';
import { detached } from '../../core/toolkit/detached.js';
import type { LeaderTask } from '../../recipes/campaign.js';
import { campaignIdOf } from '../../recipes/leadership.js';
import type { DeclaredMethod } from '../methods/declared-method.js';
import { logger } from '../options/module-logger.js';
import type { LockService } from '../service/lock.service.js';
import type { Application, DecoratedProvider } from './explore-application.js';

/** A campaign that starts with the application. */
interface ModuleCampaign {
  readonly method: DeclaredMethod;
  readonly key: string;
  readonly plan: LockPlan;
  /** `undefined` if only `@OnlyLeader` uses the key. */
  readonly task: LeaderTask | undefined;
}

/** The campaigns required by an application's decorators. */
export class LeaderCampaigns {
  readonly #service: LockService;
  readonly #byKey = new Map<string, ModuleCampaign>();

  constructor({ service, providers, plans, problems }: Application) {
    this.#service = service;
    // A value may be provided under several tokens.
    const seen = new Map(providers.map((provider) => [provider.instance ?? provider, provider]));
    for (const decorator of ['@RunAsLeader', '@OnlyLeader'] as const) {
      for (const provider of seen.values()) {
        for (const method of provider.methods.filter((each) => each.decorator === decorator)) {
          const plan = plans.get(method);
          const problem = plan && this.#add(method, plan.lock, provider);
          if (problem !== undefined) problems.add(`${method.name}: ${problem}`);
        }
      }
    }
  }

  /** Each campaign's method. */
  get methods(): DeclaredMethod[] {
    return Array.from(this.#byKey.values(), ({ method }) => method);
  }

  /** Starts the campaigns without waiting for an election. */
  start(): void {
    const { leadership } = this.#service;
    for (const { method, key, plan, task } of this.#byKey.values()) {
      const onError = (error: unknown) => {
        logger.error(`${method.name} failed as leader of "${key}"; campaigning again. ${describe(error)}`);
      };
      // Elections and terms outlive startup.
      const campaign = detached(() =>
        task ? leadership.run(key, task, plan, { onError }) : leadership.runIdle(key, plan, onError),
      );
      campaign.catch((error: unknown) => {
        logger.error(`${method.name} no longer campaigns for "${key}". ${describe(error)}`);
      });
    }
  }

  /** Adds a method's campaign. @returns the mistake that keeps it from working */
  #add(method: DeclaredMethod, plan: LockPlan, { instance, isSingleton }: DecoratedProvider): string | undefined {
    const key = method.key.source as string;
    const id = campaignIdOf(key, plan);
    const other = this.#byKey.get(id);
    if (method.decorator === '@OnlyLeader') {
      if (!other) this.#byKey.set(id, { method, key, plan, task: undefined });
      return undefined;
    }
    if (!isSingleton) {
      return 'its provider is request-scoped or transient, so there is no instance to run as the leader: make it a singleton';
    }
    if (other) {
      return `${other.method.name} already leads "${key}", so only one of them would run: give each its own key, or call both from one method`;
    }
    const task: LeaderTask = async (term) =>
      (instance as Record<string | symbol, LeaderTask>)[method.methodName]?.(term);
    this.#byKey.set(id, { method, key, plan, task });
    return undefined;
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
