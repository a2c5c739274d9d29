import { Lua } from 'wasmoon-lua5.1';

// Plain JavaScript, because the types of this package refer to files that it lacks. The types of its C API are in
// lua.d.mts.
export async function startLua() {
  const lua = await Lua.create({});
  return { api: lua.luaApi.module, state: lua.global.address };
}
