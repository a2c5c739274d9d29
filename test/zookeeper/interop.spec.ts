import { jest } from '@jest/globals';
import { LockManager } from '../../lib/core/lock-manager.js';
import type { Lock } from '../../lib/api/lock.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { ZooKeeperLockProvider, type ZooKeeperLockProviderOptions } from '../../lib/providers/zookeeper/index.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { until } from '../until.js';
import { ZooKeeperAdmin } from './zookeeper-admin.js';
import { describeUnless } from '../unless.js';
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { end } from '../servers/server-process.mjs';

/** Debian installs Java's libraries here, and Python's where only its own interpreter looks. */
const JARS = '/usr/share/java';
const PYTHON = '/usr/bin/python3';
const KAZOO = '/usr/lib/python3/dist-packages/kazoo';
const CURATOR = ['curator-recipes', 'curator-framework', 'curator-client', 'zookeeper', 'guava', 'slf4j-simple'];

/** A program in another language that acquires locks on command. */
interface Peer {
  /** Creates another lock owner in the program. */
  owner(): Owner;
  stop(): Promise<void>;
}

interface Owner {
  /**
   * Resolves to whether it acquires the lock of this kind on `path` within `wait` ms. The programs define the kinds.
   */
  acquire(kind: string, path: string, wait?: number): Promise<boolean>;
  release(kind: string, path: string): Promise<void>;
}

function startCurator(connectString: string): Promise<Peer> {
  const classpath = CURATOR.map((name) => join(JARS, `${name}.jar`)).join(':');
  const source = join(import.meta.dirname, 'interop/CuratorPeer.java');
  // Java compiles a single source file at startup.
  return start('java', [
    ...['-Xmx64m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Dorg.slf4j.simpleLogger.defaultLogLevel=error'],
    ...['-cp', classpath, source, connectString],
  ]);
}

function startKazoo(connectString: string): Promise<Peer> {
  return start(PYTHON, [join(import.meta.dirname, 'interop/kazoo_peer.py'), connectString]);
}

async function start(program: string, args: readonly string[]): Promise<Peer> {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const onExit = () => child.kill('SIGKILL');
  process.once('exit', onExit);
  const answered = new Map<string, (answer: string) => void>();
  const ready = new Promise<void>((resolve, reject) => {
    createInterface(child.stdout).on('line', (line) => {
      if (line === 'ready') resolve();
      const [ticket = '', ...rest] = line.split(' ');
      answered.get(ticket)?.(rest.join(' '));
    });
    child.once('error', reject);
    child.once('exit', (code, signal) => {
      process.off('exit', onExit);
      reject(new Error(`${program} ended (${code ?? signal}).`));
      for (const answer of answered.values()) answer('error: the program has ended');
    });
  });
  await ready;
  let tickets = 0;
  return {
    owner() {
      tickets += 1;
      return owner(child, String(tickets), answered);
    },
    stop: () => end(child, 'SIGKILL'),
  };
}

function owner(child: ChildProcess, ticket: string, answered: Map<string, (answer: string) => void>): Owner {
  const command = async (words: string): Promise<string> => {
    const answer = new Promise<string>((resolve) => answered.set(ticket, resolve));
    child.stdin!.write(`${ticket} ${words}\n`);
    const text = await answer;
    if (text.startsWith('error')) throw new Error(`${words}: ${text}`);
    return text;
  };
  return {
    acquire: async (kind, path, wait = 0) => (await command(`acquire ${kind} ${path} ${wait}`)) === 'held',
    async release(kind, path) {
      await command(`release ${kind} ${path}`);
    },
  };
}

/** Our kinds that are not exclusive. */
const OPTIONS: Record<string, LockOptions> = { read: { mode: 'shared' }, limited: { limit: 2 } };
/** The longest wait of an owner, in ms. Three languages share a busy machine. */
const WAIT = 60_000;
jest.setTimeout(120_000);
const NEEDED = [...CURATOR.map((name) => join(JARS, `${name}.jar`)), '/usr/bin/javac', PYTHON, KAZOO];
const missing = NEEDED.filter((path) => !existsSync(path));
const reason = missing.length > 0 ? `npm run test:all installs ${missing.join(', ')} as root` : undefined;

