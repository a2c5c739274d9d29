import { type ArgumentsHost, Catch, type ExceptionFilter } from '@nestjs/common';
import { BaseExceptionFilter, type HttpAdapterHost } from '@nestjs/core';
import { throwError } from 'rxjs';
import { LockError } from '../lock/errors.js';
import { setRetryAfter } from './transports/http/http-response.js';
import { type HttpLockStatuses, toHttpException } from './transports/http/lock-http-exception.js';

/** Answers HTTP clients for lock errors that are thrown where no interceptor sees them: in guards and in middleware. */
@Catch(LockError)
export class LockErrorFilter implements ExceptionFilter<LockError> {
  constructor(
    // A host and not its adapter, which a testing module gets only after it was compiled.
    private readonly host: HttpAdapterHost,
    private readonly statuses: HttpLockStatuses = {},
  ) {}

  catch(error: LockError, host: ArgumentsHost): unknown {
    // Other transports expect an observable that fails.
    if (host.getType() !== 'http') return throwError(() => error);
    const { httpAdapter } = this.host;
    const exception = toHttpException(error, this.statuses);
    if (exception) setRetryAfter(httpAdapter, host.switchToHttp().getResponse(), exception);
    new BaseExceptionFilter(httpAdapter).catch(exception ?? error, host);
    return undefined;
  }
}

/** Catches nothing: stands where `mapErrors: false` leaves lock errors to the application's own filters. */
@Catch(class NeverThrown extends Error {})
export class InertFilter implements ExceptionFilter<never> {
  catch(error: never): never {
    throw error;
  }
}
