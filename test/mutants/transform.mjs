import swc from '@swc/jest';
import { createHash } from 'node:crypto';
import { join, relative } from 'node:path';
import luaModules from '../../scripts/lua-modules.mjs';
import { planted } from './index.mjs';

const root = join(import.meta.dirname, '../..');
const { MUTANT } = process.env;
const mutant = MUTANT === undefined ? undefined : JSON.parse(MUTANT);
const typescript = swc.createTransformer();

/** A Jest transform that plants a fault in a source in memory. The files are not changed. */
export default {
  process: (text, path, options) => transformerOf(path).process(sourceOf(text, path), path, options),
  processAsync: async (text, path, options) => {
    const transformer = transformerOf(path);
    return await (transformer.processAsync ?? transformer.process)(sourceOf(text, path), path, options);
  },
  // The key includes the text with the fault. All other files are transformed only once for all faults.
  getCacheKey: (text, path, options) =>
    createHash('sha256')
      .update([options.configString, options.instrument, options.supportsStaticESM, path].join('\n'))
      .update(sourceOf(text, path))
      .digest('hex'),
};

function transformerOf(path) {
  return path.endsWith('.lua') ? luaModules : typescript;
}

function sourceOf(text, path) {
  return relative(root, path) === mutant?.file ? planted(mutant, text) : text;
}
