import { type LockError, LockLostError } from '../../api/errors.js';
import { isReported, markReported } from '../../core/hold/lost-error.js';
import { logger } from '../options/module-logger.js';

/**
 * Logs a loss that the application has thrown itself, such as that of a write which a later holder has refused: its client sees no key and no
 * reason, and the core logs only the losses that it finds.
 */
export function logLoss(error: LockError): void {
  if (!(error instanceof LockLostError) || isReported(error)) return;
  markReported(error);
  logger.warn(error.message);
}
