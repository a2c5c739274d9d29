import type { ProviderContext } from '../../api/lock-provider.js';
import type { Choice, EngineSelector, Outlook, Position, SwitchListener } from './engine-selector.js';
import { type EngineSwitch, remember, type SwitchReason } from './switch-record.js';

/**
 * Mode `available`: this process alone decides, at once, and asks nobody. Two processes that see different engines lock
 * on different engines, and so do a holder from before a switch and one from after it.
 */
export class AvailableSelector implements EngineSelector {
  #choice: Choice;
  #history: readonly EngineSwitch[] = [];
  /** Chosen by hand, for a reason that nobody here knows: there is no return from it. */
  #isPinned = false;

  constructor(
    private readonly context: ProviderContext,
    private readonly outlook: Outlook,
    private readonly onSwitch: SwitchListener,
  ) {
    const [engine = ''] = outlook.keys();
    this.#choice = { epoch: 1, engine };
  }

  start(): Promise<void> {
    this.onSwitch(this.#choice, undefined);
    return Promise.resolve();
  }

  stop(): Promise<void> {
    return Promise.resolve();
  }

  choose(): Choice {
    return this.#choice;
  }

  validUntil(): number {
    return Infinity;
  }

  confirm(): Promise<boolean> {
    return Promise.resolve(true);
  }

  review(): void {
    const { engine } = this.#choice;
    const names = [...this.outlook.keys()];
    const best = names.find((name) => this.#state(name) === 'up');
    if (this.#state(engine) === 'down') {
      const to = best ?? names.find((name) => this.#state(name) === 'recovering');
      if (to !== undefined) this.#go(to, 'failure');
      return;
    }
    if (!this.#isPinned && best !== undefined && names.indexOf(best) < names.indexOf(engine)) this.#go(best, 'return');
  }

  switchTo(engine: string): Promise<void> {
    if (engine !== this.#choice.engine) this.#go(engine, 'manual');
    this.#isPinned = true;
    // It may be down already: nobody is told again of what is known.
    this.review();
    return Promise.resolve();
  }

  get position(): Position {
    return { active: this.#choice.engine, epoch: this.#choice.epoch, history: this.#history };
  }

  #go(to: string, reason: SwitchReason): void {
    const { epoch, engine: from } = this.#choice;
    this.#choice = { epoch: epoch + 1, engine: to };
    this.#isPinned = false;
    const at = this.context.clock.wallTime();
    this.#history = remember(this.#history, { epoch: epoch + 1, from, to, reason, at });
    this.onSwitch(this.#choice, reason);
  }

  #state(engine: string) {
    return this.outlook.get(engine)?.state;
  }
}
