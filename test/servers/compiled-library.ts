import { transform } from '@swc/core';
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { writeLuaModules } from '../../scripts/lua-modules.mjs';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** The library compiled to JavaScript in a temporary folder, for processes that run without Jest. */
export interface CompiledLibrary {
  readonly folder: string;
  remove(): Promise<void>;
}

/** Compiles lib/ without type checking. */
export async function compileLibrary(): Promise<CompiledLibrary> {
  const target = await mkdtemp(join(tmpdir(), 'lock-library-'));
  await writeFile(join(target, 'package.json'), '{ "type": "module" }');
  await symlink(join(ROOT, 'node_modules'), join(target, 'node_modules'));
  writeLuaModules(join(ROOT, 'lib'), target);
  const names = await readdir(join(ROOT, 'lib'), { recursive: true });
  await Promise.all(
    names
      .filter((name) => name.endsWith('.ts'))
      .map(async (source) => {
        const { code } = await transform(await readFile(join(ROOT, 'lib', source), 'utf8'), {
          filename: source,
          swcrc: false,
          jsc: {
            parser: { syntax: 'typescript', decorators: true },
            // Required by Nest's decorators.
            transform: { legacyDecorator: true, decoratorMetadata: true },
            target: 'es2022',
          },
          module: { type: 'es6' },
        });
        const file = join(target, source.replace(/\.ts$/, '.js'));
        await mkdir(dirname(file), { recursive: true });
        await writeFile(file, code);
      }),
  );
  return {
    folder: target,
    remove: () => rm(target, { recursive: true, force: true }),
  };
}
