import { LockError } from '../../../lock/errors.js';

/**
 * Conflict: the row is not as it was when the entity was read. Somebody has written or deleted it since, and nothing of
 * this write was done. Read it again and redo the work: {@link RetryOnConflict}.
 */
export class VersionConflictError extends LockError {
  readonly code = 'LOCK_VERSION_CONFLICT';
}
