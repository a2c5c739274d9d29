import type { AcquireRequest, Grant, ReleaseOutcome, RenewOutcome } from '../../api/lock-provider.js';
import type { LockError } from '../../api/errors.js';
import { firstToken } from '../../core/toolkit/fencing-token.js';
import { instanceIdOf } from './node-content.js';
import type { RequestContext } from './request-context.js';
import { LockNode } from './lock-node.js';
import { folderContentFor } from './lock-path.js';
import { LAST_SEQUENCE, type QueuePosition, sequenceOf } from './recipe.js';
import type { Session } from './session.js';
import { isFailure, noConnection, ZooKeeperFailure } from './zookeeper-failure.js';

/**
 * How often a waiter for a limited lock polls the queue. A holder that was paused or cut off when it was admitted does
 * not wake the waiter behind it, even if that waiter would fit.
 */
const POLL_INTERVAL_MS = 1_000;

/** The size of a node's path, excluding its folder and marker: `/_c_<uuid>-`, 10 digits, and the length prefix. */
const REST_OF_PATH = 55;

/** The outcome of evaluating the queue. */
type Step = Grant | 'behind' | 'again';

/** One request for one lock: its node in the queue, the wait for the node before it, and the hold. */
export class ZooKeeperRequest {
  /** How many bytes the node adds to the transaction that ends the session. */
  readonly pathBytes: number;
  readonly #marker: string;
  #node: LockNode | undefined;
  #grant: Grant | undefined;
  #wasHeld = false;
  #watchesHolder = false;
  #hasLeft = false;
  #acquiring: Promise<unknown> = Promise.resolve();
  #wake: () => void = () => undefined;
  #unwatch: () => void = () => undefined;
  /** The connection on which we set a watch on our own node. */
  #guardedOn = 0;

  /** @param onGone called when nothing is left on the servers */
  constructor(
    private readonly context: RequestContext,
    private readonly request: AcquireRequest,
    private readonly folder: string,
    private readonly onGone: () => void,
  ) {
    this.#marker = context.recipe.markerOf(request.mode, request.limited);
    this.pathBytes = Buffer.byteLength(folder) + this.#marker.length + REST_OF_PATH;
  }

  /** Whether the request is watching the only holder, so it would notice if the holder left. */
  get watchesHolder(): boolean {
    return this.#watchesHolder && this.context.session.isUp;
  }

