import { Inject } from '@nestjs/common';
import { LockConfigError } from '../../api/errors.js';
import { LockService } from './lock.service.js';

// Nest prints this description when it cannot fill the slot, so it contains what to do.
const SLOT = Symbol(
  'LockService for @DistributedLock: import DistributedLockModule.forRoot() in the root module; in a unit test, add provideLockServiceStub() to the providers',
);

// Frozen objects take no property. A WeakMap alone would not do: it knows nothing of a Proxy or of Object.create(instance).
const frozen = new WeakMap<object, readonly LockService[]>();

/** The lock services of the applications that run in this process. */
export const liveServices = new Set<LockService>();

/** The services of applications that have not booted yet. Nest does not report that a boot has failed, so some of them never will. */
export const bootingServices = new Set<LockService>();

interface WithSlot {
  /** A value that several applications share has a service of each, in the order of their boots. */
  [SLOT]?: readonly LockService[];
}

/**
 * Asks Nest to inject the lock service into each instance of the class, at a place that no other code sees: under a private
 * symbol, not enumerable, so that JSON, `Object.keys` and equality of the instance stay as they are.
 */
export function reserveServiceSlot(prototype: object): void {
  if (SLOT in prototype) return;
  Object.defineProperty(prototype, SLOT, {
    configurable: true,
    enumerable: false,
    get: () => undefined,
    // Nest fills property dependencies by plain assignment after construction, which ends up here.
    set(this: object, service: LockService) {
      fillSlot(this, [service]);
    },
  });
  // Not optional: a missing module must fail at boot and not at the first call.
  Inject(LockService)(prototype, SLOT);
}

/** Gives the service to an instance that Nest may not have constructed. Answers whether the instance belongs to another live application too. */
export function addService(instance: object, service: LockService): boolean {
  const known = (instance as WithSlot)[SLOT] ?? frozen.get(instance) ?? [];
  const others = known.filter((each) => each !== service && liveServices.has(each));
  fillSlot(instance, [...others, service]);
  return others.length > 0;
}

function fillSlot(instance: object, services: readonly LockService[]): void {
  if (Object.isExtensible(instance)) {
    Object.defineProperty(instance, SLOT, { value: services, configurable: true, enumerable: false, writable: true });
  } else {
    frozen.set(instance, services);
  }
}

/** The lock service for a call of the method `name` on `self`. @throws LockConfigError outside of a running application. */
export function serviceOf(name: string, self: unknown): LockService {
  const instance = Object(self) as WithSlot;
  let service: unknown;
  // An instance that several applications share belongs to the first of them that has not stopped.
  for (service of instance[SLOT] ?? frozen.get(instance) ?? []) {
    if (!(service instanceof LockService) || !service.manager.stopping.aborted) break;
  }
  service ??= onlyLiveService();
  if (service instanceof LockService) return service;
  if (service !== undefined) {
    // Otherwise an automatic mock would answer the call instead of the method.
    throw new LockConfigError(
      `${name} was given a mock as its lock service, under which it would not run: provide LockService with provideLockServiceStub(), or import DistributedLockTestingModule, instead of a mock of your own or of useMocker().`,
    );
  }
  throw new LockConfigError(
    `${name} was called before Nest has injected its lock service, or outside of Nest (live applications: ${liveServices.size}): ` +
      'import DistributedLockModule.forRoot() and let Nest make the instance, or provide LockService with provideLockServiceStub() in a unit test.',
  );
}

/** The service, if there is exactly one: with several, a guess could lock in the wrong application. */
function onlyLiveService(): LockService | undefined {
  const candidates = liveServices.size > 0 ? liveServices : bootingServices;
  const [first] = candidates;
  return candidates.size === 1 ? first : undefined;
}
