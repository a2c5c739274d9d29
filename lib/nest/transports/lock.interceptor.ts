import {
  type CallHandler,
  type ExecutionContext,
  Inject,
  Injectable,
  type NestInterceptor,
  StreamableFile,
} from '@nestjs/common';
import { EXCEPTION_FILTERS_METADATA } from '@nestjs/common/constants.js';
import { HttpAdapterHost } from '@nestjs/core';
import { catchError, defaultIfEmpty, EMPTY, map, type Observable, tap } from 'rxjs';
import { LockConfigError, LockError } from '../../api/errors.js';
import { type DeclaredMethod, locksBehind } from '../methods/declared-method.js';
import { lockCall } from '../methods/method-call.js';
import { LockService } from '../service/lock.service.js';
import { observed } from '../methods/results/observable.js';
import { logger } from '../options/module-logger.js';
import { type DistributedLockModuleOptions, MODULE_OPTIONS_TOKEN } from '../options/module-options.js';
import { catches } from './own-filters.js';
import { observedInRequest, type RequestContext, requestLockOf, runInRequest } from '../methods/request-context.js';
import { isStream, keepRequestStreams } from '../methods/streams.js';
import { reportedToGraphql } from './graphql/reported-iteration.js';
import { asHttpError, reportFileErrors } from './http/http-response.js';
import { hasSocketTimeout, signalOfResponse, streamedResponse } from './http/streamed-response.js';
import { requestOf } from './request-of.js';
import { sendException } from './ws/exception-event.js';

/**
 * Registered globally by `DistributedLockModule`. Makes the request available to key templates (`#{request…}`), takes
 * the locks of handlers with `around: 'request'`, and turns lock errors into what the transport understands.
 */
@Injectable()
export class LockInterceptor implements NestInterceptor {
  readonly #warnedOf = new Set<DeclaredMethod>();

  /** @internal */
  constructor(
    @Inject(MODULE_OPTIONS_TOKEN) private readonly options: DistributedLockModuleOptions,
    @Inject(LockService) private readonly service: LockService,
    @Inject(HttpAdapterHost) private readonly host: HttpAdapterHost,
  ) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const methods = locksBehind(context.getHandler());
    const [method] = methods;
    // An interceptor runs twice where it is registered globally and named once more by the controller.
    if (method && requestLockOf(method)) return next.handle();
    const request = requestOf(context);
    const whenSent = method && context.getType() === 'http' ? signalOfResponse(context, method.name) : undefined;
    const result =
      method?.isAroundRequest === true
        ? this.#around(method, { request, methods, answered: whenSent }, context, next)
        : observedInRequest({ request, methods, answered: whenSent }, next).pipe(
            tap((value) => {
              // The lock of a generator is held until it was read to its end.
              if (method && context.getType() === 'http' && isStream(value)) this.#warnOfSlowReaders(method, context);
            }),
          );
    // A skipped handler gives no value, and Nest fails over that.
    const skips = methods.some((each) => each.planIn(this.service).onBusy === 'skip');
    const answered = skips ? result.pipe(defaultIfEmpty(undefined)) : result;
    if (this.options.mapErrors === false) return answered;
    return answered.pipe(
      map((value) => this.#reported(value, context)),
      catchError((error: unknown) => this.#failed(error, context)),
    );
  }

  #around(
    method: DeclaredMethod,
    request: RequestContext,
    context: ExecutionContext,
    next: CallHandler,
  ): Observable<unknown> {
    const plan = method.planIn(this.service);
    // Nest 11 forgets the messages of a gRPC client that has ended its stream before the handler runs.
    keepRequestStreams(context.getArgs());
    const isHttp = context.getType() === 'http';
    const handler = isHttp ? next : { handle: () => next.handle().pipe(tap(refuseStream(method))) };
    return observed(
      (signal) => runInRequest(request, () => lockCall(method, undefined, [], signal, this.service)),
      (lock) => observedInRequest({ ...request, locked: { method, plan, lock } }, handler),
      (result) => {
        const sending = isHttp ? streamedResponse(context, method.methodName, result) : undefined;
        if (sending) this.#warnOfSlowReaders(method, context);
        return sending;
      },
    );
  }

  // Found when it streams, since the type of a method rarely says so. A bound by default would be worse: a response that goes on under a lost
  // lock looks complete.
  #warnOfSlowReaders(method: DeclaredMethod, context: ExecutionContext): void {
    if (this.#warnedOf.has(method)) return;
    if (method.planIn(this.service).lock.settings.maxHold !== Infinity || hasSocketTimeout(context)) return;
    this.#warnedOf.add(method);
    logger.warn(
      `${method.name} streams its response under its lock: a client that stops reading keeps the lock for as long as its connection lasts. ` +
        'Set maxHold, or let app.getHttpServer().setTimeout() end a connection that stands still. (Warned once for each method.)',
    );
  }

  /** A result that is read after the filters have run, so that its lock errors arrive as all others do. */
  #reported(value: unknown, context: ExecutionContext): unknown {
    switch (context.getType<string>()) {
      case 'graphql':
        return reportedToGraphql(value, context.getArgByIndex(3));
      case 'http':
        if (value instanceof StreamableFile) reportFileErrors(value, this.options, this.host.httpAdapter);
        return value;
      default:
        return value;
    }
  }

  // RPC and GraphQL wait for the filter, which they have everywhere: it needs no class of packages that may be absent.
  #failed(error: unknown, context: ExecutionContext): Observable<never> {
    if (!LockError.is(error)) throw error;
    const type = context.getType();
    if (type === 'http') {
      throw asHttpError(error, this.options, this.host.httpAdapter, context.switchToHttp().getResponse());
    }
    if (type === 'ws' && !filtersOf(context).some((filter) => catches(filter, error))) {
      sendException(context.switchToWs().getClient(), error);
      return EMPTY;
    }
    throw error;
  }
}

/** The filters of a handler and of its class. */
function filtersOf(context: ExecutionContext): object[] {
  return [context.getHandler(), context.getClass()].flatMap(
    (place) => (Reflect.getMetadata(EXCEPTION_FILTERS_METADATA, place) ?? []) as object[],
  );
}

// Only over HTTP is it known when a stream has been sent to its end.
function refuseStream(method: DeclaredMethod): (result: unknown) => void {
  return (result) => {
    if (!isStream(result)) return;
    throw new LockConfigError(
      `${method.name} returns a stream, whose end is known over HTTP only: remove around: 'request' and write an async generator, whose lock is held to its end.`,
    );
  };
}
