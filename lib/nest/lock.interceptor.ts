import { type CallHandler, type ExecutionContext, Inject, Injectable, type NestInterceptor } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { catchError, defer, type Observable } from 'rxjs';
import { LockError } from '../lock/errors.js';
import { lockForCall } from './call-lock.js';
import { lockedMethodBehind } from './lock-metadata.js';
import { lockedObservable } from './locked-observable.js';
import type { LockedMethod } from './locked-method.js';
import { type DistributedLockModuleOptions, MODULE_OPTIONS_TOKEN } from './module-options.js';
import { runInRequest } from './request-context.js';
import { setProblemHeaders, streamedResponse } from './transports/http/http-response.js';
import { toHttpException } from './transports/http/lock-http-exception.js';

/**
 * Registered globally by `DistributedLockModule`. Makes the request available to key templates (`#{request…}`), takes
 * the locks of handlers with `around: 'request'`, and turns lock errors into what the transport understands.
 */
@Injectable()
export class LockInterceptor implements NestInterceptor {
  constructor(
    @Inject(MODULE_OPTIONS_TOKEN) private readonly options: DistributedLockModuleOptions,
    @Inject(HttpAdapterHost) private readonly host: HttpAdapterHost,
  ) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const isHttp = context.getType() === 'http';
    const request: unknown = isHttp ? context.switchToHttp().getRequest() : undefined;
    const behind = lockedMethodBehind(context.getHandler());
    const method = behind?.options.around === 'request' ? behind : undefined;
    const handle = () => runInRequest({ request, locked: method }, () => next.handle());
    const result = method ? this.#around(method, request, context, handle) : defer(handle);
    return isHttp ? result.pipe(catchError((error: unknown) => this.#rethrow(error, context))) : result;
  }

  #around(method: LockedMethod, request: unknown, context: ExecutionContext, handle: () => Observable<unknown>) {
    return lockedObservable(
      // The key is read from the request, before the handler is marked as locked.
      (signal) => runInRequest({ request, locked: undefined }, () => lockForCall(method, undefined, [], signal)),
      handle,
      (result) => streamedResponse(context.switchToHttp().getResponse(), result),
    );
  }

  #rethrow(error: unknown, context: ExecutionContext): never {
    const { mapErrors } = this.options;
    if (mapErrors === false || !LockError.is(error)) throw error;
    const exception = toHttpException(error, mapErrors?.http ?? {});
    if (!exception) throw error;
    setProblemHeaders(this.host.httpAdapter, context.switchToHttp().getResponse(), exception);
    throw exception;
  }
}
