import type {
  AcquireRequest,
  Answer,
  CompositeProvider,
  Finding,
  Grant,
  Holder,
  LockCapabilities,
  Member,
  ProviderContext,
  ReleaseManner,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { LockConfigError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import { findings } from './doctor.js';
import { Failover, type FailoverState } from './failover.js';
import { type FailoverProviderOptions, type FailoverSettings, readOptions } from './failover-options.js';

/**
 * Several engines as one: locks on the preferred one that works, and on the next when it fails.
 *
 * In mode `strict` mutual exclusion holds through every switch, whatever part of the network each process sees: a lock
 * is believed only as long as its process has lately written to a record shared by all, and a new engine grants only
 * when that time is over for the locks of the old one. (The argument stands at `Agreement`.) The price: one write to the
 * record in a fifth of `window` for each process, no locks while the record cannot be reached, and a pause of about `window`
 * at a switch. Fencing tokens grow through switches: epoch · 2^52 + the engine's token.
 *
 * In mode `available` each process decides alone. It avoids double work, and protects nothing around a switch.
 *
 * What breaks `strict`: a record that loses an acknowledged write, clocks whose rates differ by more than 1 %, or a machine
 * that is suspended for up to 2 s around a switch, which is not noticed (locks overlap for as long as it slept). An engine
 * that loses its data while it is active breaks it as it breaks that engine alone.
 */
export class FailoverProvider implements CompositeProvider {
  readonly memberNames: readonly string[];
  readonly #settings: FailoverSettings;
  #members: ReadonlyMap<string, Member> | undefined;
  #running: Failover | undefined;

  /** @throws LockConfigError for options that cannot work */
  constructor(options: FailoverProviderOptions) {
    this.#settings = readOptions(options);
    const { engines, record } = this.#settings;
    this.memberNames = [...new Set([...engines, ...(record === undefined ? [] : [record])])];
  }

  compose(members: ReadonlyMap<string, Member>): void {
    const { record } = this.#settings;
    if (record !== undefined && !members.get(record)?.records) {
      throw new LockConfigError(
        `FailoverProvider cannot keep its "record" on lock provider "${record}", which may lose what it has acknowledged: use one of SQL on MySQL, MariaDB or Postgres, or ZooKeeper.`,
        { provider: record },
      );
    }
    for (const name of this.#settings.engines) {
      const { maxLease = Infinity } = members.get(name)?.capabilities ?? {};
      if (this.#settings.mode !== 'strict' || this.#settings.lease <= maxLease) continue;
      throw new LockConfigError(
        `FailoverProvider: "lease" is ${this.#settings.lease} ms, longer than "maxLease" of lock provider "${name}", which is ${maxLease} ms: shorten it, or raise maxLease in all processes.`,
        { provider: name },
      );
    }
    this.#members = members;
    this.#refuseWideTokens();
  }

  get capabilities(): LockCapabilities {
    const strict = this.#settings.mode === 'strict';
    const engines = this.#settings.engines.map((name) => this.#member(name).capabilities);
    const all = (has: (capabilities: LockCapabilities) => boolean) => engines.every(has);
    // Processes that decide alone have no common order of epochs.
    const fencing = strict && all((each) => each.fencing);
    return {
      shared: all((each) => each.shared),
      // A switch loses the order.
      fair: false,
      fencing,
      wideTokens: fencing,
      // In strict mode the confirmations bound every lock alike.
      lease: !strict && all((each) => each.lease === 'per-lock') ? 'per-lock' : 'session',
      maxLease: Math.min(...engines.map(({ maxLease = Infinity }) => maxLease)),
      // A switch forgets what was parked.
      minHold: !strict && all((each) => each.minHold),
      forceRelease: all((each) => each.forceRelease),
      queue: 'native',
    };
  }

  async start(context: ProviderContext): Promise<void> {
    if (this.#running) {
      throw new LockConfigError(`Lock provider "${context.name}" was started before: make a new one.`, {
        provider: context.name,
      });
    }
    this.#running = new Failover(this.#settings, this.#composed(), this.capabilities.fencing, context);
    await this.#running.start();
  }

  acquire(request: AcquireRequest): Answer<Grant | 'busy'> {
    return this.#started().acquire(request);
  }

  renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    return this.#started().renew(grant, lease);
  }

  release(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome> {
    return this.#started().release(holder, manner);
  }

  inspect(key: string): Promise<LockInfo | null> {
    return this.#started().inspect(key);
  }

  forceRelease(key: string): Promise<boolean> {
    return this.#started().forceRelease(key);
  }

  check(): Promise<readonly Finding[]> {
    return Promise.resolve(findings(this.#settings, (name) => this.#member(name).capabilities));
  }

  async stop(): Promise<void> {
    await this.#running?.stop();
  }

  /** Which engine grants, how each is doing, and the latest switches. */
  get state(): FailoverState {
    return this.#started().state;
  }

  /**
   * Makes an engine the one that grants, in mode `strict` for all processes: resolves when they are bound to it, and the
   * locks of the old one end within `window`. It stays until it fails or `switchTo` is called again; the preferred one
   * does not return by itself.
   *
   * @throws LockConfigError for an engine that is not among `engines`
   * @throws LockUnavailableError when it is unknown whether it was switched
   */
  async switchTo(engine: string): Promise<void> {
    if (!this.#settings.engines.includes(engine)) {
      throw new LockConfigError(
        `There is no engine "${engine}": the engines are ${this.#settings.engines.join(', ')}.`,
      );
    }
    await this.#started().switchTo(engine);
  }

  /** They would not fit between the tokens of two epochs, and no lock could be granted: see `EpochTokens`. */
  #refuseWideTokens(): void {
    if (!this.capabilities.fencing) return;
    const { engines } = this.#settings;
    const name = engines.find((engine) => this.#member(engine).capabilities.wideTokens);
    if (name === undefined) return;
    throw new LockConfigError(
      `FailoverProvider of ${engines.join(', ')}: mode 'strict' cannot stand on lock provider "${name}", whose fencing tokens take more than 52 bits, as those of another strict FailoverProvider do, and leave no room for epochs: name the engines of "${name}" in its place.`,
      { provider: name },
    );
  }

  #member(name: string): Member {
    const member = this.#composed().get(name);
    if (member) return member;
    throw new LockConfigError(`FailoverProvider was composed without its member "${name}".`);
  }

  #composed(): ReadonlyMap<string, Member> {
    if (this.#members) return this.#members;
    throw new LockConfigError('A FailoverProvider stands on other lock providers: name them beside it in "providers".');
  }

  #started(): Failover {
    if (this.#running) return this.#running;
    throw new LockConfigError('A FailoverProvider was used before it was started.');
  }
}
