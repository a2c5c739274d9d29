import type { ConfiguredDuration, Duration } from '../../api/duration.js';
import { LockConfigError, LockError } from '../../api/errors.js';
import type { LockManager } from '../../core/lock-manager.js';
import type { LockService } from '../service/lock.service.js';

/** Options, or a function that makes them of the module's `config`. */
export type Configurable<O> = O | ((config: never) => Configurable.Options<O>);

// eslint-disable-next-line @typescript-eslint/no-namespace -- no name of its own in the entry
export declare namespace Configurable {
  /** Options as they come from configuration: a duration may be any text, which is checked at boot. */
  type Options<O> = {
    [K in keyof O]: Duration extends O[K] ? ConfiguredDuration | Exclude<O[K], Duration> : O[K];
  };
}

/** The options of one decorator: the same in all applications, or made once for each of its configuration. */
export class DecoratorOptions<O extends object> {
  readonly #made = new WeakMap<LockManager, O>();

  constructor(
    private readonly given: Configurable<O>,
    private readonly decorator: string,
  ) {}

  /** The options that are known at decoration. */
  get fixed(): O | undefined {
    return typeof this.given === 'function' ? undefined : this.given;
  }

  /** The options in an application. @throws LockConfigError where its configuration does not give them */
  in(service: LockService): O {
    const { fixed } = this;
    if (fixed) return fixed;
    let options = this.#made.get(service.manager);
    if (!options) {
      options = this.#make(service.config) as O;
      this.#made.set(service.manager, options);
    }
    return options;
  }

  #make(config: unknown): object {
    if (config === undefined) {
      throw new LockConfigError(
        `the options of ${this.decorator} are a function of the configuration, and DistributedLockModule has no "config": add it to the options, such as forRootAsync({ inject: [ConfigService], useFactory: (config: ConfigService) => ({ config, provider }) })`,
      );
    }
    const given: unknown = this.given;
    let options: unknown;
    try {
      options = (given as (config: unknown) => unknown)(config);
    } catch (error) {
      if (LockError.is(error)) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new LockConfigError(`the options of ${this.decorator} cannot be read from the configuration: ${reason}`, {
        cause: error,
      });
    }
    if (typeof options === 'object' && options !== null && !('then' in options)) return options;
    throw new LockConfigError(
      `the options of ${this.decorator} must be an object, but their function gave ${options instanceof Promise ? 'a promise' : String(options)}: read the configuration synchronously`,
    );
  }
}
