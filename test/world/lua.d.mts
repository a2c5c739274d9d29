/** The part of the Lua 5.1 C API that is used here. */
export interface LuaApi {
  readonly HEAPU8: Uint8Array;
  readonly HEAP32: Int32Array;
  _malloc(size: number): number;
  _free(address: number): void;
  addFunction(callback: (state: number) => number, signature: string): number;
  _lua_createtable(state: number, items: number, fields: number): void;
  _lua_pushcclosure(state: number, callback: number, upvalues: number): void;
  _lua_setfield(state: number, at: number, name: number): void;
  _lua_getfield(state: number, at: number, name: number): void;
  _lua_pushboolean(state: number, value: number): void;
  _lua_pushnumber(state: number, value: number): void;
  _lua_pushlstring(state: number, text: number, length: number): void;
  _lua_rawseti(state: number, at: number, index: number): void;
  _lua_rawgeti(state: number, at: number, index: number): void;
  _lua_tolstring(state: number, at: number, length: number): number;
  _lua_tonumber(state: number, at: number): number;
  _lua_toboolean(state: number, at: number): number;
  _lua_type(state: number, at: number): number;
  _lua_gettop(state: number): number;
  _lua_settop(state: number, top: number): void;
  _lua_pcall(state: number, args: number, results: number, handler: number): number;
  _lua_error(state: number): number;
  _luaL_loadbuffer(state: number, text: number, length: number, name: number): number;
  _luaL_ref(state: number, table: number): number;
}

/** Starts Lua 5.1: its C API, and the address of its state. */
export function startLua(): Promise<{ readonly api: LuaApi; readonly state: number }>;
