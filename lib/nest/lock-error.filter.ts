import { type ArgumentsHost, Catch } from '@nestjs/common';
import { type AbstractHttpAdapter, BaseExceptionFilter } from '@nestjs/core';
import { throwError } from 'rxjs';
import { LockError } from '../lock/errors.js';
import { setProblemHeaders } from './transports/http/http-response.js';
import { type HttpLockStatuses, toHttpException } from './transports/http/lock-http-exception.js';

/** Answers HTTP clients for lock errors that are thrown where no interceptor sees them: in guards and in middleware. */
@Catch(LockError)
export class LockErrorFilter extends BaseExceptionFilter {
  constructor(
    private readonly adapter: AbstractHttpAdapter,
    private readonly statuses: HttpLockStatuses,
  ) {
    super(adapter);
  }

  override catch(error: LockError, host: ArgumentsHost): unknown {
    // Other transports expect an observable that fails.
    if (host.getType() !== 'http') return throwError(() => error);
    const exception = toHttpException(error, this.statuses);
    if (exception) setProblemHeaders(this.adapter, host.switchToHttp().getResponse(), exception);
    super.catch(exception ?? error, host);
    return undefined;
  }
}

/** Catches nothing: stands where `mapErrors: false` leaves lock errors to the application's own filters. */
@Catch(class NeverThrown extends Error {})
export class InertFilter {
  catch(error: unknown): never {
    throw error;
  }
}
