import 'reflect-metadata';
import { LockConfigError, LockError } from '../../api/errors.js';
import { decoratedMethod, type DecoratedMethod } from '../../decoration/decorated-method.js';
import { assertLeaderKey, type CampaignOptions, planCampaign } from '../../recipes/leadership.js';
import { type Configurable, DecoratorOptions } from './decorator-options.js';
import { defaultsOfClass } from './class-defaults.js';
import { lockedMethodsBehind } from './lock-metadata.js';
import type { LockedMethod } from './locked-method.js';
import { isScheduled } from './method-ticks.js';
import type { LockPlan } from '../../core/plan/lock-plan.js';
import type { LockService } from '../service/lock.service.js';

const LEADER_METHODS = Symbol('LeaderMethods of a class');

/** A method that runs only in the process that leads a key. */
export class LeaderMethod {
  readonly #options: DecoratorOptions<CampaignOptions>;
  readonly #plans = new WeakMap<LockService, LockPlan>();

  constructor(
    readonly decorator: '@RunAsLeader' | '@OnlyLeader',
    /** The prototype of the class that declares it. */
    readonly target: object,
    /** For messages, such as `Billing.run`. */
    readonly name: string,
    readonly methodName: string | symbol,
    readonly key: string,
    options: Configurable<CampaignOptions>,
    /** Those of decorators below this one. */
    readonly locksBelow: readonly LockedMethod[],
  ) {
    this.#options = new DecoratorOptions(options, decorator);
  }

  /** Whether `@nestjs/schedule` calls it. */
  get isScheduled(): boolean {
    return isScheduled(Object(Reflect.get(this.target, this.methodName)) as object);
  }

  /** The lock of its campaign in an application, with `provider` and `lease` of its class, made once. @throws LockConfigError */
  planIn(service: LockService): LockPlan {
    let plan = this.#plans.get(service);
    if (!plan) {
      const { decorator, name, key } = this;
      const own = this.#options.in(service);
      const { provider, lease } = defaultsOfClass(this.target, service) ?? {};
      const options = {
        ...(decorator === '@RunAsLeader' && lease && { lease }),
        ...own,
        provider: own.provider ?? provider,
      };
      const origin = { method: name, template: key };
      plan = planCampaign(service.manager, options, decorator, origin);
      this.#plans.set(service, plan);
    }
    return plan;
  }

  /** The mistake that keeps it from working in an application. */
  problemIn(service: LockService): string | undefined {
    const { decorator, name, key } = this;
    if (typeof key === 'string' && key.includes('#{')) {
      return `${name}: ${decorator} needs a fixed key, since nobody calls it with arguments, but "${key}" is a template`;
    }
    try {
      assertLeaderKey(key);
      this.planIn(service);
      return undefined;
    } catch (error) {
      if (!LockError.is(error)) throw error;
      return `${name}: ${error.message}`;
    }
  }
}

/** The decorated method, recorded for the boot. @throws LockConfigError at decoration for a method that cannot wait for a leader */
export function recordLeaderMethod(
  decorator: LeaderMethod['decorator'],
  key: string,
  options: Configurable<CampaignOptions>,
  target: object,
  methodName: string | symbol,
  descriptor: PropertyDescriptor,
): { readonly method: LeaderMethod; readonly original: DecoratedMethod['original'] } {
  const decorated = decoratedMethod(decorator, target, methodName, descriptor);
  const { name, original, kind } = decorated;
  if (typeof target === 'function') {
    throw new LockConfigError(`${name} is static: make it an instance method of a provider.`);
  }
  if (kind === 'iteration' || kind === 'observable') {
    throw new LockConfigError(`${name} returns a stream: ${decorator} needs a method that returns a promise.`);
  }
  const method = new LeaderMethod(decorator, target, name, methodName, key, options, lockedMethodsBehind(original));
  Reflect.defineMetadata(LEADER_METHODS, [...ownMethodsOf(target), method], target);
  return { method, original };
}

/** All such methods of a class, its own and the inherited ones. A method that is decorated again replaces the inherited one. */
export function leaderMethodsOf(prototype: object): LeaderMethod[] {
  const methods: LeaderMethod[] = [];
  for (let level: object | null = prototype; level; level = Object.getPrototypeOf(level) as object | null) {
    const own = ownMethodsOf(level);
    const decorated = new Set(methods.map(({ methodName }) => methodName));
    methods.push(...own.filter(({ methodName }) => !decorated.has(methodName)));
  }
  return methods;
}

function ownMethodsOf(level: object): readonly LeaderMethod[] {
  return (Reflect.getOwnMetadata(LEADER_METHODS, level) as LeaderMethod[] | undefined) ?? [];
}
