import type { EngineState } from './engine-health.js';
import type { EngineSwitch, SwitchReason } from './switch-record.js';

/** Says which engine grants locks. */
export interface EngineSelector {
  /** Resolves when it can say. @throws LockUnavailableError when it cannot say yet; it goes on trying */
  start(): Promise<void>;
  /** Resolves when nothing of it is under way any more. */
  stop(): Promise<void>;
  /** The engine to ask now. @throws LockUnavailableError while none may grant */
  choose(now: number): Choice;
  /** Until when locks that were granted in `epoch` are believed, on the monotonic clock, as things stand at `now`. */
  validUntil(epoch: number, now: number): number;
  /** Makes that as late as can be. Resolves to whether it could; never rejects. */
  confirm(): Promise<boolean>;
  /** The health of an engine has changed. */
  review(): void;
  /** @throws LockUnavailableError when it is unknown whether it was switched */
  switchTo(engine: string): Promise<void>;
  readonly position: Position;
}

/** The engine that grants, and the time in which it does. */
export interface Choice {
  readonly epoch: number;
  readonly engine: string;
}

export interface Position {
  /** The engine that grants locks, or `null` while that is not known. */
  readonly active: string | null;
  readonly epoch: number;
  readonly history: readonly EngineSwitch[];
}

/** Told at each switch that this process makes or learns of; without a reason when it learns of the first engine. */
export type SwitchListener = (choice: Choice, reason: SwitchReason | undefined) => void;

/** What is known of each engine, in the order of preference. */
export type Outlook = ReadonlyMap<string, { readonly state: EngineState }>;
