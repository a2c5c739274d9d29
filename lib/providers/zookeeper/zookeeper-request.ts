import type { AcquireRequest, Grant, ReleaseOutcome, RenewOutcome } from '../../api/lock-provider.js';
import { firstToken } from '../../core/toolkit/fencing-token.js';
import { instanceIdOf } from './node-content.js';
import type { RequestContext } from './request-context.js';
import { LockNode } from './lock-node.js';
import { folderContentFor } from './lock-path.js';
import { LAST_SEQUENCE, type Place, sequenceOf } from './recipe.js';
import type { Session } from './session.js';
import { isFailure, noConnection, ZooKeeperFailure } from './zookeeper-client.js';

/**
 * How often a limited waiter looks at the queue unasked, in ms. A process that was paused, or cut off, when it was admitted does not wake the
 * waiter behind it, for which there may be room.
 */
const LOOK_EVERY = 1_000;

/** The bytes of a node's path besides its folder and its marker, in the transaction that ends the session: `/_c_<uuid>-`, 10 digits, the length. */
const REST_OF_PATH = 55;

/** The outcome of one look at the queue. */
type Step = Grant | 'behind' | 'again';

/** One request for one lock: its node in the queue, its wait for the node before it, its hold. */
export class ZooKeeperRequest {
  /** How many bytes its node adds to the transaction that ends the session. */
  readonly pathBytes: number;
  readonly #marker: string;
  #node: LockNode | undefined;
  #grant: Grant | undefined;
  #wasHeld = false;
  #isQueued = false;
  #watchesHolder = false;
  #hasLeft = false;
  #acquiring: Promise<unknown> = Promise.resolve();
  #wake: () => void = () => undefined;
  #unwatch: () => void = () => undefined;
  /** The connection on which the watch on our own node was set. */
  #guardedOn = 0;

  /** @param onGone called when nothing of it is left on the servers */
  constructor(
    private readonly context: RequestContext,
    private readonly request: AcquireRequest,
    private readonly folder: string,
    private readonly onGone: () => void,
  ) {
    this.#marker = context.recipe.markerOf(request.mode, request.limited);
    this.pathBytes = Buffer.byteLength(folder) + this.#marker.length + REST_OF_PATH;
  }

  /** Whether its hold, or its node in the queue, was lost with that session. */
  isOf(session: Session): boolean {
    return this.#node?.session === session;
  }

  /** The request waits for the only holder, whose departure it would have noticed. */
  get watchesHolder(): boolean {
    return this.#watchesHolder && this.context.session.isUp;
  }

