import type { ProcessReport, SwitchRecord } from './switch-record.js';

/** Which of the processes in the record are still there: those whose count has moved, by this process's own clock. */
export class Fleet {
  readonly #seen = new Map<string, { beat: number; at: number }>();

  /** @param patience for how long a process that does not write counts as present, in ms */
  constructor(private readonly patience: number) {}

  /** The reports in the record, without those of processes that are gone. */
  present({ processes }: SwitchRecord, now: number): Readonly<Record<string, ProcessReport>> {
    for (const id of this.#seen.keys()) if (!(id in processes)) this.#seen.delete(id);
    const present: Record<string, ProcessReport> = {};
    for (const [id, report] of Object.entries(processes)) {
      const seen = this.#seen.get(id);
      if (seen?.beat !== report.beat) this.#seen.set(id, { beat: report.beat, at: now });
      else if (now - seen.at > this.patience) continue;
      present[id] = report;
    }
    return present;
  }
}

/** Whether most of the processes say that the engine does not answer. */
export function mostMiss(engine: string, processes: Readonly<Record<string, ProcessReport>>): boolean {
  const reports = Object.values(processes);
  return reports.filter(({ down }) => down.includes(engine)).length * 2 > reports.length;
}

/** Whether any of the processes says that the engine does not answer. */
export function anyMisses(engine: string, processes: Readonly<Record<string, ProcessReport>>): boolean {
  return Object.values(processes).some(({ down }) => down.includes(engine));
}
