import type { ReleaseOutcome } from '../../api/lock-provider.js';
import { HEAVY, type Operation } from './batcher.js';
import type { OperationArguments } from './wire.js';

/** The release of a request. */
export class Release implements Operation {
  readonly weight = HEAVY;

  constructor(
    readonly lock: string,
    private readonly fields: OperationArguments,
    private readonly resolve: (outcome: ReleaseOutcome) => void,
  ) {}

  encode(): OperationArguments {
    return this.fields;
  }

  onReply(reply: unknown): void {
    this.resolve(reply === 1 ? 'released' : reply === 0 ? 'lost' : 'unknown');
  }

  onFailure(): void {
    this.resolve('unknown');
  }
}
