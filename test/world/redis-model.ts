import { createHash } from 'node:crypto';
import { type LuaEngine, type Reply, replyError } from './lua-engine.js';
import { bucketOf, type SlotMap } from './slot-map.js';

/** A command's effect on the data: the points at which the world may strike. */
export type Effect = 'written' | 'deleted' | 'prolonged' | 'queued' | 'announced';

/** The server's side of a connection. */
export interface ModelClient {
  readonly id: number;
  /** Delivers a message on a subscribed channel. */
  push(channel: string, message: string): void;
  /** A subscription to a sharded channel has ended, because the slot has moved. */
  unsubscribed(channel: string): void;
  /** `CLIENT KILL` has ended the connection. */
  end(): void;
}

type Value = { readonly type: 'string'; text: string } | { readonly type: 'zset'; scores: Map<string, number> };
type Entry = Value & { expiresAt: number };

const OK = { ok: 'OK' };
const WRONG_TYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value';
const NOT_AN_INTEGER = 'ERR value is not an integer or out of range';

/**
 * The part of Redis that the locks use, in memory. `test/redis/world-model.spec.ts` compares it with a real server.
 *
 * Strings have one byte per character.
 */
export class RedisModel {
  /** The effects of the last executed command. */
  readonly effects = new Set<Effect>();
  readonly clients = new Map<number, ModelClient>();
  isReplica = false;
  /** The number of commands, including the commands of scripts. */
  commands = 0;
  readonly #data = new Map<string, Entry>();
  readonly #scripts = new Map<string, string>();
  readonly #subscribers = new Map<string, Set<ModelClient>>();
  #starts = 1;
  /** The time of the command being executed, in µs. */
  #micros = 0;

  /**
   * @param clock the server's wall clock, in ms since the epoch
   * @param slots set for a master of a Cluster
   * @param name the server's name in its run id
   */
  constructor(
    private readonly engine: LuaEngine,
    private readonly clock: () => number,
    readonly slots?: SlotMap,
    private readonly name = 'server',
  ) {}

