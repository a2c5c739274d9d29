import {
  type CallHandler,
  type ExecutionContext,
  Inject,
  Injectable,
  type NestInterceptor,
  StreamableFile,
} from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { catchError, defaultIfEmpty, EMPTY, map, type Observable, tap } from 'rxjs';
import { LockConfigError, LockError } from '../../api/errors.js';
import { type DeclaredMethod, locksBehind } from '../methods/declared-method.js';
import { lockCall } from '../methods/method-call.js';
import { observedInRequest, type RequestContext, requestLockOf } from '../methods/request-context.js';
import { observed } from '../methods/results/observable.js';
import { isStream, keepRequestStreams } from '../methods/results/streams.js';
import { logger } from '../options/module-logger.js';
import { type DistributedLockModuleOptions, MODULE_OPTIONS_TOKEN } from '../options/module-options.js';
import { LockService } from '../service/lock.service.js';
import { isCaught, sendException } from './websocket-exception.js';
import { HttpErrors } from './http-errors.js';
import { reportedToGraphql } from './lock-graphql-error.js';
import { hasSocketTimeout, signalOfResponse, streamedResponse } from './streamed-response.js';

/**
 * Runs around each request: makes the request available to key templates (`#{request…}`), acquires the locks of
 * handlers with `around: 'request'`, and maps lock errors to the transport's own errors. `DistributedLockModule`
 * registers it globally.
 */
@Injectable()
export class LockRequestInterceptor implements NestInterceptor {
  readonly #http: HttpErrors;
  readonly #warnedOf = new Set<DeclaredMethod>();

  /** @internal */
  constructor(
    @Inject(MODULE_OPTIONS_TOKEN) private readonly options: DistributedLockModuleOptions,
    @Inject(LockService) private readonly service: LockService,
    @Inject(HttpAdapterHost) host: HttpAdapterHost,
  ) {
    this.#http = new HttpErrors(options, host);
  }

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const methods = locksBehind(context.getHandler());
    const [method] = methods;
    const isAround = method?.isAroundRequest === true;
    // An interceptor runs twice if it is registered globally and also set on the controller.
    if (isAround && requestLockOf(method)?.context === context) return next.handle();
    const type = context.getType<string>();
    const answered = method && type === 'http' ? signalOfResponse(context, method.name) : undefined;
    const request = { request: requestOf(context), methods, answered };
    let result = isAround ? this.#around(method, request, context, next) : observedInRequest(request, next);
    // Nest fails if a skipped handler doesn't emit a value. A promise always emits one.
    const canBeEmpty = isAround || method?.kind === 'observable';
    if (canBeEmpty && methods.some((each) => each.planIn(this.service).onBusy === 'skip')) {
      result = result.pipe(defaultIfEmpty(undefined));
    }
    const mapsErrors = this.options.mapErrors !== false;
    result = result.pipe(
      map((value) => {
        // A generator's lock is held until its last value has been read.
        if (method && !isAround && type === 'http' && isStream(value)) this.#warnOfSlowReaders(method, context);
        // Streams and generators are read after the filters have run. Their lock errors must reach clients like any
        // others.
        if (mapsErrors && value instanceof StreamableFile && type === 'http') this.#http.answerFor(value);
        return mapsErrors && type === 'graphql' ? reportedToGraphql(value, context.getArgByIndex(3)) : value;
      }),
    );
    return mapsErrors ? result.pipe(catchError((error: unknown) => this.#failed(error, context))) : result;
  }

  #around(
    method: DeclaredMethod,
    request: RequestContext,
    context: ExecutionContext,
    next: CallHandler,
  ): Observable<unknown> {
    const plan = method.planIn(this.service);
    // Nest 11 drops a gRPC client's messages if the client ends its stream before the handler runs.
    keepRequestStreams(context.getArgs());
    const isHttp = context.getType() === 'http';
    const handler = isHttp ? next : { handle: () => next.handle().pipe(tap(refuseStream(method))) };
    return observed(
      (signal) => lockCall({ method, self: undefined, args: [], request }, signal, this.service),
      (lock) => observedInRequest({ ...request, locked: { method, plan, lock, context } }, handler),
      (result) => {
        const sending = isHttp ? streamedResponse(context, method.methodName, result) : undefined;
        if (sending) this.#warnOfSlowReaders(method, context);
        return sending;
      },
    );
  }

  // Only the response shows whether a method streams; the method's type rarely does. A default limit would be worse: a
  // response that continues after its lock is lost looks complete.
  #warnOfSlowReaders(method: DeclaredMethod, context: ExecutionContext): void {
    if (this.#warnedOf.has(method)) return;
    if (method.planIn(this.service).lock.settings.maxHold !== Infinity || hasSocketTimeout(context)) return;
    this.#warnedOf.add(method);
    logger.warn(
      `${method.name} streams its response under its lock: a client that stops reading keeps the lock for as long as its connection lasts. ` +
        'Set maxHold, or let app.getHttpServer().setTimeout() end stalled connections. (Warned once per method.)',
    );
  }

  // RPC and GraphQL leave the error to the filter, which doesn't need classes from packages that may be missing.
  #failed(error: unknown, context: ExecutionContext): Observable<never> {
    if (!LockError.is(error)) throw error;
    const type = context.getType();
    if (type === 'http') throw this.#http.map(error, context.switchToHttp().getResponse());
    // Nest has no global filters for gateways.
    if (type !== 'ws' || isCaught(error, context)) throw error;
    sendException(context.switchToWs().getClient(), error);
    return EMPTY;
  }
}

/** The value of `#{request…}` for the transport, or `undefined` if it has none. */
function requestOf(context: ExecutionContext): unknown {
  switch (context.getType<string>()) {
    case 'http':
      return context.switchToHttp().getRequest();
    case 'rpc':
      return { data: context.switchToRpc().getData<unknown>(), context: context.switchToRpc().getContext<unknown>() };
    case 'ws':
      return { client: context.switchToWs().getClient<unknown>(), data: context.switchToWs().getData<unknown>() };
    case 'graphql':
      // A resolver's arguments: root, args, context, info.
      return { args: context.getArgByIndex<unknown>(1), context: context.getArgByIndex<unknown>(2) };
    default:
      return undefined;
  }
}

// We can detect the end of a stream only over HTTP.
function refuseStream(method: DeclaredMethod): (result: unknown) => void {
  return (result) => {
    if (!isStream(result)) return;
    throw new LockConfigError(
      `${method.name} returns a stream, and only over HTTP can its end be known. Remove around: 'request' and write an async generator instead, which holds the lock until it finishes.`,
    );
  };
}
