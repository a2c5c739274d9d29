import { detached } from '../../core/toolkit/detached.js';
import type { LockPlan } from '../../core/plan/lock-plan.js';
import { campaignIdOf } from '../../recipes/leadership.js';
import type { LeaderTask, LeaderTerm } from '../../recipes/leader-term.js';
import type { LeaderMethod } from '../methods/leader-method.js';
import { logger } from '../options/module-logger.js';
import type { LockService } from '../service/lock.service.js';

/** A provider whose class has leader methods. */
export interface LeaderProvider {
  readonly methods: readonly LeaderMethod[];
  readonly instance: unknown;
  /** One instance for the whole application, so that nobody has to ask for it. */
  readonly isSingleton: boolean;
}

/** One campaign that the module starts with the application. */
interface ModuleCampaign {
  readonly method: LeaderMethod;
  readonly plan: LockPlan;
  /** Undefined for a key that only `@OnlyLeader` asks about. */
  readonly task: LeaderTask | undefined;
}

/** The campaigns that the decorators of an application ask for. */
export class LeaderCampaigns {
  readonly problems: readonly string[];
  readonly #byKey = new Map<string, ModuleCampaign>();

  constructor(
    private readonly service: LockService,
    providers: readonly LeaderProvider[],
  ) {
    const problems = new Set<string>();
    // A value may be provided under several tokens.
    const seen = new Map<unknown, LeaderProvider>(
      providers.map((provider) => [provider.instance ?? provider, provider]),
    );
    for (const decorator of ['@RunAsLeader', '@OnlyLeader'] as const) {
      for (const provider of seen.values()) {
        for (const method of provider.methods.filter((each) => each.decorator === decorator)) {
          const problem = method.problemIn(service) ?? this.#add(method, provider);
          if (problem !== undefined) problems.add(problem);
        }
      }
    }
    this.problems = [...problems];
  }

  /** The method of each campaign. */
  get methods(): LeaderMethod[] {
    return Array.from(this.#byKey.values(), ({ method }) => method);
  }

  /** Starts them, and does not wait for an election. */
  start(): void {
    for (const { method, plan, task } of this.#byKey.values()) {
      const onError = (error: unknown) => {
        logger.error(`${method.name} failed as leader of "${method.key}"; it campaigns again. ${describe(error)}`);
      };
      const { leadership } = this.service;
      // Elections, and the terms after them, outlive the boot.
      const campaign = detached(() =>
        task ? leadership.run(method.key, task, plan, { onError }) : leadership.runIdle(method.key, plan, onError),
      );
      campaign.catch((error: unknown) => {
        logger.error(`${method.name} does not campaign for "${method.key}" any more. ${describe(error)}`);
      });
    }
  }

  /** @returns the mistake that keeps the method from working */
  #add(method: LeaderMethod, { instance, isSingleton }: LeaderProvider): string | undefined {
    const plan = method.planIn(this.service);
    const id = campaignIdOf(method.key, plan);
    const other = this.#byKey.get(id);
    if (method.decorator === '@OnlyLeader') {
      if (!other) this.#byKey.set(id, { method, plan, task: undefined });
      return undefined;
    }
    if (!isSingleton) {
      return `${method.name}: its provider is request-scoped or transient, so there is no instance to run as the leader: make it a singleton`;
    }
    if (other) {
      return `${method.name}: ${other.method.name} leads "${method.key}" already, so only one of them would run: give each a key, or call both from one method`;
    }
    this.#byKey.set(id, { method, plan, task: (term) => callOn(instance, method, term) });
    return undefined;
  }
}

async function callOn(instance: unknown, { methodName }: LeaderMethod, term: LeaderTerm): Promise<unknown> {
  return (instance as Record<string | symbol, LeaderTask>)[methodName]?.(term);
}

function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
