import { errorText } from '../api/cause.js';
import { LockConfigError, LockError, LockUnavailableError } from '../api/errors.js';
import type { LockLogger } from '../api/logger.js';
import type { LockProvider } from '../api/lock-provider.js';
import { isRefusal, isRetryable } from './toolkit/retryable.js';
import { memberOf } from './member/member.js';
import type { CoreParts } from './core-parts.js';
import { ProviderCore } from './provider-core.js';

/**
 * An application's providers. A composite provider is created and connected after its members, and closed before them.
 */
export class Providers implements Iterable<ProviderCore> {
  readonly #byName = new Map<string, ProviderCore>();
  readonly #logger: LockLogger;
  #closed: Promise<unknown> | undefined;

  /** Doesn't open any connections. @throws LockConfigError if members are unknown or form a cycle */
  constructor(providers: Readonly<Record<string, LockProvider>>, parts: CoreParts) {
    this.#logger = parts.logger;
    const add = (name: string, path: readonly string[]): void => {
      if (this.#byName.has(name)) return;
      if (path.includes(name)) {
        throw new LockConfigError(
          `Lock providers depend on each other in a cycle: ${[...path, name].join(' → ')}. Remove one of these names from the options of the provider before it.`,
        );
      }
      const provider = providers[name];
      if (!provider) {
        throw new LockConfigError(
          `Lock provider "${path.at(-1) ?? ''}" depends on "${name}", but the only lock providers are ${quoted(Object.keys(providers))}.`,
        );
      }
      const { members = [] } = provider;
      for (const member of members) add(member, [...path, name]);
      const memberNamed = (member: string) => {
        if (members.includes(member)) return memberOf(this.get(member));
        throw new LockConfigError(`Lock provider "${name}" does not list "${member}" as a member.`);
      };
      this.#byName.set(name, new ProviderCore(name, provider, parts, memberNamed));
    };
    for (const name of Object.keys(providers)) add(name, []);
  }

  get names(): string[] {
    return [...this.#byName.keys()];
  }

  [Symbol.iterator](): IterableIterator<ProviderCore> {
    return this.#byName.values();
  }

  /** @throws LockConfigError if there is no provider with this name */
  get(name: string): ProviderCore {
    const core = this.#byName.get(name);
    if (core) return core;
    throw new LockConfigError(`There is no lock provider "${name}": this application has ${quoted(this.names)}.`, {
      provider: name,
    });
  }

  /**
   * Connects all backends and logs server settings that weaken the guarantee.
   *
   * @param failFast whether to throw if a backend cannot be reached. Composite providers decide this for their members
   * @throws the provider's error, or a list of errors if several failed, after all others have connected
   */
  async connect(failFast: boolean): Promise<void> {
    const members = new Set(Array.from(this, ({ members }) => members).flat());
    const results = await this.#eachAfter(
      (name) => this.get(name).members,
      (core) => this.#connectOne(core, failFast, members.has(core.name)),
    );
    const failures = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
    if (failures.length > 0)
      throw failures.every((failure) => LockError.is(failure)) ? combined(failures) : failures[0];
  }

  /** Closes all backends. Idempotent, because it's called both after a failed start and on stop. Never rejects. */
  close(): Promise<unknown> {
    const builtOn = (name: string) => this.names.filter((other) => this.get(other).members.includes(name));
    return (this.#closed ??= this.#eachAfter(builtOn, async (core) => {
      try {
        await core.close();
      } catch (error) {
        this.#logger.error(`Lock provider "${core.name}" failed to close: ${errorText(error)}`);
      }
    }));
  }

  /** Calls `work` for each provider after the calls for its prerequisites, as named by `before`, have settled. */
  #eachAfter(
    before: (name: string) => readonly string[],
    work: (core: ProviderCore) => Promise<void>,
  ): Promise<PromiseSettledResult<void>[]> {
    const done = new Map<string, Promise<void>>();
    const start = (name: string): Promise<void> => {
      const known = done.get(name);
      if (known) return known;
      const result = Promise.allSettled(before(name).map(start)).then(() => work(this.get(name)));
      done.set(name, result);
      return result;
    };
    return Promise.allSettled(this.names.map(start));
  }

  async #connectOne(core: ProviderCore, failFast: boolean, isMember: boolean): Promise<void> {
    // The application may have stopped while a member was still connecting.
    if (this.#closed) return;
    try {
      await core.backend.connect();
      // Diagnose before the first write: a server that rejects the write may close the connection.
      for (const { severity, message } of (await core.backend.diagnose?.()) ?? []) {
        this.#logger[severity === 'error' ? 'error' : 'warn'](`Lock provider "${core.name}": ${message}`);
      }
    } catch (error) {
      // A composite provider exists to survive members that are down or demoted.
      const isOutage = LockError.is(error) && (isRetryable(error) || (isMember && isRefusal(error)));
      if (!isOutage || (failFast && !isMember)) throw error;
      core.reachability.failed(error);
    }
    core.registration.renew();
  }
}

/** Combines the errors so that users see all configuration mistakes at once. */
function combined(failures: readonly LockError[]): LockError {
  const [first, second] = failures;
  if (first && !second) return first;
  const message = ['These lock providers cannot be used:', ...failures.map((failure) => `  - ${failure.message}`)];
  const isOutage = failures.every((failure) => isRetryable(failure));
  return isOutage
    ? new LockUnavailableError(message, { cause: first })
    : new LockConfigError(message, { cause: first, refused: failures.every((failure) => isRefusal(failure)) });
}

function quoted(names: readonly string[]): string {
  return names.map((name) => `"${name}"`).join(', ');
}
