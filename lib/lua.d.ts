// `x.lua` is imported as `./x.lua.js`, as `x.ts` is as `./x.js`: see scripts/lua-modules.mjs.
declare module '*.lua.js' {
  const text: string;
  export default text;
}