  /** Executes a client's command. An error is returned as a reply. */
  execute(client: ModelClient, command: readonly string[]): Reply {
    this.effects.clear();
    this.#micros = Math.floor(this.clock() * 1_000);
    const refusal = this.slots?.refusal(...this.#namesIn(command));
    if (refusal) return refusal;
    const [name = '', first = '', ...rest] = command;
    switch (name.toLowerCase()) {
      case 'eval':
      case 'evalsha':
        return this.#evaluate(name.toLowerCase(), first, rest);
      case 'client':
        return this.#client(client, first, rest);
      case 'cluster':
        return this.slots?.ranges ?? replyError('ERR This instance has cluster support disabled');
      case 'subscribe':
      case 'ssubscribe':
        this.#subscribe(first, client);
        return 1;
      default: {
        const reply = this.#run([...command]);
        return reply !== null && typeof reply === 'object' && 'ok' in reply ? reply.ok : reply;
      }
    }
  }

  /** The connection has ended. */
  drop(client: ModelClient): void {
    this.clients.delete(client.id);
    for (const subscribers of this.#subscribers.values()) subscribers.delete(client);
  }

  /** Ends everything that a restart ends. */
  restart(keepsData: boolean): void {
    this.#starts += 1;
    this.#scripts.clear();
    if (!keepsData) this.#data.clear();
  }

  flush(): void {
    this.#data.clear();
  }

  flushScripts(): void {
    this.#scripts.clear();
  }

  evict(key: string): void {
    this.#data.delete(key);
  }

  /** Moves a key to another server, as `MIGRATE` does. */
  give(key: string, other: RedisModel): void {
    const entry = this.#data.get(key);
    this.#data.delete(key);
    if (entry) other.#data.set(key, entry);
  }

  /** From now on, another server owns a bucket's slot: subscriptions end, and remaining keys are deleted. */
  lose(bucket: number): void {
    for (const key of this.#data.keys()) if (bucketOf(key) === bucket) this.#data.delete(key);
    for (const [channel, subscribers] of this.#subscribers) {
      if (bucketOf(channel) !== bucket) continue;
      this.#subscribers.delete(channel);
      for (const client of subscribers) client.unsubscribed(channel);
    }
  }

  /** Takes over another server's data, as a replica has it. */
  copy(other: RedisModel): void {
    this.#data.clear();
    for (const [key, entry] of other.#data) {
      this.#data.set(key, entry.type === 'zset' ? { ...entry, scores: new Map(entry.scores) } : { ...entry });
    }
  }

  /** The names of all keys. */
  keys(): string[] {
    this.#micros = Math.floor(this.clock() * 1_000);
    return [...this.#data.keys()].filter((key) => this.#entry(key) !== undefined);
  }

  has(key: string): boolean {
    this.#micros = Math.floor(this.clock() * 1_000);
    return this.#entry(key) !== undefined;
  }

  /** The text at a key; `undefined` if there is none. */
  textAt(key: string): string | undefined {
    this.#micros = Math.floor(this.clock() * 1_000);
    const entry = this.#entry(key);
    return entry?.type === 'string' ? entry.text : undefined;
  }

  /** For how many ms a key remains. */
  leftAt(key: string): number {
    this.#micros = Math.floor(this.clock() * 1_000);
    return this.#timeLeft(key);
  }

  /** The members of a sorted set, in ascending order of their scores. */
  membersAt(key: string): string[] {
    this.#micros = Math.floor(this.clock() * 1_000);
    const entry = this.#entry(key);
    return entry?.type === 'zset' ? sorted(entry.scores).map(([member]) => member) : [];
  }

  hasSubscriber(channel: string): boolean {
    return (this.#subscribers.get(channel)?.size ?? 0) > 0;
  }

  /** What a command accesses, and how to tell whether it is here. Sharded channels need not exist. */
  #namesIn(command: readonly string[]): [names: readonly string[], has: (name: string) => boolean] {
    const isChannel = ['SPUBLISH', 'SSUBSCRIBE'].includes(command[0]?.toUpperCase() ?? '');
    return [namesIn(command), isChannel ? () => true : (key) => this.#entry(key) !== undefined];
  }

  #evaluate(name: string, script: string, args: readonly string[]): Reply {
    let text: string | undefined = script;
    if (name === 'eval') this.#scripts.set(createHash('sha1').update(script).digest('hex'), script);
    else text = this.#scripts.get(script);
    if (text === undefined) return replyError('NOSCRIPT No matching script. Please use EVAL.');
    const keys = 1 + Number(args[0]);
    return this.engine.run(text, args.slice(1, keys), args.slice(keys), (command) => {
      return this.slots?.refusalInScript(...this.#namesIn(command)) ?? this.#run(command);
    });
  }

  #client(client: ModelClient, action: string, args: readonly string[]): Reply {
    if (action.toUpperCase() === 'INFO') return `id=${client.id} addr=${addressOf(client.id)} db=0`;
    const [, id, , address] = args;
    const killed = this.clients.get(Number(id));
    if (killed === undefined || address !== addressOf(killed.id)) return 0;
    killed.end();
    return 1;
  }

  #subscribe(channel: string, client: ModelClient): void {
    const subscribers = this.#subscribers.get(channel) ?? new Set();
    this.#subscribers.set(channel, subscribers.add(client));
  }

  #run(command: string[]): Reply {
    this.commands += 1;
    const [name = '', key = '', ...args] = command;
    try {
      return this.#command(name.toUpperCase(), key, args);
    } catch (error) {
      if (error instanceof Error && error.name === 'ReplyError') return error;
      throw error;
    }
  }

  #command(name: string, key: string, args: string[]): Reply {
    switch (name) {
      case 'GET':
        return this.#text(key)?.text ?? null;
      case 'SET':
        return this.#set(key, args);
      case 'SETRANGE':
        return this.#setRange(key, Number(args[0]), args[1] ?? '');
      case 'DEL':
        return this.#delete([key, ...args]);
      case 'EXISTS':
        return [key, ...args].filter((each) => this.#entry(each) !== undefined).length;
      case 'PTTL':
        return this.#timeLeft(key);
      case 'PEXPIRE':
        return this.#expire(key, Number(args[0]));
      case 'TIME': {
        return [String(Math.floor(this.#micros / 1e6)), String(this.#micros % 1e6)];
      }
      case 'PUBLISH':
      case 'SPUBLISH':
        return this.#publish(key, args[0] ?? '');
      case 'PING':
        return 'PONG';
      case 'INFO':
        if (key === 'server')
          return `redis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:${this.name}x${this.#starts}\r\n`;
        return `redis_version:7.0.15\r\ncluster_enabled:${this.slots ? 1 : 0}\r\nrole:${this.isReplica ? 'slave' : 'master'}\r\n`;
      default:
        return this.#sortedSet(name, key, args);
    }
  }

  #sortedSet(name: string, key: string, args: string[]): Reply {
    switch (name) {
      case 'ZADD':
        return this.#add(key, args);
      case 'ZREM':
        return this.#remove(key, args);
      case 'ZCARD':
        return this.#scores(key)?.size ?? 0;
      case 'ZSCORE': {
        const score = this.#scores(key)?.get(args[0] ?? '');
        return score === undefined ? null : String(score);
      }
      case 'ZRANGE':
        return this.#range(key, args);
      case 'ZRANGEBYSCORE':
        return this.#rangeByScore(key, args);
      default:
        return replyError(`ERR unknown command '${name}'`);
    }
  }

  /** The time at which keys expire, in whole ms. */
  get #time(): number {
    return Math.floor(this.#micros / 1_000);
  }

  #entry(key: string): Entry | undefined {
    const entry = this.#data.get(key);
    if (entry === undefined || entry.expiresAt >= this.#time) return entry;
    this.#data.delete(key);
    return undefined;
  }

  #text(key: string): (Entry & { readonly type: 'string' }) | undefined {
    const entry = this.#entry(key);
    if (entry?.type === 'zset') throw replyError(WRONG_TYPE);
    return entry;
  }

  #scores(key: string): Map<string, number> | undefined {
    const entry = this.#entry(key);
    if (entry?.type === 'string') throw replyError(WRONG_TYPE);
    return entry?.scores;
  }

  #set(key: string, [text = '', ...options]: string[]): Reply {
    let expiresAt = Infinity;
    let keepsExpiry = false;
    let answersOld = false;
    let isNew = false;
    for (let index = 0; index < options.length; index += 1) {
      const option = options[index]?.toUpperCase();
      if (option === 'PX') {
        const duration = Number(options[(index += 1)]);
        if (!Number.isInteger(duration)) return replyError(NOT_AN_INTEGER);
        if (duration <= 0) return replyError("ERR invalid expire time in 'set' command");
        expiresAt = this.#time + duration;
      } else if (option === 'KEEPTTL') keepsExpiry = true;
      else if (option === 'GET') answersOld = true;
      else if (option === 'NX') isNew = true;
      else return replyError('ERR syntax error');
    }
    const old = answersOld ? this.#text(key) : this.#entry(key);
    if (isNew && old) return null;
    this.#data.set(key, { type: 'string', text, expiresAt: keepsExpiry && old ? old.expiresAt : expiresAt });
    this.#touched('written', key);
    return answersOld ? (old?.type === 'string' ? old.text : null) : OK;
  }

  #setRange(key: string, at: number, part: string): number {
    const entry = this.#text(key);
    const old = entry?.text ?? '';
    const text = old.slice(0, at).padEnd(at, '\0') + part + old.slice(at + part.length);
    if (entry) entry.text = text;
    else this.#data.set(key, { type: 'string', text, expiresAt: Infinity });
    return text.length;
  }

