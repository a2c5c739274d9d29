import { type ArgumentsHost, Catch, type ExceptionFilter, Inject } from '@nestjs/common';
import { BaseExceptionFilter, HttpAdapterHost, type ModulesContainer } from '@nestjs/core';
import { LockError } from '../../api/errors.js';
import { type DistributedLockModuleOptions, MODULE_OPTIONS_TOKEN } from '../options/module-options.js';
import { appFilters, catches } from './own-filters.js';
import { toGraphqlError } from './graphql/lock-graphql-error.js';
import { asHttpError, sendProblem } from './http/http-response.js';
import { LockHttpException } from './http/lock-http-exception.js';
import { rpcFailure } from './rpc/rpc-failure.js';
import { sendException } from './ws/exception-event.js';

/**
 * Answers the client of a lock error, as its transport does it. `DistributedLockModule` registers it globally.
 *
 * Nest has no global filters for gateways, and none in a hybrid application that is connected without `inheritAppConfig`:
 * name it there with `@UseFilters(LockErrorFilter)`.
 */
@Catch(LockError, LockHttpException)
export class LockErrorFilter implements ExceptionFilter<LockError | LockHttpException> {
  /** @internal */
  constructor(
    @Inject(MODULE_OPTIONS_TOKEN) private readonly options: DistributedLockModuleOptions,
    // A host and not its adapter, which a testing module gets only after it was compiled.
    @Inject(HttpAdapterHost) private readonly host: HttpAdapterHost,
  ) {}

  catch(thrown: LockError | LockHttpException, host: ArgumentsHost): unknown {
    const error = this.seenByFilters(thrown, host);
    const type = host.getType<string>();
    if (type === 'http') {
      const { httpAdapter } = this.host;
      if (error instanceof LockHttpException) sendProblem(httpAdapter, host.switchToHttp().getResponse(), error);
      else new BaseExceptionFilter(httpAdapter).catch(error, host);
      return undefined;
    }
    if (!LockError.is(error)) throw error;
    if (type === 'rpc') return rpcFailure(error, host);
    if (type === 'graphql') throw toGraphqlError(error);
    if (type !== 'ws') throw error;
    sendException(host.switchToWs().getClient(), error);
    return undefined;
  }

  // The interceptor has not seen what a guard throws.
  protected seenByFilters(thrown: LockError | LockHttpException, host: ArgumentsHost): LockError | LockHttpException {
    if (host.getType() !== 'http' || !LockError.is(thrown)) return thrown;
    return asHttpError(thrown, this.options, this.host.httpAdapter, host.switchToHttp().getResponse());
  }
}

/** The global one, as the last resort: the application's own global filters that catch the error go first. */
export class LastResortFilter extends LockErrorFilter {
  #others: readonly ExceptionFilter[] | undefined;

  constructor(
    options: DistributedLockModuleOptions,
    host: HttpAdapterHost,
    private readonly modules: ModulesContainer,
  ) {
    super(options, host);
  }

  override catch(thrown: LockError | LockHttpException, host: ArgumentsHost): unknown {
    const error = this.seenByFilters(thrown, host);
    this.#others ??= appFilters(this.modules).filter((filter) => filter !== this);
    for (const filter of this.#others) {
      if (catches(filter, error)) return filter.catch(error, host) as unknown;
      if (catches(filter, thrown)) return filter.catch(thrown, host) as unknown;
    }
    return super.catch(error, host);
  }
}

/** Catches nothing. Used where `mapErrors: false` leaves lock errors to the application's own filters. */
@Catch(class NeverThrown extends Error {})
export class InertFilter implements ExceptionFilter<never> {
  catch(error: never): never {
    throw error;
  }
}
