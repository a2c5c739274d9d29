import type { Holding } from '../../api/lock-provider.js';
import type { EndTrace } from './tracing.js';

/** Who has notes: a waiter, or a holder. */
interface Noted {
  notes: unknown;
}

/** What is kept of a waiter that does wait, and of a holder that is traced. The others have none. */
export class Notes {
  /** It looks for the label of the holder if its wait is long. */
  isTraced = false;
  /** It is known to wait. */
  isReported = false;
  /** The holder that kept it out when it began to wait, or `null` if that was not known. `undefined` if it has not waited for a lock. */
  found: Holding | null | undefined;
  endTrace: EndTrace | undefined;

  static of({ notes }: Noted): Notes | undefined {
    return notes as Notes | undefined;
  }

  /** Makes them where there are none. */
  static on(noted: Noted): Notes {
    return Notes.of(noted) ?? (noted.notes = new Notes());
  }
}
