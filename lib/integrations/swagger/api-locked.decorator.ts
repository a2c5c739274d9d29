import { applyDecorators } from '@nestjs/common';
import { ApiResponse } from '@nestjs/swagger';
import { STATUSES } from '../../nest/transports/http-errors.js';

/**
 * Documents the error responses of a locked handler, or of each handler of a controller: 423 for busy and 503
 * for unavailable, both with `Retry-After` and an RFC 9457 problem. As with any `@ApiResponse` on a handler, Swagger no
 * longer adds the default success response: declare it yourself, for example with `@ApiOkResponse()`.
 *
 * @param statuses set `busy` if the module's `mapErrors: { http }` sets a status other than 423
 */
export function ApiLocked(statuses: { readonly busy?: number } = {}): MethodDecorator & ClassDecorator {
  const { busy = STATUSES.busy } = statuses;
  return applyDecorators(
    lockResponse(busy, 'The resource is in use by another request.', ['LOCK_BUSY', 'LOCK_DEADLOCK']),
    lockResponse(STATUSES.unavailable, 'The resource cannot be locked at the moment.', [
      'LOCK_UNAVAILABLE',
      'LOCK_CAPACITY',
    ]),
  );
}

function lockResponse(status: number, description: string, codes: string[]) {
  const schema = {
    type: 'object',
    required: ['title', 'status', 'detail', 'code'],
    properties: {
      title: { type: 'string' },
      status: { type: 'integer', enum: [status] },
      detail: { type: 'string' },
      code: { type: 'string', enum: codes },
    },
  };
  const retryAfter = { description: 'Seconds to wait before retrying.', schema: { type: 'integer' as const } };
  return ApiResponse({
    status,
    description,
    headers: { 'Retry-After': retryAfter },
    content: { 'application/problem+json': { schema } },
  });
}
