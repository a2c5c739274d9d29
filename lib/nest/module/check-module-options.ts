import { LockConfigError } from '../../api/errors.js';
import type { LockProvider } from '../../api/lock-provider.js';
import { shown } from '../../api/printable.js';
import { checkGiven, type OptionNames, refuseUnknown } from '../../core/toolkit/given-options.js';
import { DEFAULTS } from '../methods/class-defaults.js';
import type { DistributedLockModuleOptions } from '../options/module-options.js';

// Options often come from configuration or JavaScript, where the types did not look. An unknown one would be ignored silently.
const OPTIONS: OptionNames<DistributedLockModuleOptions> = {
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
};

/** @throws LockConfigError for options that the types would have refused */
export function assertUsable(options: unknown): asserts options is DistributedLockModuleOptions {
  if (typeof options !== 'object' || options === null) {
    throw new LockConfigError(
      'The options of DistributedLockModule must be an object: return one from the factory of forRootAsync().',
    );
  }
  assertNoProvider(options);
  refuseUnknown('DistributedLockModule', options, OPTIONS);
  checkGiven('DistributedLockModule', options, 'DistributedLockModule.forRoot({ provider })');
  const { provider, providers, defaults, context, mapErrors } = options as DistributedLockModuleOptions;
  if (defaults) refuseUnknown('DistributedLockModule, "defaults"', defaults, DEFAULTS);
  for (const [name, value] of Object.entries(context ?? {})) assertContextValue(name, value);
  if (mapErrors !== undefined && mapErrors !== false) assertBusyStatus(mapErrors);
  if (providers !== undefined && !isRecord(providers)) {
    throw new LockConfigError(
      `Option "providers" of DistributedLockModule is ${shown(providers)}, but must name each lock provider: { redis: new RedisLockProvider({ url }) }. For one, use "provider".`,
    );
  }
  const given: [option: string, provider: unknown][] = Object.entries(providers ?? {}).map(([name, each]) => [
    `providers.${name}`,
    each,
  ]);
  if (provider !== undefined) given.push(['provider', provider]);
  const wrong = given.flatMap(([option, each]) => whyNoProvider(option, each) ?? []);
  if (wrong.length > 0) throw new LockConfigError(wrong);
}

function assertBusyStatus(mapErrors: unknown): void {
  if (typeof mapErrors !== 'object' || mapErrors === null) {
    throw new LockConfigError(
      `Option "mapErrors" of DistributedLockModule is ${shown(mapErrors)}, but must be false, or { http: { busy: 409 } } for another status of a busy lock than 423.`,
    );
  }
  refuseUnknown('DistributedLockModule, "mapErrors"', mapErrors, { http: true });
  const { http = {} } = mapErrors as { http?: { busy?: unknown } };
  refuseUnknown('DistributedLockModule, "mapErrors.http"', http, { busy: true });
  const { busy } = http;
  const isError = typeof busy === 'number' && Number.isInteger(busy) && busy >= 400 && busy <= 599;
  if (busy === undefined || isError) return;
  throw new LockConfigError(
    `Option "mapErrors.http.busy" of DistributedLockModule is ${shown(busy)}, but must be a number from 400 to 599, the statuses of errors.`,
  );
}

function assertContextValue(name: string, value: unknown): void {
  if (typeof value === 'function') return;
  throw new LockConfigError(
    `Option "context.${name}" of DistributedLockModule is ${shown(value)}, but must be a function that gives the value of a call: write ${name}: () => ….`,
  );
}

/** Nest copies the options of `forRoot()`, and of a provider nothing would be left in the copy. @throws LockConfigError */
export function assertNoProvider(options: object): void {
  if (whyNoProvider('', options) !== undefined) return;
  throw new LockConfigError(
    `The options of DistributedLockModule are a lock provider: pass { provider: new ${nameOfClass(options)}(…) }, also from the factory of forRootAsync().`,
  );
}

function isRecord(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function nameOfClass(value: object): string {
  return (value.constructor as { readonly name?: string } | undefined)?.name || 'RedisLockProvider';
}

/** The complaint about an option that is no lock provider. */
function whyNoProvider(option: string, provider: unknown): string | undefined {
  if (typeof (provider as Partial<LockProvider> | undefined)?.createBackend === 'function') return undefined;
  return typeof provider === 'function'
    ? `Option "${option}" is the class ${provider.name}, but must be an instance: write new ${provider.name}(…).`
    : `Option "${option}" is no lock provider: pass an instance such as new RedisLockProvider({ url }). It is ${typeof provider === 'string' ? 'a text' : shown(provider)}.`;
}
