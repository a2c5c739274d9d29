// Loaded with `node --import`: makes TypeORM appear not to be installed.
import { register } from 'node:module';
import { isMainThread } from 'node:worker_threads';

// The hooks run in a separate thread.
if (isMainThread) register(import.meta.url);

export function resolve(specifier, context, next) {
  if (specifier === 'typeorm' || specifier.endsWith('/typeorm')) throw new Error(`${specifier} is not installed`);
  return next(specifier, context);
}
