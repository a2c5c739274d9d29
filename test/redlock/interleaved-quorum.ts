import type { IoredisClient, IoredisConnection } from '../../lib/providers/redis/client/ioredis.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import type { RedlockBackend } from '../../lib/providers/redlock/redlock-backend.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { contextFor, RELEASE, request } from '../redis/seam.js';
import { LuaNode } from './lua-node.js';
import { type DirectBackend, direct, type TestGrant } from '../direct-backend.js';

/** The next step of a story. Processes and nodes are numbered. */
export type Step =
  /** A process requests a lock. Some of the nodes execute and answer its votes, and then its writes. */
  | {
      readonly do: 'ask';
      readonly process: number;
      readonly key: string;
      /** How many callers the request is for. */
      readonly callers: number;
      readonly nodes: readonly number[];
      readonly withheld: number;
    }
  | { readonly do: 'release' | 'replace'; readonly process: number }
  /** One message, or all messages, from a process to a node arrive. */
  | { readonly do: 'arrive'; readonly process: number; readonly node: number; readonly all: boolean }
  /** A node loses its data. If `late`, everything in flight to it arrives afterwards. */
  | { readonly do: 'lose'; readonly node: number; readonly late: boolean }
  | { readonly do: 'wait'; readonly ms: number };

export interface Story {
  /** By how many ms the nodes' wall clocks are ahead. */
  readonly skews: readonly number[];
  readonly steps: readonly Step[];
}

const NODES = 3;
const PROCESSES = 3;

interface Message {
  readonly args: readonly string[];
  readonly resolve: (reply: unknown) => void;
}

/**
 * The messages from one process to one node: a connection that never breaks or loses anything, with a clock that stands
 * still.
 */
export class Line implements IoredisClient, IoredisConnection {
  readonly messages: Message[] = [];
  #onReady: (() => void) | undefined;

  constructor(readonly node: LuaNode) {}

  duplicate(): IoredisConnection {
    return this;
  }

  on(event: string, listener: () => void): void {
    if (event === 'ready') this.#onReady = listener;
  }

  connect(): Promise<unknown> {
    this.#onReady?.();
    return Promise.resolve();
  }

  disconnect(): void {
    this.messages.length = 0;
  }

  subscribe(): Promise<unknown> {
    return Promise.resolve();
  }

  call(command: string, ...args: string[]): Promise<unknown> {
    // The handshake.
    if (!command.startsWith('eval') || args.length === 3) return Promise.resolve('');
    return new Promise((resolve) => this.messages.push({ args: args.slice(1), resolve }));
  }

  get next(): string | undefined {
    return this.messages[0] && codeOf(this.messages[0]);
  }

  get hasVotes(): boolean {
    return this.messages.some((message) => codeOf(message) === 'V');
  }

  arrive(): void {
    const message = this.messages.shift();
    message?.resolve(this.node.run(message.args));
  }
}

function codeOf({ args }: Message): string | undefined {
  return args[2 + Number(args[0])];
}

class Process {
  readonly lines: readonly Line[];
  readonly held: TestGrant[] = [];
  readonly backend: DirectBackend<RedlockBackend>;

  constructor(nodes: readonly LuaNode[], clock: FakeClock) {
    this.lines = nodes.map((node) => new Line(node));
    const provider = new RedlockLockProvider({ nodes: this.lines.map((client) => ({ client })), maxLease: '1h' });
    this.backend = direct(provider.createBackend(contextFor([], { clock })) as RedlockBackend);
  }

  async start(): Promise<this> {
    await this.backend.connect();
    return this;
  }
}

export interface Played {
  readonly violations: readonly string[];
  readonly grants: number;
  /** Grants with followers. */
  readonly blocks: number;
  readonly losses: number;
}

/**
 * Plays the story on real backends, and reports its tokens.
 * @param script The script that the nodes run.
 */
export async function play({ skews, steps }: Story, script?: string): Promise<Played> {
  const clock = new FakeClock();
  const nodes = skews.map((skew) => new LuaNode(() => clock.wallTime() + skew, script));
  const processes = await Promise.all(Array.from({ length: PROCESSES }, () => new Process(nodes, clock).start()));
  const highest = new Map<string, bigint>();
  const violations: string[] = [];
  let [asking, grants, blocks, losses] = [0, 0, 0, 0];
  // Replaced processes may have sent something that has not arrived yet.
  const lines = [...processes.flatMap((process) => process.lines)];

  const ask = async (process: Process, key: string, callers: number) => {
    asking += 1;
    const answer = await process.backend.acquire(request(key, { wait: 0, callers })).catch(() => 'busy' as const);
    asking -= 1;
    if (answer === 'busy') return;
    grants += 1;
    const [token, last] = [answer.fencingToken ?? 0n, highest.get(key) ?? 0n];
    if (token <= last) violations.push(`token ${token} of ${key} after ${last}`);
    else highest.set(key, token + BigInt(answer.followers ?? 0));
    blocks += answer.followers ? 1 : 0;
    process.held.push(answer);
  };

  const take = async (step: Step) => {
    const process = 'process' in step ? processes[step.process]! : processes[0]!;
    switch (step.do) {
      case 'ask':
        void ask(process, step.key, step.callers);
        for (let round = 0; round < 4; round += 1) {
          await settled();
          for (const index of step.nodes) {
            const line = process.lines[index]!;
            if (line.next !== 'W' || index !== step.withheld) line.arrive();
          }
        }
        break;
      case 'release': {
        const grant = process.held.shift();
        if (grant) void process.backend.release(grant, RELEASE);
        break;
      }
      case 'replace': {
        const next = await new Process(nodes, clock).start();
        lines.push(...next.lines);
        next.held.push(...process.held);
        processes[step.process] = next;
        break;
      }
      case 'arrive': {
        const line = process.lines[step.node]!;
        do line.arrive();
        while (step.all && line.messages.length > 0);
        break;
      }
      case 'lose': {
        const node = nodes[step.node]!;
        const others = nodes.filter((each) => each !== node && each.remembers).length;
        // Redlock promises nothing if a node loses its data during a vote, or if a majority does.
        if (asking > 0 || lines.some(({ hasVotes }) => hasVotes) || others <= NODES / 2) return;
        node.forget();
        losses += 1;
        if (step.late) for (const line of lines) while (line.node === node && line.messages.length > 0) line.arrive();
        break;
      }
      case 'wait':
        await clock.advance(step.ms);
    }
  };
  for (const step of steps) {
    await take(step);
    await settled();
  }
  for (const { backend } of processes) void backend.close();
  return { violations, grants, blocks, losses };
}

function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
