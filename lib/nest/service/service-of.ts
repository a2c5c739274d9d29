import { LockConfigError } from '../../api/errors.js';
import { liveServices, onlyLiveService } from './live-services.js';
import { LockService } from './lock.service.js';
import { servicesInSlot } from './service-slot.js';

/** The lock service for a call of the method `name` on `self`. @throws LockConfigError outside of a running application. */
export function serviceOf(name: string, self: unknown): LockService {
  const services: readonly unknown[] = servicesInSlot(self);
  const service = services.find((each) => !hasStopped(each)) ?? services.at(-1) ?? onlyLiveService();
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

/** An instance that several applications share belongs to the next of them. */
function hasStopped(service: unknown): boolean {
  return service instanceof LockService && service.manager.stopping.aborted;
}