// Each language's lock on the same node, in one process each. The tests send all commands in one order, so only this
// process decides who held the lock when.
describeUnless(reason)('The same lock for Nest, Java and Python', () => {
  let server: ZooKeeperServer;
  let curator: Peer;
  let kazoo: Peer;
  let observer: ZooKeeperAdmin;
  const managers: LockManager[] = [];

  beforeAll(async () => {
    // Curator's folders are containers, which the server removes automatically: often, so that the tests encounter it.
    server = await startZooKeeper({ properties: { 'znode.container.checkIntervalMs': 100 } });
    observer = await ZooKeeperAdmin.connect(server.connectString);
    [curator, kazoo] = await Promise.all([startCurator(server.connectString), startKazoo(server.connectString)]);
  }, 120_000);

  afterAll(async () => {
    await Promise.all([curator.stop(), kazoo.stop(), ...managers.map((manager) => manager.stop())]);
    observer.close();
    await server.stop();
  });

  /** Starts another owner in our library. */
  async function nest(recipe: ZooKeeperLockProviderOptions['recipe']): Promise<Owner> {
    const provider = new ZooKeeperLockProvider({ connectString: `${server.connectString}/interop`, recipe });
    const manager = new LockManager({ providers: { zookeeper: provider }, namespace: 'shop' });
    managers.push(manager);
    await manager.start();
    const held = new Map<string, Lock>();
    const keyOf = (path: string) => path.slice(path.lastIndexOf('/') + 1);
    return {
      async acquire(kind, path, wait = 0) {
        const lock = await manager.tryAcquire(keyOf(path), { ...OPTIONS[kind], wait });
        if (lock) held.set(`${kind} ${path}`, lock);
        return lock !== null;
      },
      async release(kind, path) {
        expect(await held.get(`${kind} ${path}`)?.release()).toBe('released');
        held.delete(`${kind} ${path}`);
      },
    };
  }

  let paths = 0;
  const freshPath = () => `/interop/shop/key-${(paths += 1)}`;

  /**
   * Requests a lock that others hold. Resolves when the attempt is queued as the `place`th, with a promise of its
   * outcome.
   */
  async function enqueue(owner: Owner, kind: string, path: string, place: number): Promise<{ held: Promise<boolean> }> {
    const held = owner.acquire(kind, path, WAIT);
    await until(async () => (await observer.children(path)).length === place, `${place} are queued`);
    return { held };
  }

  /** Two of our limited holders exclude the other language's owner, which in turn excludes the third. */
  async function limitsExclude(
    path: string,
    [theirs, kind]: readonly [Owner, string],
    [first, second, third]: readonly [Owner, Owner, Owner],
  ): Promise<void> {
    expect(await first.acquire('limited', path, WAIT)).toBe(true);
    expect(await second.acquire('limited', path, WAIT)).toBe(true);
    expect(await theirs.acquire(kind, path)).toBe(false);
    const waiting = await enqueue(theirs, kind, path, 3);
    const behind = await enqueue(third, 'limited', path, 4);
    let isIn = false;
    void waiting.held.then(() => (isIn = true));
    await first.release('limited', path);
    await until(async () => (await observer.children(path)).length === 3, 'one of the holders has left');
    expect(isIn).toBe(false);
    await second.release('limited', path);
    expect(await waiting.held).toBe(true);
    expect(await second.acquire('limited', path)).toBe(false);
    await theirs.release(kind, path);
    expect(await behind.held).toBe(true);
    await third.release('limited', path);
  }

  describe('recipe "mutex" as InterProcessMutex', () => {
    const others = { Curator: () => curator.owner(), "kazoo with Curator's node name": () => kazoo.owner() };

    it.each(Object.entries(others))('%s and our mutex exclude each other', async (_, ownerOf) => {
      const [path, ours, theirs] = [freshPath(), await nest('mutex'), ownerOf()];

      for (const [holder, other] of [
        [ours, theirs],
        [theirs, ours],
      ] as const) {
        expect(await holder.acquire('mutex', path, WAIT)).toBe(true);
        expect(await other.acquire('mutex', path)).toBe(false);
        const waiter = await enqueue(other, 'mutex', path, 2);
        await holder.release('mutex', path);
        expect(await waiter.held).toBe(true);
        await other.release('mutex', path);
      }
    });

    it('serves owners in the order of their requests, whatever the language', async () => {
      const path = freshPath();
      const holder = await nest('mutex');
      const queue = [
        ...[curator.owner(), await nest('mutex'), kazoo.owner()],
        ...[kazoo.owner(), curator.owner(), await nest('mutex'), curator.owner(), await nest('mutex'), kazoo.owner()],
      ];
      const served: number[] = [];

      expect(await holder.acquire('mutex', path)).toBe(true);
      const turns: Promise<void>[] = [];
      for (const [place, owner] of queue.entries()) {
        const { held } = await enqueue(owner, 'mutex', path, place + 2);
        turns.push(
          held.then(async (isHeld) => {
            if (isHeld) served.push(place);
            await owner.release('mutex', path);
          }),
        );
      }
      await holder.release('mutex', path);
      await Promise.all(turns);

      expect(served).toEqual([...queue.keys()]);
    });

    it('never has two holders while all owners compete', async () => {
      const path = freshPath();
      const owners = [
        ...[await nest('mutex'), await nest('mutex')],
        ...[curator.owner(), curator.owner(), kazoo.owner(), kazoo.owner()],
      ];
      let holders = 0;
      const seen: number[] = [];

      await Promise.all(
        owners.map(async (owner) => {
          for (let turn = 0; turn < 10; turn += 1) {
            expect(await owner.acquire('mutex', path, WAIT)).toBe(true);
            seen.push((holders += 1));
            await new Promise(setImmediate);
            holders -= 1;
            await owner.release('mutex', path);
          }
        }),
      );

      expect(seen).toEqual(Array.from({ length: 60 }, () => 1));
    });

    it.each(Object.entries(others))('%s waits for all limited holders, which wait for it', async (_, ownerOf) => {
      const [path, theirs] = [freshPath(), ownerOf()];
      await limitsExclude(path, [theirs, 'mutex'], [await nest('mutex'), await nest('mutex'), await nest('mutex')]);
    });

    it('does not exclude kazoo with its own node name in either direction, and with extra_lock_patterns only in one', async () => {
      const [path, ours, theirs] = [freshPath(), await nest('mutex'), kazoo.owner()];
      const bothHold = async (kind: string, first: Owner, second: Owner) => {
        const kindOf = (owner: Owner) => (owner === theirs ? kind : 'mutex');
        await first.acquire(kindOf(first), path);
        const isBoth = await second.acquire(kindOf(second), path);
        if (isBoth) await second.release(kindOf(second), path);
        await first.release(kindOf(first), path);
        return isBoth;
      };

      expect(await bothHold('default', ours, theirs)).toBe(true);
      expect(await bothHold('default', theirs, ours)).toBe(true);
      expect(await bothHold('extra', ours, theirs)).toBe(false);
      expect(await bothHold('extra', theirs, ours)).toBe(true);
    });
  });

  describe('recipe "read-write" as InterProcessReadWriteLock', () => {
    const languages = {
      ours: () => nest('read-write'),
      Curator: () => Promise.resolve(curator.owner()),
      "kazoo with Curator's node names": () => Promise.resolve(kazoo.owner()),
    };
    const pairs = Object.keys(languages).flatMap((one) =>
      Object.keys(languages).flatMap((other) => (one === other ? [] : [[one, other] as const])),
    ) as [keyof typeof languages, keyof typeof languages][];

    it.each(pairs)('a writer of %s excludes readers and writers of %s', async (writing, other) => {
      const [path, writer, rival] = [freshPath(), await languages[writing](), await languages[other]()];

      expect(await writer.acquire('write', path, WAIT)).toBe(true);
      expect(await rival.acquire('read', path)).toBe(false);
      expect(await rival.acquire('write', path)).toBe(false);
      const waiter = await enqueue(rival, 'read', path, 2);
      await writer.release('write', path);
      expect(await waiter.held).toBe(true);
      await rival.release('read', path);
    });

    it('readers of all languages hold together, a writer waits for the last of them, and later readers wait for the writer', async () => {
      for (const writing of Object.values(languages)) {
        const path = freshPath();
        const readers = [await nest('read-write'), curator.owner(), kazoo.owner()];
        for (const reader of readers) expect(await reader.acquire('read', path, WAIT)).toBe(true);
        const writer = await writing();
        const written = await enqueue(writer, 'write', path, 4);
        const late = [await nest('read-write'), curator.owner(), kazoo.owner()];
        const lateReads = [];
        for (const [place, reader] of late.entries()) lateReads.push(await enqueue(reader, 'read', path, place + 5));
        const order: string[] = [];
        const noted = (what: string) => () => order.push(what);
        void written.held.then(noted('writer'));
        for (const { held } of lateReads) void held.then(noted('late reader'));

        await readers[0]!.release('read', path);
        await readers[1]!.release('read', path);
        await until(async () => (await observer.children(path)).length === 5, 'two readers have left');
        expect(order).toEqual([]);
        await readers[2]!.release('read', path);
        await written.held;
        expect(order).toEqual(['writer']);
        await writer.release('write', path);
        expect(await Promise.all(lateReads.map(({ held }) => held))).toEqual([true, true, true]);

        await Promise.all(late.map((reader) => reader.release('read', path)));
      }
    });

    it.each(Object.keys(languages) as (keyof typeof languages)[])(
      'a reader of any language does not wait for a writer of %s behind it',
      async (writing) => {
        for (const reading of Object.values(languages)) {
          const path = freshPath();
          const [first, reader, second] = [await nest('read-write'), await reading(), await languages[writing]()];
          expect(await first.acquire('write', path, WAIT)).toBe(true);
          const read = await enqueue(reader, 'read', path, 2);
          const written = await enqueue(second, 'write', path, 3);
          await first.release('write', path);
          expect(await read.held).toBe(true);
          await reader.release('read', path);
          expect(await written.held).toBe(true);
          await second.release('write', path);
        }
      },
    );

    it('a Curator writer that becomes a reader admits our readers immediately, and our writers after it has read', async () => {
      const [path, theirs] = [freshPath(), curator.owner()];
      const [reader, writer] = [await nest('read-write'), await nest('read-write')];

      expect(await theirs.acquire('write', path, WAIT)).toBe(true);
      expect(await theirs.acquire('read', path)).toBe(true);
      const read = await enqueue(reader, 'read', path, 3);
      await theirs.release('write', path);
      expect(await read.held).toBe(true);
      const written = await enqueue(writer, 'write', path, 3);
      await reader.release('read', path);
      let isWriting = false;
      void written.held.then(() => (isWriting = true));
      await until(async () => (await observer.children(path)).length === 2, 'our reader has left');
      expect(isWriting).toBe(false);
      await theirs.release('read', path);

      expect(await written.held).toBe(true);
      await writer.release('write', path);
    });

    it.each(
      (['Curator', "kazoo with Curator's node names"] as const).flatMap((name) =>
        (['write', 'read'] as const).map((kind) => [kind, name] as const),
      ),
    )('a "%s" lock of %s waits for all limited holders, which wait for it', async (kind, name) => {
      const [path, theirs] = [freshPath(), await languages[name]()];
      const ours = [await nest('read-write'), await nest('read-write'), await nest('read-write')] as const;
      await limitsExclude(path, [theirs, kind], ours);
    });

    it('does not exclude InterProcessMutex, so services must agree on one recipe', async () => {
      const [path, ours, theirs] = [freshPath(), await nest('read-write'), curator.owner()];

      expect(await ours.acquire('write', path)).toBe(true);
      expect(await theirs.acquire('mutex', path, WAIT)).toBe(true);

      await theirs.release('mutex', path);
      await ours.release('write', path);
    });
  });
});
