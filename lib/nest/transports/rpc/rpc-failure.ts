import type { ArgumentsHost } from '@nestjs/common';
import { type Observable, throwError } from 'rxjs';
import type { LockError } from '../../../api/errors.js';
import { toMessageError } from '../message-error.js';
import { grpcFailure } from './grpc-failure.js';

/**
 * The answer of a filter of a microservice: an observable that fails with the client's error. Nest itself makes the same of an
 * `RpcException`, so this needs no class of @nestjs/microservices, which this package never loads.
 */
export function rpcFailure(error: LockError, host: ArgumentsHost): Observable<unknown> {
  return grpcFailure(error, host) ?? throwError(() => toMessageError(error));
}