  #delete(keys: readonly string[]): number {
    const found = keys.filter((key) => this.#entry(key) !== undefined);
    for (const key of found) {
      this.#data.delete(key);
      this.#touched('deleted', key);
    }
    return found.length;
  }

  #timeLeft(key: string): number {
    const entry = this.#entry(key);
    if (entry === undefined) return -2;
    return entry.expiresAt === Infinity ? -1 : entry.expiresAt - this.#time;
  }

  #expire(key: string, duration: number): Reply {
    if (!Number.isInteger(duration)) return replyError(NOT_AN_INTEGER);
    const entry = this.#entry(key);
    if (entry === undefined) return 0;
    if (duration <= 0) this.#data.delete(key);
    else entry.expiresAt = this.#time + duration;
    this.#touched('prolonged', key);
    return 1;
  }

  #publish(channel: string, message: string): number {
    const subscribers = this.#subscribers.get(channel) ?? [];
    this.effects.add('announced');
    let receivers = 0;
    for (const client of subscribers) {
      client.push(channel, message);
      receivers += 1;
    }
    return receivers;
  }

  #add(key: string, args: string[]): Reply {
    let next = 0;
    const flags = new Set<string>();
    for (; ['XX', 'LT'].includes(args[next]?.toUpperCase() ?? ''); next += 1)
      flags.add(args[next]?.toUpperCase() ?? '');
    const score = numberOf(args[next]);
    const member = args[next + 1] ?? '';
    if (Number.isNaN(score)) return replyError('ERR value is not a valid float');
    const scores = this.#scores(key) ?? new Map<string, number>();
    const old = scores.get(member);
    if (old === undefined && flags.has('XX')) return 0;
    if (old === undefined || !flags.has('LT') || score < old) scores.set(member, score);
    if (!this.#data.has(key)) this.#data.set(key, { type: 'zset', scores, expiresAt: Infinity });
    if (key.endsWith('}q')) this.effects.add('queued');
    return old === undefined ? 1 : 0;
  }

  #remove(key: string, members: readonly string[]): number {
    const scores = this.#scores(key);
    if (scores === undefined) return 0;
    const removed = members.filter((member) => scores.delete(member)).length;
    if (scores.size === 0) this.#data.delete(key);
    return removed;
  }

  #range(key: string, [from = '0', to = '-1', withScores]: string[]): Reply {
    const members = sorted(this.#scores(key));
    const place = (text: string) => (Number(text) < 0 ? members.length + Number(text) : Number(text));
    const part = members.slice(Math.max(0, place(from)), place(to) + 1);
    return part.flatMap(([member, score]) => (withScores === undefined ? [member] : [member, String(score)]));
  }

  #rangeByScore(key: string, [least, most, limit, offset, count]: string[]): Reply {
    const [from, to] = [numberOf(least), numberOf(most)];
    const members = sorted(this.#scores(key)).filter(([, score]) => score >= from && score <= to);
    const names = members.map(([member]) => member);
    if (limit === undefined) return names;
    return names.slice(Number(offset), Number(offset) + Number(count));
  }

  /** Counters, records, and names aren't locks. */
  #touched(effect: Effect, key: string): void {
    if (isLock(key)) this.effects.add(effect);
  }
}

/** Whether a key is a lock, or a Redlock node's vote for one. */
export function isLock(key: string): boolean {
  return key.includes('}:') || key.startsWith('lock:redlock:');
}

/** The keys of a command, or its sharded channel. Channels of other commands have no slot. */
function namesIn([name = '', ...args]: readonly string[]): readonly string[] {
  switch (name.toUpperCase()) {
    case 'EVAL':
    case 'EVALSHA':
      return args.slice(2, 2 + Number(args[1]));
    case 'DEL':
    case 'EXISTS':
      return args;
    case 'CLIENT':
    case 'CLUSTER':
    case 'INFO':
    case 'PING':
    case 'PUBLISH':
    case 'SUBSCRIBE':
    case 'TIME':
      return [];
    default:
      return args.slice(0, 1);
  }
}

/** A client's id serves as its port. */
function addressOf(id: number): string {
  return `10.0.0.1:${id}`;
}

function numberOf(text = ''): number {
  if (text === '-inf') return -Infinity;
  return text === '+inf' ? Infinity : Number(text);
}

function sorted(scores: ReadonlyMap<string, number> | undefined): [string, number][] {
  return [...(scores ?? [])].sort(([one, low], [other, high]) => low - high || (one < other ? -1 : 1));
}
