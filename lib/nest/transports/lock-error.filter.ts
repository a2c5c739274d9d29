import { type ArgumentsHost, Catch, type ExceptionFilter, Inject } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { LockError } from '../../api/errors.js';
import { type DistributedLockModuleOptions, MODULE_OPTIONS_TOKEN } from '../options/module-options.js';
import { sendException } from './websocket-exception.js';
import { HttpErrors, LockHttpException } from './http-errors.js';
import { toGraphqlError } from './lock-graphql-error.js';
import { rpcFailure } from './rpc-failure.js';

/**
 * Responds to lock errors in each transport's own format. `DistributedLockModule` registers it globally.
 *
 * Global filters do not apply to gateways or to a hybrid application without `inheritAppConfig`: add
 * `@UseFilters(LockErrorFilter)` there.
 */
@Catch(LockError, LockHttpException)
export class LockErrorFilter implements ExceptionFilter<LockError | LockHttpException> {
  readonly #http: HttpErrors;

  /** @internal */
  constructor(
    @Inject(MODULE_OPTIONS_TOKEN) options: DistributedLockModuleOptions,
    @Inject(HttpAdapterHost) host: HttpAdapterHost,
  ) {
    this.#http = new HttpErrors(options, host);
  }

  catch(thrown: LockError | LockHttpException, host: ArgumentsHost): unknown {
    const type = host.getType<string>();
    if (type === 'http') {
      this.#http.answer(thrown, host.switchToHttp().getResponse());
      return undefined;
    }
    if (!LockError.is(thrown)) throw thrown;
    if (type === 'rpc') return rpcFailure(thrown, host);
    if (type === 'graphql') throw toGraphqlError(thrown);
    if (type !== 'ws') throw thrown;
    sendException(host.switchToWs().getClient(), thrown);
    return undefined;
  }
}
