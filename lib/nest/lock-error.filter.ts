import { type ArgumentsHost, Catch, type ExceptionFilter, Inject } from '@nestjs/common';
import { BaseExceptionFilter, HttpAdapterHost, ModulesContainer } from '@nestjs/core';
import { LockError } from '../lock/errors.js';
import { type DistributedLockModuleOptions, MODULE_OPTIONS_TOKEN } from './module-options.js';
import { appFilters, catches } from './own-filters.js';
import { toGraphqlError } from './transports/graphql/lock-graphql-error.js';
import { asHttpError, sendProblem } from './transports/http/http-response.js';
import { LockHttpException } from './transports/http/lock-http-exception.js';
import { rpcFailure } from './transports/rpc/rpc-failure.js';
import { sendException } from './transports/ws/exception-event.js';

/**
 * Answers the client of a lock error, as its transport does it. Registered globally by `DistributedLockModule` as the last
 * resort: every filter of the application that catches the error goes first.
 *
 * Nest has no global filters for gateways, and none in a hybrid application that is connected without `inheritAppConfig`:
 * name it there with `@UseFilters(LockErrorFilter)`.
 */
@Catch(LockError, LockHttpException)
export class LockErrorFilter implements ExceptionFilter<LockError | LockHttpException> {
  #appFilters: readonly ExceptionFilter[] | undefined;

  constructor(
    @Inject(MODULE_OPTIONS_TOKEN) private readonly options: DistributedLockModuleOptions,
    // A host and not its adapter, which a testing module gets only after it was compiled.
    @Inject(HttpAdapterHost) private readonly host: HttpAdapterHost,
    @Inject(ModulesContainer) private readonly modules: ModulesContainer,
  ) {}

  catch(thrown: LockError | LockHttpException, host: ArgumentsHost): unknown {
    const { httpAdapter } = this.host;
    const type = host.getType<string>();
    const response: unknown = type === 'http' ? host.switchToHttp().getResponse() : undefined;
    // What a guard throws, the interceptor has not seen.
    const error =
      type === 'http' && LockError.is(thrown) ? asHttpError(thrown, this.options, httpAdapter, response) : thrown;
    this.#appFilters ??= appFilters(this.modules).filter((filter) => !(filter instanceof LockErrorFilter));
    for (const filter of this.#appFilters) {
      if (catches(filter, error)) return filter.catch(error, host) as unknown;
      if (catches(filter, thrown)) return filter.catch(thrown, host) as unknown;
    }
    if (type === 'http') {
      if (error instanceof LockHttpException) sendProblem(httpAdapter, response, error);
      else new BaseExceptionFilter(httpAdapter).catch(error, host);
      return undefined;
    }
    if (!LockError.is(error)) throw error;
    if (type === 'rpc') return rpcFailure(error);
    if (type === 'graphql') throw toGraphqlError(error);
    if (type !== 'ws') throw error;
    sendException(host.switchToWs().getClient(), error);
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
