import {
  type AcquireRequest,
  type Finding,
  type Grant,
  type Holder,
  type ProviderContext,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../../api/lock-provider.js';
import { HolderTable } from '../../core/toolkit/holder-table.js';
import { LockUnavailableError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import { type Arena, Contender } from './contender.js';
import { examine } from './doctor.js';
import { Folders } from './folders.js';
import { Guards } from './guards.js';
import { Leftovers } from './leftovers.js';
import { LockPaths } from './lock-path.js';
import { mutex, readWrite, type Recipe } from './recipe.js';
import type { RecordKeeper } from './records.js';
import { Session, type SessionListener } from './session.js';
import { type ClientFactory, isFailure } from './zookeeper-client.js';
import type { ZooKeeperSettings } from './zookeeper-options.js';

// How long a start waits for its session, in ms; a shorter session's time is enough for it.
const START_PATIENCE = 5_000;
// How long a stop waits for the last answers, each for the tidying up and for the end of the session, in ms.
const PATIENCE = 2_000;
/** How long after servers have refused our credentials they are tried again, in ms: one of them may be set up wrongly, for a while. */
const REFUSED_FOR = 5_000;

/** The locks of one process, from `start` to `stop`: one session at a time, and those who hold or wait with it. */
export class Locks implements Arena, RecordKeeper, SessionListener {
  readonly recipe: Recipe;
  readonly folders = new Folders();
  readonly guards = new Guards();
  readonly leftovers = new Leftovers();
  session: Session;
  readonly #paths: LockPaths;
  readonly #contenders = new HolderTable<Contender>();
  #endStart: ((isUp: boolean) => void) | undefined;
  #isStarted = false;
  #isStopping = false;
  #trouble: unknown;
  #retry: object | undefined;

  constructor(
    private readonly context: ProviderContext,
    private readonly settings: ZooKeeperSettings,
    private readonly makeClient: ClientFactory,
  ) {
    this.recipe = settings.recipe === 'mutex' ? mutex : readWrite;
    this.#paths = new LockPaths(settings.root, context.namespace);
    this.session = this.#newSession();
  }

  get clock() {
    return this.context.clock;
  }

  /** @throws LockUnavailableError when there is no session after 5 s, or its time-out; the search goes on. */
  async connect(): Promise<void> {
    let timer: object | undefined;
    const isUp = await new Promise<boolean>((resolve) => {
      this.#endStart = resolve;
      timer = this.clock.setTimer(
        () => {
          resolve(false);
        },
        Math.min(this.settings.sessionTimeout, START_PATIENCE),
        true,
      );
      this.session.open();
    });
    if (timer) this.clock.clearTimer(timer);
    this.#endStart = undefined;
    this.#isStarted = true;
    if (isUp) return;
    const { name } = this.context;
    throw new LockUnavailableError(
      `Lock provider "${name}" cannot reach ZooKeeper: check its connectString, auth and ACLs, and that a quorum is up.`,
      { provider: name, cause: this.#trouble },
    );
  }

  get name(): string {
    return this.context.name;
  }

  pathOf(record: string): string {
    return this.#paths.recordOf(record);
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    let contender = this.#contenders.get(request.holder);
    if (!contender) {
      contender = new Contender(this, request, this.#paths.folderOf(request.key));
      this.#contenders.set(request.holder, contender);
    }
    return contender.acquire(request);
  }

  async renew({ holder }: Grant): Promise<RenewOutcome> {
    return this.#contenders.get(holder)?.renew() ?? 'lost';
  }

  release({ holder }: Holder): Promise<ReleaseOutcome> {
    return this.#contenders.get(holder)?.release() ?? Promise.resolve('lost');
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const { recipe, session } = this;
    const folder = this.#paths.folderOf(key);
    for (;;) {
      const names = await this.#listOf(key);
      const holders = recipe.holdersOf(names);
      const [first] = holders;
      if (first === undefined) return null;
      const stat = await this.#asking(key, session.stat(`${folder}/${first}`));
      // Gone between the two looks.
      if (!stat) continue;
      return {
        key,
        state: 'held',
        mode: recipe.modeOf(first),
        holders: holders.length,
        waiters: names.length - holders.length,
        expiresIn: null,
        fencingToken: stat.createdAt,
      };
    }
  }

  async forceRelease(key: string): Promise<boolean> {
    const folder = this.#paths.folderOf(key);
    const names = await this.#listOf(key);
    const removals = this.recipe.holdersOf(names).map(async (name) => {
      try {
        await this.session.remove(`${folder}/${name}`);
        return true;
      } catch (error) {
        if (isFailure(error, 'no-node')) return false;
        throw this.unavailable(key, error);
      }
    });
    return (await Promise.all(removals)).includes(true);
  }

  check(): Promise<Finding[]> {
    return Promise.resolve(examine(this.settings, this.session));
  }

  async close(): Promise<void> {
    this.#isStopping = true;
    if (this.#retry) this.clock.clearTimer(this.#retry);
    this.#endStart?.(false);
    const { session } = this;
    if (session.isUp) await this.#tidyUp(session);
    await session.close(PATIENCE);
    // Whoever still asks gets an answer.
    await Promise.all(this.#contenders.values().map((contender) => contender.release()));
  }

  // --- what contenders need ---

  newId(): string {
    return this.context.random.id();
  }

  onWaiting(holder: string): void {
    this.context.emit({ type: 'waiting', holder });
  }

  onLost(holder: string, cause: Error): void {
    this.context.emit({ type: 'lost', holder, cause });
  }

  onGone(holder: string): void {
    this.#contenders.delete(holder);
  }

  unavailable(key: string, cause: unknown): LockUnavailableError {
    const { name } = this.context;
    const reason =
      isFailure(cause, 'refused') && cause instanceof Error
        ? `ZooKeeper refuses it (${cause.message})`
        : 'ZooKeeper did not answer';
    return new LockUnavailableError(
      `Lock "${key}" of provider "${name}": ${reason}; check the servers and their log.`,
      {
        key,
        provider: name,
        cause,
      },
    );
  }

  // --- what the session tells ---

  onUp(session: Session): void {
    this.#endStart?.(true);
    // In this order: holds are renewed before anybody asks.
    if (this.#isStarted) this.context.emit({ type: 'recovered' });
    for (const contender of this.#contenders.values()) contender.lookAgain();
    this.onPatrol(session);
  }

  onDown(_session: Session, cause: unknown): void {
    this.#trouble = cause;
    if (!this.#isStopping && this.#isStarted) this.context.emit({ type: 'unavailable', cause });
  }

  onExpired(session: Session): void {
    if (this.#isStopping) return;
    this.#lose(session, new Error('The session of ZooKeeper has expired.'));
    this.#openAnother();
  }

  onRefused(session: Session, cause: Error): void {
    if (this.#isStopping) return;
    this.onDown(session, cause);
    this.#lose(session, cause);
    this.#retry = this.clock.setTimer(() => {
      this.#openAnother();
    }, REFUSED_FOR);
    this.#endStart?.(false);
  }

  onPatrol(session: Session): void {
    void this.leftovers.retry();
    void this.folders.sweep(session, this.clock.now());
  }

  isNeeded(): boolean {
    return this.#contenders.size > 0;
  }

  /** The nodes would go with the session, their folders would not. */
  async #tidyUp(session: Session): Promise<void> {
    let timer: object | undefined;
    const enough = new Promise<void>((resolve) => {
      timer = this.clock.setTimer(resolve, PATIENCE, true);
    });
    const releases = this.#contenders.values().map((contender) => contender.release());
    const tidied = Promise.all(releases).then(() => this.folders.close(session));
    await Promise.race([tidied, enough]);
    if (timer) this.clock.clearTimer(timer);
  }

  #lose(session: Session, cause: Error): void {
    for (const contender of this.#contenders.values()) if (contender.isOf(session)) contender.lose(cause);
  }

  #openAnother(): void {
    this.session = this.#newSession();
    this.session.open();
  }

  #newSession(): Session {
    return new Session(this.makeClient, this.settings.sessionTimeout, this.#paths.sessions, this.clock, this);
  }

  async #listOf(key: string): Promise<readonly string[]> {
    const children = this.session.children(this.#paths.folderOf(key));
    return this.#asking(
      key,
      children.catch((error: unknown) => {
        if (isFailure(error, 'no-node')) return [];
        throw error;
      }),
    );
  }

  async #asking<T>(key: string, answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      throw this.unavailable(key, error);
    }
  }
}
