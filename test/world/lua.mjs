import { Lua } from 'wasmoon-lua5.1';

// Plain JavaScript, because the types of this package name files that it does not have. The types of its C API stand in lua.d.mts.
export async function startLua() {
  const lua = await Lua.create({});
  return { api: lua.luaApi.module, state: lua.global.address };
}
