// `x.lua` is imported as `./x.lua.js`, just as `x.ts` is imported as `./x.js`: see scripts/lua-modules.mjs.
declare module '*.lua.js' {
  const text: string;
  export default text;
}
