import { Inject } from '@nestjs/common';

/** The injection token of the lock service on one provider. */
export function getLockServiceToken(provider: string): string {
  // Nest prints it when nothing provides it, so it contains what to do.
  return `LockService of "${provider}": name it in "providers" of DistributedLockModule.forRoot(), or in "providers" and "names" of forRootAsync()`;
}

/** Injects the lock service on one provider, which the module must know by name (`providers`, or `names` with `forRootAsync`). */
export function InjectLockService(provider: string): ParameterDecorator & PropertyDecorator {
  return Inject(getLockServiceToken(provider));
}
