// A stand-in for ioredis and its server. Subtracting its time leaves only the time of our own code.
import { EventEmitter } from 'node:events';

const FIRST_TOKEN = 1_700_000_000_000_000;
/** The keys of a script call with one operation: the counter and the lock. */
const KEYS = 2;
/**
 * The operation follows the hash, the number of keys, the keys, and the id of the process. Its first letter is the kind
 * of operation.
 */
const OPERATION = 2 + KEYS + 1;
/** Several times the size of one core's cache, and less than the cache that all cores share. */
const EVICTED_BYTES = 6 * 1024 * 1024;
const CACHE_LINE = 64;
const settled = Promise.resolve();

/**
 * A client for one caller, without a network: every lock is free. It replies in the next turn of the event loop, like a
 * socket. The only thing it reads from an operation is whether it is a release.
 */
export class StandIn {
  /** Whether to evict the core's caches before each reply. */
  evicts = false;
  /** The number of script calls. */
  calls = 0;
  /** How many ms passed outside our code, from a command to its reply. */
  outside = 0;
  #leftAt = 0;
  #token = FIRST_TOKEN;
  #memory = new Uint8Array(EVICTED_BYTES);

  /** Makes a connection. The provider uses nothing else of the client it receives. */
  duplicate() {
    return new Connection(this);
  }

  /** Replies to a connection's command. */
  answer(command, args) {
    const calledAt = performance.now();
    const reply = this.#replyTo(command, args);
    const answer = new Promise((resolve) => {
      setImmediate(() => {
        if (this.evicts) this.evict();
        this.outside += performance.now() - this.#leftAt;
        resolve(reply);
      });
    });
    // Our code continues after this call, and that time counts as its own.
    void settled.then(this.#leave);
    this.outside += performance.now() - calledAt;
    return answer;
  }

  /** Fills the core's caches with other memory. */
  evict() {
    for (let index = 0; index < EVICTED_BYTES; index += CACHE_LINE) this.#memory[index] += 1;
  }

  #leave = () => {
    this.#leftAt = performance.now();
  };

  #replyTo(command, args) {
    if (command !== 'evalsha') return 'OK';
    if (Number(args[1]) !== KEYS) {
      throw new Error(
        `The stand-in supports script calls with ${KEYS} keys, but this one has ${args[1]}. Adapt ${import.meta.filename}.`,
      );
    }
    this.calls += 1;
    return args[OPERATION].startsWith('R') ? 1 : String((this.#token += 1));
  }
}

class Connection extends EventEmitter {
  #client;

  constructor(client) {
    super();
    this.#client = client;
  }

  connect() {
    return new Promise((resolve) => {
      setImmediate(() => {
        this.emit('connect');
        this.emit('ready');
        resolve();
      });
    });
  }

  disconnect() {}

  subscribe() {
    return Promise.resolve(1);
  }

  call(command, ...args) {
    return this.#client.answer(command, args);
  }
}
