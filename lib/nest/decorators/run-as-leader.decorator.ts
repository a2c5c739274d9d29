import type { LeaderTerm } from '../../recipes/campaign.js';
import type { CampaignOptions } from '../../recipes/leadership.js';
import { declaration } from '../methods/declared-method.js';
import type { Configurable } from '../methods/decorator-options.js';
import type { LockDecorator } from './decorator-types.js';

/** Decorates async methods that take a `LeaderTerm`, or no argument. */
export interface RunAsLeaderDecorator {
  // As in LockDecorator, no method matches these signatures.
  /* eslint-disable @typescript-eslint/unified-signatures -- the number of signatures matters */
  (target: never, method: never, descriptor: never): void;
  (target: never, method: never, descriptor: never): void;
  (target: LockDecorator.NoProperty, property: string | symbol): void;
  /* eslint-enable @typescript-eslint/unified-signatures */
  <M extends (term: LeaderTerm) => PromiseLike<unknown>>(
    target: LockDecorator.Prototype,
    method: string | symbol,
    descriptor: TypedPropertyDescriptor<M>,
  ): void;
}

/**
 * Runs a provider's method in the process that leads the key, from application startup to shutdown: see
 * `LockService.runAsLeader`. If the method fails, the error is logged, and the process campaigns again after a pause.
 *
 * The decorator does not change the method, so you can combine it with other decorators in any order, and a unit test
 * can call the method with its own term. Startup fails if a key or option cannot work, if the provider is
 * request-scoped, or if two methods lead the same key.
 *
 * @example
 * ```ts
 * @RunAsLeader('billing')
 * async run(term: LeaderTerm) {
 *   while (!term.signal.aborted) await this.chargeNext(term.fencingToken);
 * }
 * ```
 * @param key fixed text, not a template
 */
export function RunAsLeader(key: string, options: Configurable<CampaignOptions> = {}): RunAsLeaderDecorator {
  // This function doesn't match the declared type's property signature, which has no descriptor.
  return declaration({
    decorator: '@RunAsLeader',
    example: "@RunAsLeader('billing')",
    key,
    options,
  }) as RunAsLeaderDecorator;
}
