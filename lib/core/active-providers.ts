import { LockConfigError, LockError } from '../api/errors.js';
import { ActiveProvider } from './active-provider.js';
import type { EngineParts } from './engine-parts.js';
import type { CompositeProvider, LockProvider } from '../api/lock-provider.js';
import { isRetryable } from './acquire/retryable.js';

/**
 * The providers of one application. Those that stand on others are put together with them, started after them and
 * stopped before them.
 */
export class ActiveProviders implements Iterable<ActiveProvider> {
  readonly #byName = new Map<string, ActiveProvider>();
  /** The names of those that each stands on. */
  readonly #members = new Map<string, readonly string[]>();
  #stopped: Promise<unknown> | undefined;

  /** Opens nothing. @throws LockConfigError for members that are unknown, or stand on each other in a circle */
  constructor(
    providers: Readonly<Record<string, LockProvider>>,
    private readonly parts: EngineParts,
  ) {
    for (const name of Object.keys(providers)) this.#add(name, providers, []);
  }

  get names(): string[] {
    return [...this.#byName.keys()];
  }

  [Symbol.iterator](): IterableIterator<ActiveProvider> {
    return this.#byName.values();
  }

  /** @throws LockConfigError when there is none of that name */
  get(name: string): ActiveProvider {
    const active = this.#byName.get(name);
    if (active) return active;
    throw new LockConfigError(`There is no lock provider "${name}": this application has ${quoted(this.names)}.`, {
      provider: name,
    });
  }

  /**
   * Starts all, and lets each look for what weakens its guarantee.
   *
   * @param failFast whether a backend that cannot be reached is a failure; that of a member is its composite's to judge
   * @throws the first failure, when each has started or failed
   */
  async start(failFast: boolean): Promise<void> {
    const members = new Set([...this.#members.values()].flat());
    const results = await this.#eachAfter(this.#members, (active) =>
      this.#startOne(active, failFast && !members.has(active.name)),
    );
    const failure = results.find((result) => result.status === 'rejected');
    if (failure) throw failure.reason;
  }

  /** Stops all. Once, whether the start has failed, the application stops, or both. Never rejects. */
  stop(): Promise<unknown> {
    return (this.#stopped ??= this.#eachAfter(this.#composites(), async (active) => {
      try {
        await active.stop();
      } catch (error) {
        this.parts.logger.error(`Lock provider "${active.name}" failed to stop: ${String(error)}`);
      }
    }));
  }

  #add(name: string, providers: Readonly<Record<string, LockProvider>>, path: readonly string[]): void {
    if (this.#byName.has(name)) return;
    if (path.includes(name)) {
      throw new LockConfigError(`Lock providers stand on each other in a circle: ${[...path, name].join(' → ')}.`);
    }
    const provider = providers[name];
    if (!provider) {
      throw new LockConfigError(
        `Lock provider "${path.at(-1) ?? ''}" stands on "${name}", but the lock providers are ${quoted(Object.keys(providers))}.`,
      );
    }
    const names = isComposite(provider) ? provider.memberNames : [];
    for (const member of names) this.#add(member, providers, [...path, name]);
    if (isComposite(provider)) {
      provider.compose(new Map(names.map((member) => [member, this.get(member).asMember()])));
    }
    this.#members.set(name, names);
    this.#byName.set(name, new ActiveProvider(name, provider, this.parts));
  }

  /** The names of those that stand on each. */
  #composites(): Map<string, readonly string[]> {
    const standingOn = (name: string) => this.names.filter((other) => this.#members.get(other)?.includes(name));
    return new Map(this.names.map((name) => [name, standingOn(name)]));
  }

  /** Works on all, on each when those `before` it are done, however that ended. */
  #eachAfter(
    before: ReadonlyMap<string, readonly string[]>,
    work: (active: ActiveProvider) => Promise<void>,
  ): Promise<PromiseSettledResult<void>[]> {
    const done = new Map<string, Promise<void>>();
    const begin = (name: string): Promise<void> => {
      const known = done.get(name);
      if (known) return known;
      const those = Promise.allSettled((before.get(name) ?? []).map(begin));
      const result = those.then(() => work(this.get(name)));
      done.set(name, result);
      return result;
    };
    return Promise.allSettled(this.names.map(begin));
  }

  async #startOne(active: ActiveProvider, failFast: boolean): Promise<void> {
    try {
      await active.start();
      for (const { severity, message } of (await active.check()) ?? []) {
        this.parts.logger[severity === 'error' ? 'error' : 'warn'](`Lock provider "${active.name}": ${message}`);
      }
    } catch (error) {
      if (failFast || !LockError.is(error) || !isRetryable(error)) throw error;
      active.failed(error);
    }
  }
}

function isComposite(provider: LockProvider): provider is CompositeProvider {
  return 'compose' in provider;
}

function quoted(names: readonly string[]): string {
  return names.map((name) => `"${name}"`).join(', ');
}
