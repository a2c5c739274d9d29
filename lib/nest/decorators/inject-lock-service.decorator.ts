import { Inject } from '@nestjs/common';

/** The injection token of the lock service on one provider. */
export function getLockServiceToken(provider: string): string {
  return `LockService:${provider}`;
}

/** Injects the lock service on one provider, which the module must know by name (`providers`, or `names` with `forRootAsync`). */
export function InjectLockService(provider: string): ParameterDecorator & PropertyDecorator {
  return Inject(getLockServiceToken(provider));
}
