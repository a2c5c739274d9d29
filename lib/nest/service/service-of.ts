import { LockConfigError } from '../../api/errors.js';
import { liveServices, onlyLiveService } from './live-services.js';
import { LockService } from './lock.service.js';
import { serviceInSlot } from './service-slot.js';

/** The lock service for a call of the method `name` on `self`. @throws LockConfigError outside of a running application. */
export function serviceOf(name: string, self: unknown): LockService {
  const service: unknown = serviceInSlot(self) ?? onlyLiveService();
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
