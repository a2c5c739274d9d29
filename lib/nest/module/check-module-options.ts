import { LockConfigError } from '../../api/errors.js';
import type { LockDefaults } from '../../api/lock-options.js';
import type { LockProvider } from '../../api/lock-provider.js';
import { checkGiven } from '../../core/toolkit/given-options.js';
import type { DistributedLockModuleOptions } from './module-options.js';

// Options often come from configuration or JavaScript, where the types did not look. An unknown one would be ignored silently.
const OPTIONS: Record<keyof DistributedLockModuleOptions, true> = {
  provider: true,
  providers: true,
  default: true,
  namespace: true,
  instance: true,
  defaults: true,
  context: true,
  config: true,
  mapErrors: true,
  shutdownGrace: true,
  failFast: true,
  maxWaiters: true,
  logger: true,
};
const DEFAULTS: Record<keyof LockDefaults, true> = {
  wait: true,
  lease: true,
  maxHold: true,
  reentrant: true,
  onLost: true,
  release: true,
};

/** @throws LockConfigError for options that the types would have refused */
export function assertUsable(options: unknown): asserts options is DistributedLockModuleOptions {
  if (typeof options !== 'object' || options === null) {
    throw new LockConfigError(
      'The options of DistributedLockModule must be an object: return one from the factory of forRootAsync().',
    );
  }
  assertKnown(options, OPTIONS, 'DistributedLockModule has no option');
  checkGiven('DistributedLockModule', options, 'DistributedLockModule.forRoot({ provider })');
  const { provider, providers, defaults, logger } = options as DistributedLockModuleOptions;
  if (defaults) assertKnown(defaults, DEFAULTS, 'Option "defaults" of DistributedLockModule has no');
  if (logger !== undefined) assertLogger(logger);
  const given: [option: string, provider: unknown][] = Object.entries(providers ?? {}).map(([name, each]) => [
    `providers.${name}`,
    each,
  ]);
  if (provider) given.push(['provider', provider]);
  const wrong = given.flatMap(([option, each]) => whyNoProvider(option, each) ?? []);
  if (wrong.length > 0) throw new LockConfigError(wrong);
}

function assertLogger(logger: unknown): void {
  const { log, warn, error } = Object(logger) as Partial<Record<'log' | 'warn' | 'error', unknown>>;
  const [missing] = Object.entries({ log, warn, error }).find(([, method]) => typeof method !== 'function') ?? [];
  if (missing === undefined) return;
  throw new LockConfigError(
    `Option "logger" of DistributedLockModule has no ${missing}(): pass a LoggerService of Nest, such as new Logger('locks').`,
  );
}

function assertKnown(options: object, known: object, complaint: string): void {
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(known, name));
  if (unknown === undefined) return;
  throw new LockConfigError(`${complaint} "${unknown}", but only: ${Object.keys(known).join(', ')}.`);
}

/** What is wrong with it, if it is no lock provider. */
function whyNoProvider(option: string, provider: unknown): string | undefined {
  if (typeof (provider as Partial<LockProvider> | undefined)?.createBackend === 'function') return undefined;
  return typeof provider === 'function'
    ? `Option "${option}" is the class ${provider.name}, but must be an instance: write new ${provider.name}(…).`
    : `Option "${option}" is no lock provider: pass an instance such as new RedisLockProvider({ url }).`;
}
