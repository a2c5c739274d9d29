import { type LuaApi, startLua } from './lua.mjs';

/** What Lua gets from a command, and what a script returns. An error is an `Error`, a status is `{ ok }`. */
export type Reply = string | number | null | { readonly ok: string } | Error | readonly Reply[];

const GLOBALS = -10_002;
const REGISTRY = -10_000;
const BOOLEAN = 1;
const NUMBER = 3;
const STRING = 4;
const TABLE = 5;
const NIL = 0;
/** Removes the top of the stack. */
const POP = -2;
const FIRST_BUFFER = 65_536;

const latin1 = new TextDecoder('latin1');

/** An error as Redis returns it. */
export function replyError(message: string): Error {
  return Object.assign(new Error(message), { name: 'ReplyError' });
}

/**
 * The Lua of Redis, 5.1, running scripts as Redis does: numbers are converted in the same way, and script errors become
 * replies.
 *
 * It uses the C API, because the library's own conversion costs 100 times as much. Strings have one byte per character.
 */
export class LuaEngine {
  readonly #api: LuaApi;
  readonly #state: number;
  readonly #length: number;
  #buffer: number;
  #size = FIRST_BUFFER;
  readonly #names = new Map<string, number>();
  readonly #compiled = new Map<string, number>();
  #onCall: (command: string[]) => Reply = () => null;

  static async create(): Promise<LuaEngine> {
    const { api, state } = await startLua();
    return new LuaEngine(api, state);
  }

  private constructor(api: LuaApi, state: number) {
    this.#api = api;
    this.#state = state;
    this.#buffer = api._malloc(this.#size);
    this.#length = api._malloc(4);
    api._lua_createtable(state, 0, 2);
    const callback = api.addFunction((caller) => this.#answer(caller), 'ii');
    api._lua_pushcclosure(state, callback, 0);
    this.#setField(state, POP, 'call');
    // Redis 7.0.15, as reported by INFO.
    api._lua_pushnumber(state, 0x07000f);
    this.#setField(state, POP, 'REDIS_VERSION_NUM');
    this.#setField(state, GLOBALS, 'redis');
  }

  /** Runs a script. `call` replies to its commands. */
  run(script: string, keys: readonly string[], argv: readonly string[], call: (command: string[]) => Reply): Reply {
    const api = this.#api;
    const state = this.#state;
    const top = api._lua_gettop(state);
    this.#onCall = call;
    this.#push(state, keys);
    this.#setField(state, GLOBALS, 'KEYS');
    this.#push(state, argv);
    this.#setField(state, GLOBALS, 'ARGV');
    api._lua_rawgeti(state, REGISTRY, this.#compile(script));
    const status = api._lua_pcall(state, 0, 1, 0);
    const result = this.#read(state, api._lua_gettop(state));
    const reply =
      status === 0 || result instanceof Error
        ? result
        : replyError(typeof result === 'string' ? result : 'ERR the script failed');
    api._lua_settop(state, top);
    return reply;
  }

  #answer(state: number): number {
    const api = this.#api;
    const command = Array.from({ length: api._lua_gettop(state) }, (_, index) =>
      // As in Redis, a number keeps all its digits.
      api._lua_type(state, index + 1) === NUMBER
        ? String(api._lua_tonumber(state, index + 1))
        : this.#text(state, index + 1),
    );
    const reply = this.#onCall(command);
    if (!(reply instanceof Error)) {
      this.#push(state, reply);
      return 1;
    }
    // As in Redis 7 and later, an error is a table.
    api._lua_createtable(state, 0, 1);
    this.#pushText(state, reply.message);
    this.#setField(state, POP, 'err');
    return api._lua_error(state);
  }

  #push(state: number, value: Reply): void {
    const api = this.#api;
    if (value === null) api._lua_pushboolean(state, 0);
    else if (typeof value === 'number') api._lua_pushnumber(state, value);
    else if (typeof value === 'string') this.#pushText(state, value);
    else if (value instanceof Error) throw new TypeError('An error must be raised, not pushed.');
    else if ('ok' in value) {
      api._lua_createtable(state, 0, 1);
      this.#pushText(state, value.ok);
      this.#setField(state, POP, 'ok');
    } else {
      api._lua_createtable(state, value.length, 0);
      value.forEach((item, index) => {
        this.#push(state, item);
        api._lua_rawseti(state, POP, index + 1);
      });
    }
  }

  #pushText(state: number, text: string): void {
    const api = this.#api;
    if (text.length > this.#size) {
      api._free(this.#buffer);
      this.#size = 2 * text.length;
      this.#buffer = api._malloc(this.#size);
    }
    const { HEAPU8: heap } = api;
    for (let index = 0; index < text.length; index += 1) heap[this.#buffer + index] = text.charCodeAt(index);
    api._lua_pushlstring(state, this.#buffer, text.length);
  }

  #text(state: number, at: number): string {
    const api = this.#api;
    const address = api._lua_tolstring(state, at, this.#length);
    const length = api.HEAP32[this.#length >> 2] ?? 0;
    return latin1.decode(api.HEAPU8.subarray(address, address + length));
  }

  #read(state: number, at: number): Reply {
    const api = this.#api;
    switch (api._lua_type(state, at)) {
      case STRING:
        return this.#text(state, at);
      case NUMBER:
        return Math.trunc(api._lua_tonumber(state, at));
      case BOOLEAN:
        return api._lua_toboolean(state, at) === 1 ? 1 : null;
      case TABLE:
        return this.#readTable(state, at);
      default:
        return null;
    }
  }

  #readTable(state: number, at: number): Reply {
    const api = this.#api;
    api._lua_getfield(state, at, this.#name('err'));
    const error = api._lua_type(state, -1) === STRING ? this.#text(state, -1) : undefined;
    api._lua_settop(state, POP);
    if (error !== undefined) return replyError(error);
    const items: Reply[] = [];
    for (let index = 1; ; index += 1) {
      api._lua_rawgeti(state, at, index);
      // As in Redis, an array ends at its first nil.
      const isEnd = api._lua_type(state, -1) === NIL;
      if (!isEnd) items.push(this.#read(state, api._lua_gettop(state)));
      api._lua_settop(state, POP);
      if (isEnd) return items;
    }
  }

  #compile(script: string): number {
    const known = this.#compiled.get(script);
    if (known !== undefined) return known;
    const api = this.#api;
    const bytes = Buffer.from(script, 'latin1');
    const address = api._malloc(bytes.length);
    api.HEAPU8.set(bytes, address);
    if (api._luaL_loadbuffer(this.#state, address, bytes.length, this.#name('@user_script')) !== 0) {
      throw new Error(this.#text(this.#state, -1));
    }
    api._free(address);
    const reference = api._luaL_ref(this.#state, REGISTRY);
    this.#compiled.set(script, reference);
    return reference;
  }

  #setField(state: number, at: number, name: string): void {
    this.#api._lua_setfield(state, at, this.#name(name));
  }

  #name(name: string): number {
    let address = this.#names.get(name);
    if (address === undefined) {
      const bytes = Buffer.from(`${name}\0`, 'latin1');
      address = this.#api._malloc(bytes.length);
      this.#api.HEAPU8.set(bytes, address);
      this.#names.set(name, address);
    }
    return address;
  }
}
