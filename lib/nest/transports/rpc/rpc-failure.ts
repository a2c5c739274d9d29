import type { ArgumentsHost } from '@nestjs/common';
import { type Observable, throwError } from 'rxjs';
import type { LockError } from '../../../api/errors.js';
import { toMessageError } from '../message-error.js';
import { grpcFailure } from './grpc-failure.js';

/**
 * What a filter of a microservice answers: an observable that fails with the client's error. It is what Nest itself makes
 * of an `RpcException`, so no class of @nestjs/microservices is needed, which this package never loads.
 */
export function rpcFailure(error: LockError, host: ArgumentsHost): Observable<unknown> {
  return grpcFailure(error, host) ?? throwError(() => toMessageError(error));
}
