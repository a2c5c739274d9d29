// Loaded before a program by `node --import`: TypeORM is not installed for it.
import { register } from 'node:module';
import { isMainThread } from 'node:worker_threads';

// The hooks run in a thread of their own.
if (isMainThread) register(import.meta.url);

export function resolve(specifier, context, next) {
  if (specifier === 'typeorm' || specifier.endsWith('/typeorm')) throw new Error(`${specifier} is not installed`);
  return next(specifier, context);
}
