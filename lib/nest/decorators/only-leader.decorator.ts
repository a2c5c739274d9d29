import { publishSkipped } from '../../core/plan/lock-plan.js';
import type { Method } from '../../decoration/decorated-method.js';
import type { CampaignOptions } from '../../recipes/leadership.js';
import { declaration, type DeclaredMethod } from '../methods/declared-method.js';
import type { Configurable } from '../methods/decorator-options.js';
import { refuseStream } from '../methods/results/streams.js';
import { serviceOf } from '../service/service-slot.js';
import type { LockDecorator } from './decorator-types.js';

/** Decorates async methods whose result may be `undefined`, because a skipped call resolves to it. */
export interface OnlyLeaderDecorator {
  // As in LockDecorator, no method matches these signatures.
  /* eslint-disable @typescript-eslint/unified-signatures -- the number of signatures matters */
  (target: never, method: never, descriptor: never): void;
  (target: never, method: never, descriptor: never): void;
  (target: LockDecorator.NoProperty, property: string | symbol): void;
  /* eslint-enable @typescript-eslint/unified-signatures */
  <M extends (...args: never[]) => PromiseLike<unknown>>(
    target: LockDecorator.Prototype,
    method: string | symbol,
    descriptor: TypedPropertyDescriptor<M> & LockDecorator.Skips<M>,
  ): void;
}

/**
 * Runs a call only in the process that currently leads the key, without making a request to the backend. In other
 * processes, the call resolves to `undefined` and publishes `skipped`. If the application has no `@RunAsLeader` for
 * that key, it campaigns for the key anyway.
 *
 * The method runs under the lock of the term (`currentLock()`), and the process does not resign before the method ends.
 * If the lock is lost in the meantime, the call ends like a `withLock` call (see `onLost`).
 *
 * @example
 * ```ts
 * @Cron('0 * * * *')
 * @OnlyLeader('billing')
 * async report() {}
 * ```
 * @param key fixed text, not a template
 */
export function OnlyLeader(
  key: string,
  options: Configurable<Pick<CampaignOptions, 'provider'>> = {},
): OnlyLeaderDecorator {
  // This function doesn't match the declared type's property signature, which has no descriptor.
  return declaration({
    decorator: '@OnlyLeader',
    example: "@OnlyLeader('billing')",
    key,
    options,
    wrap: underTerm,
  }) as OnlyLeaderDecorator;
}

function underTerm(method: DeclaredMethod, original: Method): Method {
  const key = method.key.source as string;
  return async function (this: unknown, ...args) {
    const service = serviceOf(method.name, this);
    const plan = method.planIn(service).lock;
    const run = service.leadership.runIfLeader(key, plan, () => original.apply(this, args));
    if (run) {
      const result = await run;
      refuseStream(method.name, result);
      return result;
    }
    publishSkipped(plan, key, 'not-leader');
    return undefined;
  };
}
