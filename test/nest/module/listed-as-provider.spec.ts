import { Test } from '@nestjs/testing';
import { DistributedLockModule, LockAdmin, LockConfigError, LockService } from '../../../lib/index.js';
import { MemoryLockProvider } from '../../../lib/providers/memory/memory-lock-provider.js';

it.each([LockService, LockAdmin])('%p in the providers of a module fails the boot', async (provided) => {
  const imports = [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })];
  const compiled = Test.createTestingModule({ imports, providers: [provided] }).compile();
  const error: unknown = await compiled.catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(LockConfigError);
  expect((error as Error).message).toBe(
    `${provided.name} is in the "providers" of a module: remove it there. DistributedLockModule provides it to every module of the application.`,
  );
});
