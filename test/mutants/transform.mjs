import swc from '@swc/jest';
import { createHash } from 'node:crypto';
import { join, relative } from 'node:path';
import luaModules from '../../scripts/lua-modules.mjs';
import { planted } from './index.mjs';

const root = join(import.meta.dirname, '../..');
const { MUTANT } = process.env;
const mutant = MUTANT === undefined ? undefined : JSON.parse(MUTANT);
const typescript = swc.createTransformer();

/** Jest's transform of a source that may have a planted fault. The files themselves stay as they are. */
export default {
  process: (text, path, options) => transformerOf(path).process(sourceOf(text, path), path, options),
  processAsync: async (text, path, options) => {
    const transformer = transformerOf(path);
    return await (transformer.processAsync ?? transformer.process)(sourceOf(text, path), path, options);
  },
  // By the text with the fault: all other files are transformed one time for all faults.
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
