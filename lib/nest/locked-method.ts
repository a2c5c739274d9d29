import { LockConfigError, LockError, LockTimeoutError } from '../lock/errors.js';
import type { KeyFunction } from '../key/key-function.js';
import { KeyTemplate } from '../key/key-template.js';
import { normalizeKeys, type LockKey } from '../key/lock-key.js';
import { parameterNamesOf } from '../key/parameter-names.js';
import type { LockManager } from '../engine/lock-manager.js';
import type { LockPlan } from '../engine/lock-plan.js';
import type { BusyContext, DistributedLockOptions } from './distributed-lock-options.js';
import { liveServices } from './live-services.js';
import { defaultsOfClass } from './lock-defaults.decorator.js';
import type { LockService } from './lock.service.js';
import { currentRequest } from './request-context.js';
import { serviceInSlot } from './service-slot.js';

/** What a decorator may be given as a key: a template, several, or a function of the method's arguments. */
export type KeySource = string | readonly string[] | KeyFunction<never[]>;

/** One decorated method: its key, its options, and what a call of it needs to know. */
export class LockedMethod {
  /** For messages, such as `OrderService.pay`. */
  readonly name: string;
  readonly #templates: readonly KeyTemplate[] | undefined;
  readonly #keyFunction: ((...args: never[]) => LockKey) | undefined;
  readonly #source: string | null;
  readonly #plans = new WeakMap<LockManager, LockPlan>();

  /** @throws LockKeyError when a template cannot be used. */
  constructor(
    private readonly target: object,
    methodName: string | symbol,
    original: (...args: never[]) => unknown,
    key: KeySource,
    readonly options: DistributedLockOptions,
  ) {
    const owner = target.constructor;
    this.name = `${owner.name}.${String(methodName)}`;
    if (typeof key === 'function') {
      this.#keyFunction = key;
      this.#source = null;
      return;
    }
    const site = {
      method: this.name,
      className: owner.name,
      methodName: String(methodName),
      parameters: parameterNamesOf(original, owner, methodName),
    };
    const sources = typeof key === 'string' ? [key] : key;
    this.#templates = sources.map((source) => KeyTemplate.parse(source, site));
    this.#source = sources.join(', ');
  }

  /** Everything that is wrong with this method in an application, found without calling it. */
  problems({ manager, context }: LockService): string[] {
    const problems: string[] = [];
    try {
      this.planFor(manager);
    } catch (error) {
      problems.push(error instanceof LockError ? error.message : String(error));
    }
    for (const template of this.#templates ?? []) {
      for (const name of template.contextNames) {
        if (!Object.hasOwn(context, name)) {
          problems.push(`its key reads #{ctx.${name}}, but the module's "context" has no "${name}"`);
        }
      }
    }
    if (this.options.around === 'request' && this.#needsArguments()) {
      problems.push(
        `around: 'request' takes the lock before the method has arguments, so its key cannot come from them: use #{request…} or #{ctx…}`,
      );
    }
    return problems.map((problem) => `${this.name}: ${problem}`);
  }

  /** The options of this method, checked against the providers of an application. @throws LockConfigError */
  planFor(manager: LockManager): LockPlan {
    let plan = this.#plans.get(manager);
    if (!plan) {
      const defaults = defaultsOfClass(this.target);
      const options = { ...defaults, ...withoutUndefined(this.options) };
      if (options.onBusy === 'skip') options.wait ??= 0;
      plan = manager.plan(options, { method: this.name, template: this.#source });
      this.#plans.set(manager, plan);
    }
    return plan;
  }

  /** The key or keys of one call. @throws LockKeyError */
  keysOf(service: LockService, self: unknown, args: readonly unknown[]): LockKey {
    if (this.#keyFunction) return this.#keyFunction.apply(self, args as never[]);
    const scope = {
      self,
      args,
      request: () => currentRequest()?.request,
      context: (name: string) => service.context[name]?.(),
    };
    const [first, ...others] = this.#templates ?? [];
    if (first && others.length === 0) return first.evaluate(scope);
    return (this.#templates ?? []).flatMap((template) => template.evaluate(scope));
  }

  /** The lock service for a call on `self`. @throws LockConfigError outside of a running application. */
  serviceFor(self: unknown): LockService {
    const service = serviceInSlot(self) ?? liveServices.only;
    if (service) return service;
    throw new LockConfigError(
      `${this.name} was called before Nest has injected its lock service, or outside of Nest (live applications: ${liveServices.count}): ` +
        'import DistributedLockModule.forRoot() and let Nest make the instance, or provide LockService with provideLockServiceStub() in a unit test.',
    );
  }

  /** What a call answers whose lock stayed busy; throws what is to be thrown. */
  busy(error: LockTimeoutError, service: LockService, keys: LockKey, args: readonly unknown[]): unknown {
    const { onBusy } = this.options;
    const { active, settings, origin } = this.planFor(service.manager);
    if (onBusy === undefined || onBusy === 'throw') throw error;
    if (onBusy === 'skip') {
      const key = error.key ?? '';
      active.events.publish('skipped', () => ({ key, provider: active.name, mode: settings.mode, ...origin }));
      return undefined;
    }
    const busy: BusyContext = { keys: normalizeKeys(keys), provider: active.name, method: this.name, args, error };
    return onBusy(busy);
  }

  #needsArguments(): boolean {
    return this.#keyFunction !== undefined || (this.#templates ?? []).some((template) => template.usesParameters);
  }
}

// An option that is set to undefined is left open: spread as it is, it would hide the default beneath.
function withoutUndefined<T extends object>(options: T): T {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T;
}
