import type { Clock } from '../../lib/api/clock.js';
import type { BackendContext } from '../../lib/api/lock-provider.js';
import {
  type ClientListener,
  type Creation,
  type NodeKind,
  type NodeStat,
  type NodeValue,
  SocketClient,
} from '../../lib/providers/zookeeper/socket-client.js';
import { type ClientFactory, ZooKeeperBackend } from '../../lib/providers/zookeeper/zookeeper-backend.js';
import { type FailureKind, ZooKeeperFailure } from '../../lib/providers/zookeeper/zookeeper-failure.js';
import { readOptions } from '../../lib/providers/zookeeper/zookeeper-options.js';
import type { FakeClock } from '../../lib/testing/index.js';
import { contextFor } from '../backend-context.js';
import { type DirectBackend, direct, type TestEvent } from '../direct-backend.js';
/** No server is needed: the fake client overrides every request. */
const SETTINGS = readOptions({ connectString: 'nowhere', sessionTimeout: 12_000 });

interface Node {
  readonly owner: bigint;
  readonly createdAt: bigint;
  creations: number;
}

/** A node tree as ZooKeeper keeps it, for states that a real server can't be brought into in time. */
export class FakeZooKeeper {
  readonly nodes = new Map<string, Node>();
  readonly clients: FakeClient[] = [];
  /** The requests received, such as `create /lock/a`. */
  readonly requests: string[] = [];
  /** Called before each request is executed. */
  onRequest: (request: string) => void = () => undefined;
  readonly watches = new Map<string, Set<() => void>>();
  /** Watches on the children of a node. */
  readonly childWatches = new Map<string, Set<() => void>>();
  #zxid = 100n;
  #sessions = 0n;

  /** Returns a client factory for a process that uses this clock. */
  connect(clock: Clock): ClientFactory {
    return (listener) => {
      const client = new FakeClient(this, listener, (this.#sessions += 1n), clock);
      this.clients.push(client);
      return client;
    };
  }

  get client(): FakeClient {
    return this.clients.at(-1)!;
  }

  /** Returns the names of the nodes in a folder. */
  namesIn(folder: string): string[] {
    return [...this.nodes.keys()]
      .filter((path) => path.startsWith(`${folder}/`) && !path.slice(folder.length + 1).includes('/'))
      .map((path) => path.slice(folder.length + 1));
  }

  create(path: string, kind: NodeKind, owner: bigint): Creation {
    const folder = path.slice(0, path.lastIndexOf('/'));
    const parent = this.nodes.get(folder);
    if (folder !== '' && !parent) throw failure('no-node');
    const sequence = kind === 'ephemeral-sequential' ? String(parent?.creations ?? 0).padStart(10, '0') : '';
    if (this.nodes.has(path + sequence)) throw failure('exists');
    const zxid = (this.#zxid += 1n);
    if (parent) parent.creations += 1;
    this.nodes.set(path + sequence, {
      owner: kind === 'persistent' ? 0n : owner,
      createdAt: zxid,
      creations: 0,
    });
    this.notify(this.childWatches, folder);
    return { path: path + sequence, createdAt: zxid };
  }

  /** Returns whether the node existed. */
  remove(path: string): boolean {
    if (!this.nodes.has(path)) return false;
    if (this.namesIn(path).length > 0) throw failure('not-empty');
    this.nodes.delete(path);
    this.#zxid += 1n;
    this.notify(this.watches, path);
    this.notify(this.childWatches, path.slice(0, path.lastIndexOf('/')));
    return true;
  }

  /** Each watch fires once. */
  notify(watches: Map<string, Set<() => void>>, path: string): void {
    const watchers = watches.get(path) ?? [];
    watches.delete(path);
    for (const watcher of watchers) watcher();
  }

  /** The server ends the client's session. */
  endSession(owner: bigint): void {
    for (const [path, node] of [...this.nodes]) if (node.owner === owner) this.remove(path);
  }
}

/** The connection: answers immediately, or keeps requests or replies from arriving. */
export class FakeClient extends SocketClient {
  /**
   * `open`: everything is answered. `silent`: nothing arrives. `deaf`: everything is executed, and nothing answered.
   */
  wire: 'open' | 'silent' | 'deaf' = 'open';
  /** Makes only these operations silent. */
  silentFor: RegExp | undefined;
  reconnects = 0;
  isAbandoned = false;
  /** Requests that did not arrive, or that arrived and are not yet executed by the current server. */
  readonly late: (() => void)[] = [];
  #isOpen = false;
  readonly #open = new Set<{ readonly sentAt: number; readonly fail: (error: ZooKeeperFailure) => void }>();

  constructor(
    private readonly server: FakeZooKeeper,
    readonly session: ClientListener,
    sessionId: bigint,
    private readonly clock: Clock,
  ) {
    super(SETTINGS, contextFor([], { clock }), session);
    this.sessionId = sessionId;
    this.sessionTimeout = SETTINGS.sessionTimeout;
  }

  override get silentSince(): number | undefined {
    const [oldest] = this.#open;
    return oldest && Math.max(oldest.sentAt, this.heardAt);
  }

  override connect(): void {
    queueMicrotask(() => {
      this.return();
    });
  }

  /** The connection breaks. */
  leave(): void {
    this.#isOpen = false;
    for (const { fail } of this.#open) fail(failure('unanswered'));
    this.#open.clear();
    this.tryUntil = this.clock.now() + 2_000;
    this.session.onDisconnected(failure('unanswered'));
  }

  /** The connection is established. */
  return(): void {
    this.#isOpen = true;
    this.tryUntil = undefined;
    this.heardAt = this.clock.now();
    this.session.onConnected();
  }

  /** The connection breaks and is established again. */
  break(): void {
    this.leave();
    this.wire = 'open';
    this.return();
  }

  override create(path: string, kind: NodeKind): Promise<Creation> {
    return this.#ask(`create ${path}`, () => this.server.create(path, kind, this.sessionId), true);
  }

  override children(path: string, onChange?: () => void): Promise<readonly string[]> {
    return this.#ask(`children ${path}`, () => {
      if (!this.server.nodes.has(path)) return [];
      if (onChange) this.server.childWatches.set(path, (this.server.childWatches.get(path) ?? new Set()).add(onChange));
      return this.server.namesIn(path);
    });
  }

  override stat(path: string): Promise<NodeStat | null> {
    return this.#ask(`stat ${path}`, () => this.server.nodes.get(path) ?? null);
  }

  override read(path: string, onChange?: () => void): Promise<NodeValue | null> {
    return this.#ask(`read ${path}`, () => {
      const node = this.server.nodes.get(path);
      if (!node) return null;
      if (onChange) this.server.watches.set(path, (this.server.watches.get(path) ?? new Set()).add(onChange));
      return { ...node, data: Buffer.alloc(0), version: 0 };
    });
  }

