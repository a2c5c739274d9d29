// Bundles what tsc wrote to dist/ into one file for each entry, and chunks for what entries share, so that an
// application loads a dozen files instead of hundreds. dist/esm is the package; dist/cjs is for tools that can't
// require() an ES module. This uses the WebAssembly build of Rollup, because the native builds are platform-specific
// packages, which a lock file may lack.
import { parse } from 'acorn';
import { isAbsolute } from 'node:path';
import { packageEntries } from './package-entries.mjs';

const entries = packageEntries();

// The CommonJS copy has no declarations of its own, because a second declaration of a class with private members would
// be a different type.
const types = {
  name: 'types',
  generateBundle() {
    for (const { name, types } of entries) {
      const source = `export * from '${types.replace('./dist/', '../').replace(/\.d\.ts$/, '.js')}';\n`;
      this.emitFile({ type: 'asset', fileName: `${name}.d.cts`, source });
    }
  },
};

// Stack traces lead to dist/esm, which keeps its comments. The copy for tools would only repeat them, and an
// application doesn't run the commands, the conformance kit, or the stubs for tests.
const UNCOMMENTED = ['cli', 'provider-kit', 'testing'];
const withoutComments = {
  name: 'without-comments',
  renderChunk(code, { name }, { format }) {
    if (format === 'es' && !UNCOMMENTED.includes(name)) return null;
    const comments = [];
    parse(code, { ecmaVersion: 'latest', sourceType: 'module', onComment: comments });
    let text = '';
    let copied = 0;
    for (const { start, end } of comments) {
      const before = code.slice(copied, start);
      const isWholeLine = /(?:^|\n)[ \t]*$/.test(before) && code[end] === '\n';
      text += isWholeLine ? before.replace(/[ \t]+$/, '') : before;
      copied = isWholeLine ? end + 1 : end;
    }
    return { code: text + code.slice(copied), map: null };
  },
};

const input = Object.fromEntries(entries.map(({ name, types }) => [name, types.replace(/\.d\.ts$/, '.js')]));

const common = {
  external: (id) => !id.startsWith('.') && !isAbsolute(id),
  treeshake: { moduleSideEffects: (_, isExternal) => isExternal },
  onLog(level, log, handle) {
    // tsc's decorator helpers refer to the `this` that a script would have.
    if (log.code !== 'THIS_IS_UNDEFINED') handle(level === 'warn' ? 'error' : level, log);
  },
};

export default [
  {
    ...common,
    // The commands of bin/, which aren't imported from the package.
    input: { ...input, cli: './dist/cli/main.js' },
    output: {
      dir: 'dist/esm',
      format: 'es',
      chunkFileNames: 'chunks/[name].js',
      hoistTransitiveImports: false,
      plugins: [withoutComments],
    },
  },
  {
    ...common,
    input,
    output: {
      dir: 'dist/cjs',
      format: 'cjs',
      exports: 'named',
      entryFileNames: '[name].cjs',
      chunkFileNames: 'chunks/[name].cjs',
      hoistTransitiveImports: false,
      dynamicImportInCjs: false, // Jest rejects import() in CommonJS
      plugins: [withoutComments, types],
    },
  },
];