  /** Requests the lock. A call after a failure continues with the existing node. */
  acquire(): Promise<Grant | 'busy'> {
    const { request } = this;
    return new Promise((resolve, reject) => {
      let signal: AbortSignal | undefined;
      const leave = () => {
        this.#hasLeft = true;
        if (this.context.session.isUp) resolve('busy');
        else reject(this.#unavailable(noConnection()));
        this.#wake();
      };
      // Listens only once the request is queued: creating a signal is expensive, a free lock doesn't need one, and the
      // steps before that are short.
      const listen = () => {
        if (signal) return;
        signal = request.signal;
        if (signal.aborted) leave();
        else signal.addEventListener('abort', leave, { once: true });
      };
      const acquiring = this.#queueUntilHeld(request.wait > 0, listen).finally(() => {
        signal?.removeEventListener('abort', leave);
      });
      this.#acquiring = acquiring.catch(() => undefined);
      acquiring.then(resolve, reject);
    });
  }

  /** Called after a reconnect or in a new session, because the wait may have ended. */
  recheck(): void {
    this.#wake();
  }

  /** Checks that the node and the session still exist. */
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
    return isAlive ? { validUntil: node.session.lifetime.validUntil } : 'unknown';
  }

  /** Called when the session has ended or another client has removed the node. */
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
    let isQueued = false;
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
        // A queued node survives a lost connection, but not the end of the session. A request that isn't queued yet
        // fails and can be repeated.
        if (!isQueued || this.context.session.isOver || !isFailure(error, 'unanswered')) throw this.#unavailable(error);
        step = 'behind';
      }
      const isAnswered = this.#hasLeft && isQueued;
      if (typeof step === 'object' && !isAnswered) return step;
      if (isAnswered || (step === 'behind' && (this.#hasLeft || !mayWait))) {
        await this.#remove();
        return 'busy';
      }
      if (step === 'behind') {
        if (!isQueued) this.request.waits();
        isQueued = true;
        onQueued();
        const { clock } = this.context.backend;
        const timer = this.request.limited && clock.setTimer(this.#wake, POLL_INTERVAL_MS);
        await woken;
        if (timer) clock.clearTimer(timer);
      }
    }
  }

  /** Creates our node if necessary, and evaluates the queue. */
  async #step(): Promise<Step> {
    const { session, recipe } = this.context;
    if (!session.isUp) throw noConnection();
    if (this.#grant) return { ...this.#grant, validUntil: session.lifetime.validUntil };
    const requestedAt = this.context.backend.clock.now();
    const names = await this.#enter(session);
    const node = this.#node;
    if (!node || !names.includes(node.name)) {
      // Removed by another client, perhaps along with the folder.
      this.#node = undefined;
      return 'again';
    }
    if (isWornOut(node.name)) return this.#replaceFolder(session, node);
    const position = recipe.positionOf(node.name, names);
    this.#recordHolder(position, requestedAt);
    return position.isHeld ? this.#hold(session, node, position) : this.#watch(session, node, position);
  }

  async #enter(session: Session): Promise<readonly string[]> {
    const { context, request, folder } = this;
    const known = this.#node?.session === session ? this.#node : undefined;
    if (known?.isThere || known?.isUncertain) {
      const found = await known.find();
      if (found) return found;
    }
    const prefix = `_c_${uuid(context.backend.random.id())}-${this.#marker}`;
    const content = folderContentFor(folder, request.key);
    this.#node = new LockNode(session, context.folders, folder, prefix, context.backend.clock, content);
    return this.#node.enter();
  }

  /** Watches for the change that may admit us, unless it has already happened. */
  async #watch(session: Session, node: LockNode, { behind, holders = [] }: QueuePosition): Promise<Step> {
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
    // The node before ours may leave or become a holder. If it did so before we watched it, we weren't notified, so
    // list the names again after the watch is set: the server processes a session's requests in order.
    const watching = behind === undefined ? undefined : session.client.read(path, wake);
    const [names] = await Promise.all([node.find(watching ? undefined : wake), watching]);
    if (!names?.includes(node.name)) return 'again';
    const now = context.recipe.positionOf(node.name, names);
    return !now.isHeld && now.behind === behind ? 'behind' : 'again';
  }

  /** Records the holder that blocks us. We can't tell when it got the lock: its node contains only its request time. */
  #recordHolder({ holders = [] }: QueuePosition, requestedAt: number): void {
    const { context, request, folder } = this;
    const [first] = holders;
    const instance = first !== undefined && holders.length === 1 ? instanceIdOf(first) : null;
    const seen = { holders: holders.length, instance, heldFor: null, nameAt: `${folder}/${first ?? ''}` };
    context.holders.saw(request, first === undefined ? undefined : seen, requestedAt);
  }

  async #hold(session: Session, node: LockNode, { first, isAwaited }: QueuePosition): Promise<Step> {
    let fencingToken = node.createdAt;
    if (first !== node.name) {
      const stat = await session.client.stat(`${this.folder}/${first}`);
      if (!stat) return 'again';
      // Never use a token higher than our own, which is lower than all later ones. The first reader may have arrived
      // after us: a writer in Curator 5.5 takes a read lock before it releases its write lock (CURATOR-621).
      if (stat.createdAt < fencingToken) fencingToken = stat.createdAt;
    }
    if (isAwaited) {
      // Triggers the watches on the node.
      if ((await session.client.write(node.path)) === null) return 'again';
    } else if (session.lifetime.validUntil - this.context.backend.clock.now() < session.lifetime.lease / 2) {
      await session.heartbeat();
    }
    if (session.isOver) return 'again';
    const { validUntil, lease } = session.lifetime;
    this.#grant = { fencingToken: firstToken(this.request.mode, fencingToken), validUntil, lease };
    return this.#grant;
  }

  /** Recreates the folder when its sequence numbers run out, so that they restart at 0. */
  async #replaceFolder(session: Session, node: LockNode): Promise<Step> {
    await node.remove();
    this.#node = undefined;
    await session.client.remove(this.folder).catch((error: unknown) => {
      if (!isFailure(error, 'not-empty')) throw error;
      throw new ZooKeeperFailure('refused', 'the queue is out of sequence numbers, which restart once it is empty');
    });
    return 'again';
  }

  /** Checks that our node exists; if it doesn't, the hold is lost. After that, a watch reports its removal. */
  readonly #guard = async (): Promise<boolean> => {
    const node = this.#node;
    if (!this.#grant || !node) return true;
    const { connection } = node.session;
    if (this.#guardedOn === connection) return true;
    const stat = await node.session.client.read(node.path, () => {
      this.#guardedOn = 0;
      // The node may have been written to, not removed.
      this.#guard().catch(() => undefined);
    });
    if (stat) this.#guardedOn = connection;
    else this.lose(new Error('The lock node was removed from ZooKeeper.'));
    return stat !== null;
  };

  #unavailable(cause: unknown): LockError {
    const { key } = this.request;
    return this.context.unavailable(`Lock "${key}"`, cause, key);
  }

  /** Removes our node from the queue, retrying in the background if that fails. */
  async #remove(): Promise<ReleaseOutcome> {
    this.#unwatch();
    const { context, onGone } = this;
    const node = this.#node;
    if (!node || node.session.isOver) {
      // The node disappeared with its session, but its folder remains, and no other process will remove it.
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