  /** Asks for the lock. Called again after a failure, it goes on with the node that it has. */
  acquire(): Promise<Grant | 'busy'> {
    const { request } = this;
    return new Promise((resolve, reject) => {
      let signal: AbortSignal | undefined;
      const leave = () => {
        this.#hasLeft = true;
        if (this.context.session.isUp) resolve('busy');
        else reject(this.context.unavailable(request.key, noConnection()));
        this.#wake();
      };
      // Not before we queue: until then it is not known whether the lock is busy, the steps are quick, and making the signal is expensive.
      const listen = () => {
        if (signal) return;
        signal = request.signal;
        if (signal.aborted) leave();
        else signal.addEventListener('abort', leave, { once: true });
      };
      if (this.#isQueued) listen();
      const acquiring = this.#queueUntilHeld(request.wait > 0, listen).finally(() => {
        signal?.removeEventListener('abort', leave);
      });
      this.#acquiring = acquiring.catch(() => undefined);
      acquiring.then(resolve, reject);
    });
  }

  /** There is another connection or another session, so the wait may be over. */
  lookAgain(): void {
    this.#wake();
  }

  /** Whether the node and the session still exist. */
  async renew(): Promise<RenewOutcome> {
    const node = this.#node;
    if (!this.#grant || !node || node.session.isOver) return 'lost';
    const isGuarded = this.#guardedOn === node.session.connection;
    const guard = isGuarded ? undefined : this.context.guards.add(this.#guard);
    const heartbeat = node.session.heartbeat().then(
      () => true,
      () => false,
    );
    const [isAlive, isThere = true] = await Promise.all([heartbeat, guard?.catch(() => undefined)]);
    if (!isThere) return 'lost';
    return isAlive ? { validUntil: node.session.validUntil } : 'unknown';
  }

  /** The session is over, or the node was removed by somebody else. */
  lose(cause: Error): void {
    if (!this.#grant) return;
    this.#grant = undefined;
    this.request.lost(cause);
  }

  async release(): Promise<ReleaseOutcome> {
    this.#wasHeld ||= this.#grant !== undefined;
    this.#hasLeft = true;
    this.#grant = undefined;
    this.#wake();
    await this.#acquiring;
    this.#grant = undefined;
    const outcome = await this.#remove();
    return outcome === 'released' && !this.#wasHeld ? 'lost' : outcome;
  }

  async #queueUntilHeld(mayWait: boolean, onQueued: () => void): Promise<Grant | 'busy'> {
    for (;;) {
      this.#unwatch();
      this.#watchesHolder = false;
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      let step: Step;
      try {
        step = await this.#step();
      } catch (error) {
        // A node in the queue outlives a connection, but no session. A request that has none yet fails, and may be repeated.
        const isQueued = this.#isQueued && !this.context.session.isOver;
        if (!isQueued || !isFailure(error, 'unanswered')) throw this.context.unavailable(this.request.key, error);
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
        const { clock } = this.context.backend;
        const timer = this.request.limited && clock.setTimer(this.#wake, LOOK_EVERY);
        await woken;
        if (timer) clock.clearTimer(timer);
      }
    }
  }

  /** Looks at the queue, from a node of our own in it. */
  async #step(): Promise<Step> {
    const { session, recipe } = this.context;
    if (!session.isUp) throw noConnection();
    if (this.#grant) return { ...this.#grant, validUntil: session.validUntil };
    const lookedAt = this.context.backend.clock.now();
    const names = await this.#enter(session);
    const node = this.#node;
    if (!node || !names.includes(node.name)) {
      // Removed by somebody else, and the folder perhaps with it.
      this.#node = undefined;
      return 'again';
    }
    if (isWornOut(node.name)) return this.#replaceFolder(session, node);
    const place = recipe.placeOf(node.name, names);
    this.#saw(place, lookedAt);
    return place.isHeld ? this.#hold(session, node, place) : this.#watch(session, node, place);
  }

  async #enter(session: Session): Promise<readonly string[]> {
    const { context, request, folder } = this;
    const known = this.#node?.session === session ? this.#node : undefined;
    if (known?.isThere) return (await known.find()) ?? [];
    if (known?.isUncertain) {
      const found = await known.find();
      if (found) return found;
    }
    const prefix = `_c_${uuid(context.backend.random.id())}-${this.#marker}`;
    const content = folderContentFor(folder, request.key);
    this.#node = new LockNode(session, context.folders, folder, prefix, context.backend.clock, content);
    return this.#node.enter();
  }

  /** Waits for what admits us, unless it has happened meanwhile. */
  async #watch(session: Session, node: LockNode, { behind, holders = [] }: Place): Promise<Step> {
    const { folder, context } = this;
    const path = behind === undefined ? folder : `${folder}/${behind}`;
    const wake = this.#wake;
    this.#unwatch = () => {
      session.client.unwatch(path, wake);
    };
    if (!this.request.limited) {
      if (!(await session.client.read(path, wake))) return 'again';
      this.#watchesHolder = behind === holders[0] && holders.length === 1;
      return 'behind';
    }
    // The node before ours may enter as well as go, and has notified nobody if we did not watch it yet. So the names are read again, after
    // the watch is set: the server answers the requests of a session in their order.
    const watching = behind === undefined ? undefined : session.client.read(path, wake);
    const [names] = await Promise.all([node.find(watching ? undefined : wake), watching]);
    if (!names?.includes(node.name)) return 'again';
    const now = context.recipe.placeOf(node.name, names);
    return !now.isHeld && now.behind === behind ? 'behind' : 'again';
  }

  /** Notes the holder that keeps it out. Since when that holds is not recorded: the time of its node is that of its question. */
  #saw({ holders = [] }: Place, lookedAt: number): void {
    const { context, request, folder } = this;
    const [first] = holders;
    const instance = first !== undefined && holders.length === 1 ? instanceIdOf(first) : null;
    const seen = { holders: holders.length, instance, heldFor: null, nameAt: `${folder}/${first ?? ''}` };
    context.holders.saw(request, first === undefined ? undefined : seen, lookedAt);
  }

  async #hold(session: Session, node: LockNode, { first, isAwaited }: Place): Promise<Step> {
    let fencingToken = node.createdAt;
    if (first !== node.name) {
      const stat = await session.client.stat(`${this.folder}/${first}`);
      if (!stat) return 'again';
      // Not above our own, which is below those of all that come later: the first of the readers may have come after us, as the read
      // lock that a writer of Curator 5.5 takes before it releases its write lock (CURATOR-621).
      if (stat.createdAt < fencingToken) fencingToken = stat.createdAt;
    }
    if (isAwaited) {
      if (!(await node.touch())) return 'again';
    } else if (session.validUntil - this.context.backend.clock.now() < session.lease / 2) {
      await session.heartbeat();
    }
    if (session.isOver) return 'again';
    const { validUntil, lease } = session;
    this.#grant = { fencingToken: firstToken(this.request.mode, fencingToken), validUntil, lease };
    return this.#grant;
  }

  /** The sequence numbers of the folder come to an end: an empty folder is removed and created again, and begins at 0. */
  async #replaceFolder(session: Session, node: LockNode): Promise<Step> {
    await node.remove();
    this.#node = undefined;
    try {
      await session.client.remove(this.folder);
    } catch (error) {
      if (isFailure(error, 'not-empty')) {
        throw new ZooKeeperFailure('refused', 'the sequence numbers of its queue are used up until the queue is empty');
      }
      if (!isFailure(error, 'no-node')) throw error;
    }
    return 'again';
  }

  #queued(): void {
    if (this.#isQueued) return;
    this.#isQueued = true;
    this.request.waits();
  }

  /** Answers whether the node of the hold exists, and loses the hold if not. From then on its removal is noticed when it happens. */
  readonly #guard = async (): Promise<boolean> => {
    const node = this.#node;
    if (!this.#grant || !node) return true;
    const { connection } = node.session;
    if (this.#guardedOn === connection) return true;
    const stat = await node.session.client.read(node.path, () => {
      this.#guardedOn = 0;
      // The node may have changed and not gone, if somebody wrote into it.
      this.#guard().catch(() => undefined);
    });
    if (stat) this.#guardedOn = connection;
    else this.lose(new Error('Its node was removed from ZooKeeper.'));
    return stat !== null;
  };

  /** Takes our node out of the queue: now, or in the background until it is done. */
  async #remove(): Promise<ReleaseOutcome> {
    this.#unwatch();
    const { context, onGone } = this;
    const node = this.#node;
    if (!node || node.session.isOver) {
      // The node went with its session. Its folder did not, and nobody else looks after that.
      if (node) context.folders.use(this.folder, context.backend.clock.now());
      onGone();
      return 'lost';
    }
    try {
      const outcome = await node.remove();
      onGone();
      return outcome === 'removed' ? 'released' : 'lost';
    } catch (error) {
      context.pendingRemovals.add(node, onGone, error);
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
