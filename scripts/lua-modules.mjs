import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** The JavaScript module `x.lua.js` that `x.lua` becomes. Its default export is the Lua text. */
export function luaModule(text) {
  return `export default ${JSON.stringify(text)};\n`;
}

/** Writes a module for each `.lua` file in `from` to the same path in `to`. */
export function writeLuaModules(from, to) {
  for (const name of readdirSync(from, { recursive: true })) {
    if (!name.endsWith('.lua')) continue;
    const file = join(to, `${name}.js`);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, luaModule(readFileSync(join(from, name), 'utf8')));
  }
}

/** The transform for Jest. */
export default { process: (text) => ({ code: luaModule(text) }) };
