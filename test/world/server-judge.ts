import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { EPOCH } from './machine.js';
import type { RedisModel } from './redis-model.js';

const LAYOUT = new KeyLayout('lock');
/** A provisional grant: its token, its end, and the process that it was handed to. */
const PROVISIONAL = /^c(\d{16})(\d{13})([\da-f]{12})/;

interface Free {
  readonly head: string;
  since: number;
}

/** Decides whether the server hands locks to processes that can take them, and whether each lock that ends goes to its first waiter. */
export class ServerJudge {
  /** The texts of the locks after the last command that named them. */
  readonly #texts = new Map<string, string | undefined>();
  /** When each process was last heard, and since when those are silent that have let a grant run out: by their channels. */
  readonly #heardAt = new Map<string, number>();
  readonly #silentSince = new Map<string, number>();
  readonly #free = new Map<string, Free>();
  #lostAt = -Infinity;

  constructor(
    private readonly modelOf: (key: string) => RedisModel,
    private readonly report: (violation: string) => void,
  ) {}

  /** The server has forgotten locks, and with them which processes do not answer. */
  lostData(now: number): void {
    this.#lostAt = now;
    this.#silentSince.clear();
  }

  /** The server has executed a call of the script, of this process. */
  executed(process: number, locks: readonly string[], now: number): void {
    for (const lock of locks) {
      const model = this.modelOf(lock);
      // In a Cluster each bucket is told by itself who is there.
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
      // One from before a loss of data is not new: a replica has kept it.
      if (grant === undefined || grant.process === process || grant.grantedAt <= this.#lostAt) continue;
      const silentSince = this.#silentSince.get(known(grant.process)) ?? -Infinity;
      if (silentSince > (this.#heardAt.get(known(grant.process)) ?? -Infinity)) {
        this.report(`"${lock}" is handed to process ${grant.process}, which has let another lock run out`);
      }
      if (!model.hasSubscriber(LAYOUT.channelOf(grant.channel, counter))) {
        this.report(`"${lock}" is handed to process ${grant.process}, which does not listen`);
      }
    }
  }

  /**
   * @param isHealthy whether nothing has disturbed this process lately
   * @param bound for how long a lock that has ended may be left to its first waiter, in ms
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
    this.report(`"${key}" has ended ${(now - free.since).toFixed(0)} ms ago, and its first waiter does not have it`);
    free.since = Infinity;
  }
}

/** A provisional grant in the text of a lock, in true time. */
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

/** The number of a process, which its id in the records begins with. */
function processOf(id: string): number {
  return Number.parseInt(id.slice(0, 6), 16);
}
