import type { AcquireRequest, Grant, ReleaseOutcome, RenewOutcome } from '../../api/lock-provider.js';
import type { Clock } from '../../api/clock.js';
import type { Folders } from './folders.js';
import type { Guards } from './guards.js';
import type { Leftovers } from './leftovers.js';
import { LockNode } from './lock-node.js';
import { LAST_SEQUENCE, type Recipe, sequenceOf } from './recipe.js';
import { noConnection, type Session } from './session.js';
import { isFailure, ZooKeeperFailure } from './zookeeper-client.js';

/** Where contenders for locks meet. */
export interface Arena {
  readonly clock: Clock;
  readonly recipe: Recipe;
  readonly folders: Folders;
  readonly guards: Guards;
  readonly leftovers: Leftovers;
  /** The one of now. */
  readonly session: Session;
  newId(): string;
  onWaiting(holder: string): void;
  onLost(holder: string, cause: Error): void;
  /** The contender is done. */
  onGone(holder: string): void;
  /** The error for a caller who was not answered. */
  unavailable(key: string, cause: unknown): Error;
}

/** What one look at the queue brings. */
type Step = Grant | 'behind' | 'again';

/** One attempt to hold one lock: its node in the queue, its wait for the one before it, its hold. */
export class Contender {
  #node: LockNode | undefined;
  #grant: Grant | undefined;
  #isQueued = false;
  #hasLeft = false;
  #asking: Promise<unknown> = Promise.resolve();
  #wake: () => void = () => undefined;
  #unwatch: () => void = () => undefined;
  /** On which connection the watch on our own node was set. */
  #guardedOn = 0;

  constructor(
    private readonly arena: Arena,
    private readonly request: AcquireRequest,
    private readonly folder: string,
  ) {}

  /** Whether its hold, or its place in the queue, was lost with that session. */
  isOf(session: Session): boolean {
    return this.#node?.session === session;
  }

