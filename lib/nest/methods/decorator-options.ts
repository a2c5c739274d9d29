import type { ConfiguredDuration, Duration } from '../../api/duration.js';
import { LockConfigError, LockError } from '../../api/errors.js';
import type { LockManager } from '../../core/lock-manager.js';
import type { LockService } from '../service/lock.service.js';

/** Options, or a function that creates them from the module's `config`. */
export type Configurable<O> = O | ((config: never) => Configurable.Options<O>);

// eslint-disable-next-line @typescript-eslint/no-namespace -- no name of its own in the entry
export declare namespace Configurable {
  /** Options from the configuration. A duration in them may be any string and is checked at boot. */
  type Options<O> = {
    [K in keyof O]: Duration extends O[K] ? ConfiguredDuration | Exclude<O[K], Duration> : O[K];
  };
}

/**
 * The options of one decorator: the same in all applications, or created once from each application's configuration.
 */
export class DecoratorOptions<O extends object> {
  /** The options known at decoration time. */
  readonly fixed: O | undefined;
  readonly #made = new WeakMap<LockManager, O>();

  /**
   * @param place where the decorator is, such as `OrderService.pay`
   * @param read checks the given options
   * @throws LockConfigError as `read` does, for options known in advance
   */
  constructor(
    private readonly decorator: string,
    place: string,
    private readonly given: object,
    private readonly read: (given: never) => O,
  ) {
    if (typeof given === 'function') return;
    try {
      this.fixed = read(given as never);
    } catch (error) {
      if (!(error instanceof LockConfigError)) throw error;
      throw new LockConfigError(`${place}: ${error.message}`, { cause: error.cause });
    }
  }

  /** The options for an application. @throws LockConfigError if its configuration does not provide them */
  in(service: LockService): O {
    const options = this.fixed ?? this.#made.get(service.manager) ?? this.#make(service.config);
    if (!this.fixed) this.#made.set(service.manager, options);
    return options;
  }

  #make(config: unknown): O {
    if (config === undefined) {
      throw new LockConfigError(
        `the options of ${this.decorator} come from the configuration, but DistributedLockModule has no "config": add it to the options, as in forRootAsync({ inject: [ConfigService], useFactory: (config: ConfigService) => ({ config, provider }) })`,
      );
    }
    let options: unknown;
    try {
      options = (this.given as (config: unknown) => unknown)(config);
    } catch (error) {
      if (LockError.is(error)) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new LockConfigError(`the options of ${this.decorator} cannot be read from the configuration: ${reason}`, {
        cause: error,
      });
    }
    if (typeof options === 'object' && options !== null && !('then' in options)) return this.read(options as never);
    throw new LockConfigError(
      `the options of ${this.decorator} must be an object, but the function returned ${options instanceof Promise ? 'a promise' : String(options)}: read the configuration synchronously`,
    );
  }
}