  override unwatch(path: string, onChange: () => void): void {
    this.server.watches.get(path)?.delete(onChange);
    this.server.childWatches.get(path)?.delete(onChange);
  }

  override write(path: string): Promise<number | null> {
    return this.#ask(
      `write ${path}`,
      () => {
        if (!this.server.nodes.has(path)) return null;
        this.server.notify(this.server.watches, path);
        return 0;
      },
      true,
    );
  }

  override remove(path: string): Promise<boolean> {
    return this.#ask(`remove ${path}`, () => this.server.remove(path), true);
  }

  override reconnect(): void {
    this.reconnects += 1;
    if (!this.#isOpen) this.tryUntil = this.clock.now() + 2_000;
  }

  override async close(): Promise<void> {
    this.server.endSession(this.sessionId);
  }

  override abandon(): void {
    this.isAbandoned = true;
    this.#isOpen = false;
    for (const { fail } of this.#open) fail(failure('unanswered'));
  }

  #ask<T>(request: string, execute: () => T, isWrite = false): Promise<T> {
    if (!this.#isOpen) return Promise.reject(failure('unanswered'));
    this.server.requests.push(request);
    const sentAt = this.clock.now();
    this.session.onSent(sentAt, isWrite);
    const wire = this.silentFor?.test(request) ? 'silent' : this.wire;
    return new Promise((resolve, reject) => {
      const open = { sentAt, fail: reject };
      this.#open.add(open);
      if (wire === 'silent') {
        this.late.push(() => {
          execute();
        });
        return;
      }
      const isAnswered = () => {
        if (wire === 'deaf') return false;
        this.heardAt = this.clock.now();
        return this.#open.delete(open);
      };
      try {
        this.server.onRequest(request);
        const answer = execute();
        if (!isAnswered()) return;
        if (isWrite) this.session.onWritten(sentAt);
        resolve(answer);
      } catch (error) {
        if (isAnswered()) reject(error);
      }
    });
  }
}

/** Starts a process that is connected to this server. Its clock stands still until the test advances it. */
export async function startOn(
  server: FakeZooKeeper,
  parts: Partial<BackendContext> & { readonly clock: FakeClock },
  events: TestEvent[] = [],
): Promise<DirectBackend<ZooKeeperBackend>> {
  const backend = direct(
    new ZooKeeperBackend(contextFor(events, parts), SETTINGS, server.connect(parts.clock)),
    events,
  );
  const connected = backend.connect();
  await parts.clock.advance(0);
  await connected;
  return backend;
}

function failure(kind: FailureKind): ZooKeeperFailure {
  return new ZooKeeperFailure(kind, kind);
}
