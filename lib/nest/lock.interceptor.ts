import { type CallHandler, type ExecutionContext, Inject, Injectable, type NestInterceptor } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { catchError, defaultIfEmpty, type Observable } from 'rxjs';
import { LockError } from '../lock/errors.js';
import { lockForCall } from './call-lock.js';
import { lockedMethodBehind } from './lock-metadata.js';
import { LockService } from './lock.service.js';
import { lockedObservable } from './locked-observable.js';
import type { LockedMethod } from './locked-method.js';
import { type DistributedLockModuleOptions, MODULE_OPTIONS_TOKEN } from './module-options.js';
import { requestLockOf, runInRequest } from './request-context.js';
import { setRetryAfter, streamedResponse } from './transports/http/http-response.js';
import { toHttpException } from './transports/http/lock-http-exception.js';

/**
 * Registered globally by `DistributedLockModule`. Makes the request available to key templates (`#{request…}`), takes
 * the locks of handlers with `around: 'request'`, and turns lock errors into what the transport understands.
 */
@Injectable()
export class LockInterceptor implements NestInterceptor {
  constructor(
    @Inject(MODULE_OPTIONS_TOKEN) private readonly options: DistributedLockModuleOptions,
    @Inject(LockService) private readonly service: LockService,
    @Inject(HttpAdapterHost) private readonly host: HttpAdapterHost,
  ) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const method = lockedMethodBehind(context.getHandler());
    // It runs twice where it is registered globally and named once more by the controller.
    if (method && requestLockOf(method)) return next.handle();
    const isHttp = context.getType() === 'http';
    const request: unknown = isHttp ? context.switchToHttp().getRequest() : undefined;
    const result =
      method?.options.around === 'request'
        ? this.#around(method, request, context, next)
        : runInRequest({ request }, () => next.handle());
    if (!isHttp) return result;
    // A skipped handler gives no value, and Nest answers 500 for that.
    const answered = method?.options.onBusy === 'skip' ? result.pipe(defaultIfEmpty(undefined)) : result;
    return answered.pipe(catchError((error: unknown) => this.#rethrow(error, context)));
  }

  #around(method: LockedMethod, request: unknown, context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const { service } = this;
    const call = { service, self: undefined, args: [] };
    return lockedObservable(
      async (signal) => runInRequest({ request }, () => lockForCall(method, call, signal)),
      (lock) => runInRequest({ request, locked: { method, service, lock } }, () => next.handle()),
      (result) => (context.getType() === 'http' ? streamedResponse(context, result) : undefined),
    );
  }

  #rethrow(error: unknown, context: ExecutionContext): never {
    const { mapErrors } = this.options;
    if (mapErrors === false || !LockError.is(error)) throw error;
    const exception = toHttpException(error, mapErrors?.http ?? {});
    if (!exception) throw error;
    setRetryAfter(this.host.httpAdapter, context.switchToHttp().getResponse(), exception);
    throw exception;
  }
}
