import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { end } from '../../servers/server-process.mjs';

/** Debian keeps Java's libraries here, and Python's where only its own interpreter looks. */
const JARS = '/usr/share/java';
const PYTHON = '/usr/bin/python3';
const KAZOO = '/usr/lib/python3/dist-packages/kazoo';
const CURATOR = ['curator-recipes', 'curator-framework', 'curator-client', 'zookeeper', 'guava', 'slf4j-simple'];

/** A program in another language that takes locks on command. */
export interface Peer {
  /** One more owner of locks in it. */
  owner(): Owner;
  stop(): Promise<void>;
}

export interface Owner {
  /** Resolves to whether it has the lock of this kind on `path` within `wait` ms. The kinds stand in the programs. */
  acquire(kind: string, path: string, wait?: number): Promise<boolean>;
  release(kind: string, path: string): Promise<void>;
}

/** What is missing for the peers here; nothing where they can run. */
export function missingForPeers(): readonly string[] {
  return [...CURATOR.map((name) => join(JARS, `${name}.jar`)), '/usr/bin/javac', PYTHON, KAZOO].filter(
    (path) => !existsSync(path),
  );
}

export function startCurator(connectString: string): Promise<Peer> {
  const classpath = CURATOR.map((name) => join(JARS, `${name}.jar`)).join(':');
  const source = join(import.meta.dirname, 'CuratorPeer.java');
  // Java compiles a single file by itself.
  return start('java', [
    ...['-Xmx64m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Dorg.slf4j.simpleLogger.defaultLogLevel=error'],
    ...['-cp', classpath, source, connectString],
  ]);
}

export function startKazoo(connectString: string): Promise<Peer> {
  return start(PYTHON, [join(import.meta.dirname, 'kazoo_peer.py'), connectString]);
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
      for (const answer of answered.values()) answer('error: it has ended');
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
