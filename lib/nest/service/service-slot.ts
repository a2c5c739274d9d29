import { Inject } from '@nestjs/common';
import { LockService } from './lock.service.js';

// Nest prints this description when it cannot fill the slot, so it contains what to do.
const SLOT = Symbol(
  'LockService for @DistributedLock: import DistributedLockModule.forRoot() in the root module; in a unit test, add provideLockServiceStub() to the providers',
);

// Frozen objects take no property. A WeakMap alone would not do: it knows nothing of a Proxy or of Object.create(instance).
const frozen = new WeakMap<object, readonly LockService[]>();

interface WithSlot {
  /** A value that several applications share has a service of each, in the order of their boots. */
  [SLOT]?: readonly LockService[];
}

/**
 * Asks Nest to inject the lock service into each instance of the class, at a place where nobody sees it: under a private
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
      fillServiceSlot(this, [service]);
    },
  });
  // Not optional: a missing module must fail at boot and not at the first call.
  Inject(LockService)(prototype, SLOT);
}

/** Gives the instance its services: calls use the first one that has not stopped. */
export function fillServiceSlot(instance: object, services: readonly LockService[]): void {
  if (Object.isExtensible(instance)) {
    Object.defineProperty(instance, SLOT, { value: services, configurable: true, enumerable: false, writable: true });
  } else {
    frozen.set(instance, services);
  }
}

/** The services of the instance. */
export function servicesInSlot(instance: unknown): readonly LockService[] {
  if (typeof instance !== 'object' || instance === null) return [];
  return (instance as WithSlot)[SLOT] ?? frozen.get(instance) ?? [];
}
