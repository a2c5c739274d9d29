import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { EPOCH } from './machine.js';
import type { RedisModel } from './redis-model.js';

const LAYOUT = new KeyLayout('lock');
/** A provisional grant: its token, its end, and the process to which it was handed off. */
const PROVISIONAL = /^c(\d{16})(\d{13})([\da-f]{12})/;

interface Free {
  readonly head: string;
  since: number;
}

/**
 * Decides whether the server hands off locks to processes that can take them, and whether each lock that ends goes to
 * its first waiter.
 */
export class ServerJudge {
  /** The texts of the locks after the last command that named them. */
  readonly #texts = new Map<string, string | undefined>();
  /**
   * By channel: when each process was last heard from, and since when a process that let a grant expire has been
   * silent.
   */
  readonly #heardAt = new Map<string, number>();
  readonly #silentSince = new Map<string, number>();
  readonly #free = new Map<string, Free>();
  #lostAt = -Infinity;

  constructor(
    private readonly modelOf: (key: string) => RedisModel,
    private readonly report: (violation: string) => void,
  ) {}

  /** The server has lost locks, and also which processes don't respond. */
  lostData(now: number): void {
    this.#lostAt = now;
    this.#silentSince.clear();
  }

  /** The server has executed this process's script call. */
  executed(process: number, locks: readonly string[], now: number): void {
    for (const lock of locks) {
      const model = this.modelOf(lock);
      // In a Cluster, each bucket tracks on its own which processes are present.
      const counter = model.slots ? LAYOUT.counterOf(LAYOUT.bucketIn(lock)) : LAYOUT.counter;
      const known = (number: number) => `${counter}${number}`;
      this.#heardAt.set(known(process), now);
      const text = model.textAt(lock);
      const before = this.#texts.get(lock);
      if (text === before) continue;
      this.#texts.set(lock, text);
      const ended = grantOf(before);
      if (ended && ended.endsAt <= now && ended.grantedAt > this.#lostAt)
        this.#silentSince.set(known(ended.process), ended.endsAt);
      const grant = grantOf(text);
      // A grant from before a loss of data isn't new: a replica has kept it.
      if (grant === undefined || grant.process === process || grant.grantedAt <= this.#lostAt) continue;
      const silentSince = this.#silentSince.get(known(grant.process)) ?? -Infinity;
      if (silentSince > (this.#heardAt.get(known(grant.process)) ?? -Infinity)) {
        this.report(`"${lock}" was handed off to process ${grant.process}, which has let another grant expire`);
      }
      if (!model.hasSubscriber(LAYOUT.channelOf(grant.channel, counter))) {
        this.report(`"${lock}" was handed off to process ${grant.process}, which is not listening`);
      }
    }
  }

  /**
   * @param isHealthy whether nothing has disturbed this process recently
   * @param bound how long a lock that has ended may be left to its first waiter, in ms
   */
  look(key: string, now: number, isHealthy: (process: number) => boolean, bound: number): void {
    const lock = LAYOUT.lockOf(key);
    const text = this.modelOf(lock).textAt(lock);
    const grant = grantOf(text);
    const queue = `${lock}}q`;
    const [head] = this.modelOf(queue).membersAt(queue);
    const isFree = text === undefined || (grant !== undefined && grant.endsAt <= now);
    if (!isFree || head === undefined || !isHealthy(processOf(head.slice(1, 13)))) {
      this.#free.delete(key);
      return;
    }
    const known = this.#free.get(key);
    const free = known?.head === head ? known : { head, since: now };
    this.#free.set(key, free);
    if (now - free.since <= bound) return;
    this.report(`"${key}" ended ${(now - free.since).toFixed(0)} ms ago, but its first waiter does not have it`);
    free.since = Infinity;
  }
}

/** A provisional grant in a lock's text, in true time. */
function grantOf(text: string | undefined) {
  const [, token, endsAt, channel] = PROVISIONAL.exec(text ?? '') ?? [];
  if (token === undefined || endsAt === undefined || channel === undefined) return undefined;
  return {
    grantedAt: Number(token) / 1_000 - EPOCH,
    endsAt: Number(endsAt) - EPOCH,
    process: processOf(channel),
    channel,
  };
}

/** The number of a process, with which its id in the records starts. */
function processOf(id: string): number {
  return Number.parseInt(id.slice(0, 6), 16);
}
