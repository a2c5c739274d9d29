import type { ArgumentsHost } from '@nestjs/common';
import { type Observable, of, throwError } from 'rxjs';
import type { LockError } from '../../api/errors.js';
import { toClientError, toMessageError } from './client-error.js';

/** The part of `Metadata` used here. This package never loads @grpc/grpc-js. */
interface GrpcMetadata {
  set(key: string, value: string): void;
}

/** The fields of an error that @grpc/grpc-js reads. */
interface GrpcFailure {
  readonly code: number;
  readonly message: string;
  readonly metadata: GrpcMetadata;
}

/** The stream that a `@GrpcStreamCall` handler receives. */
interface GrpcStream {
  readonly metadata: GrpcMetadata;
  emit(event: 'error', failure: GrpcFailure): void;
}

type GrpcCallback = (failure: GrpcFailure) => void;

// If the lock was busy or unavailable, the method hasn't run, so clients and proxies may repeat the call. Proxies built
// on Envoy can retry RESOURCE_EXHAUSTED and UNAVAILABLE, but not ABORTED, which gRPC defines for retries at a higher
// level (https://grpc.io/docs/guides/status-codes). After a lost lock or a changed row, the call must not be repeated
// as is.
const STATUSES = { busy: 8, unavailable: 14, lost: 10, conflict: 10, misuse: 13 } as const;

/**
 * What a microservice's filter returns: an observable that fails with the client's error. Nest turns an `RpcException`
 * into the same thing, so no class from
 * @nestjs/microservices is needed; this package never loads it.
 */
export function rpcFailure(error: LockError, host: ArgumentsHost): Observable<unknown> {
  const [first, second] = host.getArgs<[unknown, unknown]>();
  if (isMetadata(second)) return throwError(() => toGrpcFailure(error, second));
  if (!isStream(first)) return throwError(() => toMessageError(error));
  // Nest passes the stream to the handler and doesn't respond, so a thrown error would become an unhandled rejection.
  const failure = toGrpcFailure(error, first.metadata);
  if (typeof second === 'function') (second as GrpcCallback)(failure);
  else first.emit('error', failure);
  return of(undefined);
}

function toGrpcFailure(error: LockError, { constructor }: GrpcMetadata): GrpcFailure {
  const { message, code, retryAfter } = toMessageError(error);
  const metadata = new (constructor as new () => GrpcMetadata)();
  const failure = { code: STATUSES[toClientError(error).kind], message, metadata };
  if (code === undefined) return failure;
  metadata.set('lock-code', code);
  // A negative value keeps the client from retrying the call, whatever statuses its retry policy lists (gRFC A6).
  if (retryAfter === undefined) metadata.set('grpc-retry-pushback-ms', '-1');
  else metadata.set('retry-after', String(retryAfter));
  return failure;
}

function isMetadata(value: unknown): value is GrpcMetadata {
  return typeof value === 'object' && value !== null && 'set' in value && 'toHttp2Headers' in value;
}

function isStream(value: unknown): value is GrpcStream {
  return (
    typeof value === 'object' && value !== null && 'emit' in value && 'metadata' in value && isMetadata(value.metadata)
  );
}
