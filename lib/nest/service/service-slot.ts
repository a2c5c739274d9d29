import { Inject } from '@nestjs/common';
import { LockConfigError } from '../../api/errors.js';
import { LockService } from './lock.service.js';

// Nest prints this description if it can't fill the slot, so the text says what to do.
const SLOT = Symbol(
  'LockService for @DistributedLock: import DistributedLockModule.forRoot() in the root module; in a unit test, add provideLockServiceStub() to the providers',
);

// You can't add a property to a frozen object. A WeakMap alone wouldn't be enough: it doesn't recognize a Proxy or
// Object.create(instance).
const frozen = new WeakMap<object, readonly LockService[]>();

/** The services that {@link serviceOf} guessed for instances without one. */
const guessed = new WeakMap<object, LockService>();

/** The lock services of the applications running in this process. */
export const liveServices = new Set<LockService>();

/** The services of applications that are booting. Some are never removed, because Nest doesn't report a failed boot. */
export const bootingServices = new Set<LockService>();

interface WithSlot {
  /** The services of the applications that share this value, in boot order. */
  [SLOT]?: readonly LockService[];
}

/**
 * Lets Nest inject the lock service into each instance of the class. The property is keyed by a private symbol and
 * isn't enumerable, so it doesn't affect the instance's JSON, `Object.keys`, or equality.
 */
export function reserveServiceSlot(prototype: object): void {
  if (SLOT in prototype) return;
  Object.defineProperty(prototype, SLOT, {
    configurable: true,
    enumerable: false,
    get: () => undefined,
    // Nest assigns property dependencies after construction, by calling this setter.
    set(this: object, service: LockService) {
      fillSlot(this, [service]);
    },
  });
  // Required, so a missing module is detected at startup rather than at the first call.
  Inject(LockService)(prototype, SLOT);
}

/**
 * Adds the service to an instance, even one that Nest didn't create. Returns whether the instance also belongs to
 * another live application.
 */
export function addService(instance: object, service: LockService): boolean {
  const known = (instance as WithSlot)[SLOT] ?? frozen.get(instance) ?? [];
  const others = known.filter((each) => each !== service && liveServices.has(each));
  fillSlot(instance, [...others, service]);
  return others.length > 0;
}

/** @throws LockConfigError if the instance has already locked in another application */
function fillSlot(instance: object, services: readonly LockService[]): void {
  const guess = guessed.get(instance);
  if (guess && !services.includes(guess) && !guess.manager.stopping.aborted) {
    throw new LockConfigError(
      `A method of ${instance.constructor.name} was called before Nest injected its lock service, so it locked in another application of this process: call it in onModuleInit() or later.`,
    );
  }
  if (Object.isExtensible(instance)) {
    Object.defineProperty(instance, SLOT, { value: services, configurable: true, enumerable: false, writable: true });
  } else {
    frozen.set(instance, services);
  }
}

/**
 * The lock service for a call to the method `name` on `self`.
 *
 * @throws LockConfigError outside a running application.
 */
export function serviceOf(name: string, self: unknown): LockService {
  const instance = Object(self) as WithSlot;
  let service: unknown;
  // An instance shared by several applications belongs to the first one that hasn't been shut down.
  for (service of instance[SLOT] ?? frozen.get(instance) ?? []) {
    if (!(service instanceof LockService) || !service.manager.stopping.aborted) break;
  }
  if (service === undefined) {
    service = onlyLiveService();
    if (service instanceof LockService) guessed.set(instance, service);
  }
  if (service instanceof LockService) return service;
  if (service !== undefined) {
    // Otherwise, an automatic mock would handle the call instead of the method.
    throw new LockConfigError(
      `${name} was given a mock as its lock service, so it would never run: provide LockService with provideLockServiceStub(), or import DistributedLockTestingModule, instead of your own mock or useMocker().`,
    );
  }
  throw new LockConfigError(
    `${name} was called before Nest injected its lock service, or outside Nest (live applications: ${liveServices.size}): ` +
      'import DistributedLockModule.forRoot() and let Nest make the instance, or provide LockService with provideLockServiceStub() in a unit test.',
  );
}

/** The service, if there's exactly one. With several, any guess could be wrong. */
function onlyLiveService(): LockService | undefined {
  const candidates = liveServices.size > 0 ? liveServices : bootingServices;
  const [first] = candidates;
  return candidates.size === 1 ? first : undefined;
}
