// A stand-in for ioredis and its server. Without its time, a cycle takes only that of our own code.
import { EventEmitter } from 'node:events';

const FIRST_TOKEN = 1_700_000_000_000_000;
/** The keys of a script call with one operation: the counter and the lock. */
const KEYS = 2;
/** The operation begins after the hash, the number of keys, the keys and the id of the process. Its first letter says what to do. */
const OPERATION = 2 + KEYS + 1;
/** Several times the cache of one core, and less than the one that all cores share. */
const EVICTED_BYTES = 6 * 1024 * 1024;
const CACHE_LINE = 64;
const settled = Promise.resolve();

/**
 * A client for one caller, without a network: every lock is free. It replies in the next turn of the event loop, as a socket does. All that it
 * reads of an operation is whether it is a release.
 */
export class StandIn {
  /** Whether the caches of the core are evicted before each reply. */
  evicts = false;
  /** The number of script calls. */
  calls = 0;
  /** How many ms passed outside of our code, from a command to its reply. */
  outside = 0;
  #leftAt = 0;
  #token = FIRST_TOKEN;
  #memory = new Uint8Array(EVICTED_BYTES);

  /** Makes a connection. The provider uses nothing else of the client that it was given. */
  duplicate() {
    return new Connection(this);
  }

  /** Answers a command of a connection. */
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
    // Our code continues after this call, and that time is its own.
    void settled.then(this.#leave);
    this.outside += performance.now() - calledAt;
    return answer;
  }

  /** Leaves nothing but other memory in the caches of the core. */
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
        `The stand-in answers script calls with ${KEYS} keys, and this one has ${args[1]}. Adapt ${import.meta.filename}.`,
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
