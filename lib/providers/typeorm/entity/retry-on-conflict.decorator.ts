import { OptimisticLockVersionMismatchError } from 'typeorm';
import { LockConfigError, LockError } from '../../../api/errors.js';
import { count, type OptionTable, read } from '../../../core/toolkit/options.js';
import { copyMethodMetadata, decoratedMethod } from '../../../decoration/decorated-method.js';
import { setTimeout } from '../../../core/toolkit/real-timers.js';

const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 1_000;

/** Retry options for a method. */
export interface RetryOnConflictOptions {
  /** The maximum number of runs, including the first. Default 3. */
  readonly attempts?: number;
}

const OPTIONS = { attempts: count(1).or(3) } satisfies OptionTable<RetryOnConflictOptions>;

/** Decorates methods that return a promise. */
export interface RetryDecorator {
  // These overloads never match. If more than three fail to match, the compiler reports only the last one.
  /* eslint-disable @typescript-eslint/unified-signatures -- their number is what matters */
  (target: never, method: never, descriptor: never): void;
  (target: never, method: never, descriptor: never): void;
  (
    target: 'A property, such as an arrow function, cannot be decorated: write a method',
    property: string | symbol,
  ): void;
  /* eslint-enable @typescript-eslint/unified-signatures */
  <M extends (...args: never[]) => PromiseLike<unknown>>(
    target: object,
    method: string | symbol,
    descriptor: TypedPropertyDescriptor<M>,
  ): void;
}

/**
 * Retries the method after a write conflict: `VersionConflictError`, or TypeORM's `OptimisticLockVersionMismatchError`.
 * Any other error, or a conflict in the last run, is rethrown unchanged.
 *
 * The method must reread what it writes, and must not have other side effects that are unsafe to repeat. Each run needs
 * its own transaction, or it would read the same snapshot again. Apply the decorators in this order, from top
 * to bottom: `@DistributedLock`, `@RetryOnConflict`, `@Transactional`.
 *
 * Delays are random, up to a bound that doubles from 20 ms to 1 s ("full jitter"), because callers that conflicted
 * would conflict again after equal delays.
 *
 * @throws LockConfigError at decoration time if the method can't be retried or options are invalid
 */
export function RetryOnConflict(options: RetryOnConflictOptions = {}): RetryDecorator {
  const { attempts } = read({ name: '@RetryOnConflict' }, options, OPTIONS);
  const decorate = (target: object, key: string | symbol, descriptor: PropertyDescriptor): void => {
    const { name, original, kind } = decoratedMethod('@RetryOnConflict', target, key, descriptor);
    if (kind === 'iteration') {
      throw new LockConfigError(
        `${name} is a generator, and yielded values cannot be taken back: put @RetryOnConflict on the method that writes.`,
      );
    }
    const retried = async function (this: unknown, ...args: unknown[]): Promise<unknown> {
      for (let bound = FIRST_PAUSE_MS, run = 1; ; bound *= 2, run += 1) {
        try {
          return await original.apply(this, args);
        } catch (error) {
          if (run >= attempts || !isConflict(error)) throw error;
        }
        const pause = Math.random() * Math.min(bound, LONGEST_PAUSE_MS);
        await new Promise((resolve) => {
          setTimeout(resolve, pause);
        });
      }
    };
    copyMethodMetadata(retried, original);
    descriptor.value = retried;
  };
  // The type's property overload takes no descriptor and never matches.
  return decorate as RetryDecorator;
}

function isConflict(error: unknown): boolean {
  if (error instanceof OptimisticLockVersionMismatchError) return true;
  return LockError.is(error) && error.code === 'LOCK_VERSION_CONFLICT';
}
