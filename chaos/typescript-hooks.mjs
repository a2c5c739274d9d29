import { transformFile } from '@swc/core';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { luaModule } from '../scripts/lua-modules.mjs';

export async function resolve(specifier, context, next) {
  try {
    return await next(specifier, context);
  } catch (error) {
    if (error.code !== 'ERR_MODULE_NOT_FOUND' || !specifier.endsWith('.js')) throw error;
    const module = specifier.slice(0, -'.js'.length);
    return next(module.endsWith('.lua') ? module : `${module}.ts`, context);
  }
}

export async function load(url, context, next) {
  if (url.endsWith('.lua')) {
    const source = luaModule(await readFile(fileURLToPath(url), 'utf8'));
    return { format: 'module', source, shortCircuit: true };
  }
  if (!url.endsWith('.ts')) return next(url, context);
  const { code } = await transformFile(fileURLToPath(url), {
    swcrc: false,
    jsc: {
      parser: { syntax: 'typescript', decorators: true },
      transform: { legacyDecorator: true, decoratorMetadata: true },
      target: 'es2022',
    },
    module: { type: 'es6' },
  });
  return { format: 'module', source: code, shortCircuit: true };
}
