import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { LOCK_SCRIPT } from '../../lib/providers/redlock/lock-script.js';
import { LuaEngine, type Reply } from '../world/lua-engine.js';
import { type ModelClient, RedisModel } from '../world/redis-model.js';

const engine = await LuaEngine.create();
const { counter } = new RedlockKeyLayout('lock');
const NOBODY: ModelClient = { id: 1, push: () => undefined, unsubscribed: () => undefined, end: () => undefined };

/** A node in memory that runs the lock script. */
export class LuaNode {
  readonly #redis: RedisModel;

  /** @param time Its wall clock, in ms. */
  constructor(
    time: () => number,
    private readonly script = LOCK_SCRIPT.text,
  ) {
    this.#redis = new RedisModel(engine, time);
  }

  /** Whether it has a counter, and so knows earlier tokens. */
  get remembers(): boolean {
    return this.has(counter);
  }

  has(key: string): boolean {
    return this.#redis.has(key);
  }

  call(...command: string[]): Reply {
    return this.#redis.execute(NOBODY, command);
  }

  /** Runs the script with its arguments in `EVAL`. */
  run(args: readonly string[]): Reply {
    return this.call('eval', this.script, ...args);
  }

  forget(): void {
    this.#redis.flush();
  }
}