  /** Asks; asked again after a failure, it goes on with the node that it has. */
  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    return new Promise((resolve, reject) => {
      let signal: AbortSignal | undefined;
      const leave = () => {
        this.#hasLeft = true;
        if (this.arena.session.isUp) resolve('busy');
        else reject(this.arena.unavailable(request.key, noConnection()));
        this.#wake();
      };
      // Not before we queue: until then nobody knows whether the lock is busy, the steps are quick, and making the signal is dear.
      const listen = () => {
        if (signal) return;
        signal = request.signal;
        if (signal.aborted) leave();
        else signal.addEventListener('abort', leave, { once: true });
      };
      if (this.#isQueued) listen();
      const asking = this.#compete(request.wait > 0, listen).finally(() => {
        signal?.removeEventListener('abort', leave);
      });
      this.#asking = asking.catch(() => undefined);
      asking.then(resolve, reject);
    });
  }

  /** The connection, or the session, is another one: whatever was waited for may be over. */
  lookAgain(): void {
    this.#wake();
  }

  /** Whether the node and the session are still there. */
  async renew(): Promise<RenewOutcome> {
    const node = this.#node;
    if (!this.#grant || !node || node.session.isOver) return 'lost';
    const isGuarded = this.#guardedOn === node.session.connection;
    const look = isGuarded ? undefined : this.arena.guards.add(this.#look);
    const beat = node.session.heartbeat().then(
      () => true,
      () => false,
    );
    const [isAlive, isThere = true] = await Promise.all([beat, look?.catch(() => undefined)]);
    if (!isThere) return 'lost';
    return isAlive ? { validUntil: node.session.validUntil } : 'unknown';
  }

  /** The session is over, or the node was removed by somebody. */
  lose(cause: Error): void {
    if (!this.#grant) return;
    this.#grant = undefined;
    this.arena.onLost(this.request.holder, cause);
  }

  async release(): Promise<ReleaseOutcome> {
    const wasHeld = this.#grant !== undefined;
    this.#hasLeft = true;
    this.#grant = undefined;
    this.#wake();
    await this.#asking;
    this.#grant = undefined;
    const outcome = await this.#remove();
    return outcome === 'released' && !wasHeld ? 'lost' : outcome;
  }

  async #compete(mayWait: boolean, onQueued: () => void): Promise<Grant | 'busy'> {
    for (;;) {
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      let step: Step;
      try {
        step = await this.#step();
      } catch (error) {
        // A place in the queue outlives a connection. Who has none yet is told, and may ask again.
        if (!this.#isQueued || !isFailure(error, 'unanswered')) throw this.arena.unavailable(this.request.key, error);
        step = 'behind';
      }
      const isAnswered = this.#hasLeft && this.#isQueued;
      if (typeof step === 'object' && !isAnswered) return step;
      if (isAnswered || (step === 'behind' && (this.#hasLeft || !mayWait))) {
        await this.#remove();
        return 'busy';
      }
      if (step === 'behind') {
        this.#queued();
        onQueued();
        await woken;
        this.#unwatch();
      }
    }
  }

  /** Looks at the queue, from a node of our own in it. */
  async #step(): Promise<Step> {
    const { session, recipe } = this.arena;
    if (!session.isUp) throw noConnection();
    if (this.#grant) return { ...this.#grant, validUntil: session.validUntil };
    const names = await this.#enter(session);
    const node = this.#node;
    if (!node || !names.includes(node.name)) {
      // Removed by somebody, and the folder perhaps with it.
      this.#node = undefined;
      return 'again';
    }
    if (isWornOut(node.name)) return this.#renewFolder(session, node);
    const place = recipe.placeOf(node.name, names);
    return place.behind === undefined ? this.#hold(session, node, place.first) : this.#watch(session, place.behind);
  }

  async #enter(session: Session): Promise<readonly string[]> {
    const { arena, request, folder } = this;
    const known = this.#node?.session === session ? this.#node : undefined;
    if (known?.isThere) return (await known.find()) ?? [];
    if (known?.isUncertain) {
      const found = await known.find();
      if (found) return found;
    }
    const prefix = `_c_${uuid(arena.newId())}-${arena.recipe.markerOf(request.mode)}`;
    this.#node = new LockNode(session, arena.folders, folder, prefix, () => arena.clock.now());
    return this.#node.enter();
  }

  /** Waits for the one before us, unless it has gone meanwhile. */
  async #watch(session: Session, before: string): Promise<Step> {
    const path = `${this.folder}/${before}`;
    const wake = this.#wake;
    this.#unwatch = () => {
      session.unwatch(path, wake);
    };
    return (await session.watch(path, wake)) ? 'behind' : 'again';
  }

  async #hold(session: Session, node: LockNode, first: string): Promise<Step> {
    const { clock } = this.arena;
    let fencingToken = node.createdAt;
    if (first !== node.name) {
      const stat = await session.stat(`${this.folder}/${first}`);
      if (!stat) return 'again';
      // Not above our own, which is below those of all who come later: the first of the readers may have come after us, as the read
      // lock that a writer of Curator 5.5 takes before it gives its own back (CURATOR-621).
      if (stat.createdAt < fencingToken) fencingToken = stat.createdAt;
    }
    if (session.validUntil - clock.now() < session.lease / 2) await session.heartbeat();
    if (session.isOver) return 'again';
    const { key, holder, mode } = this.request;
    this.#grant = { key, holder, mode, fencingToken, validUntil: session.validUntil, lease: session.lease };
    return this.#grant;
  }

  /** Its numbers come to an end: an empty folder is made anew, and begins at 0. */
  async #renewFolder(session: Session, node: LockNode): Promise<Step> {
    await node.remove();
    this.#node = undefined;
    try {
      await session.remove(this.folder);
    } catch (error) {
      if (isFailure(error, 'not-empty')) {
        throw new ZooKeeperFailure(
          'refused',
          'the sequence numbers of its queue are used up, until nobody stands in it',
        );
      }
      if (!isFailure(error, 'no-node')) throw error;
    }
    return 'again';
  }

  #queued(): void {
    if (this.#isQueued) return;
    this.#isQueued = true;
    this.arena.onWaiting(this.request.holder);
  }

  /** Answers whether the node of the hold is there, and loses the hold if not. From then on its removal is noticed when it happens. */
  readonly #look = async (): Promise<boolean> => {
    const node = this.#node;
    if (!this.#grant || !node) return true;
    const { connection } = node.session;
    if (this.#guardedOn === connection) return true;
    const stat = await node.session.watch(node.path, () => {
      this.#guardedOn = 0;
      // Changed, not gone, if somebody wrote into it.
      this.#look().catch(() => undefined);
    });
    if (stat) this.#guardedOn = connection;
    else this.lose(new Error('Its node was removed from ZooKeeper.'));
    return stat !== null;
  };

  /** Takes our node out of the queue: now, or in the background until it is done. */
  async #remove(): Promise<ReleaseOutcome> {
    this.#unwatch();
    const { arena } = this;
    const node = this.#node;
    const done = () => {
      arena.onGone(this.request.holder);
    };
    if (!node || node.session.isOver) {
      // The node went with its session, and nobody else looks after the folder.
      if (node) arena.folders.use(this.folder, arena.clock.now());
      done();
      return 'lost';
    }
    try {
      const outcome = await node.remove();
      done();
      return outcome === 'removed' ? 'released' : 'lost';
    } catch {
      arena.leftovers.add(node, done);
      return 'unknown';
    }
  }
}

function isWornOut(name: string): boolean {
  const sequence = sequenceOf(name);
  return sequence >= LAST_SEQUENCE || sequence < 0;
}

function uuid(id: string): string {
  return id.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}
