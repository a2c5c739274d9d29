import type { Clock } from '../../api/clock.js';
import type { Records } from '../../api/lock-provider.js';
import { inTime } from './in-time.js';

/** What one process says. */
interface Report {
  /** Counts its writes, so that others see by their own clocks whether it is still there. */
  readonly beat: number;
  /** The engines that do not answer it. */
  readonly down: readonly string[];
}

type Reports = Readonly<Record<string, Report>>;

// Many processes write the same value. Who meets others so often comes again in the next round.
const TRIES = 8;
/** A process that has nothing to complain of says so this often in each window. */
const REPORTS_PER_WINDOW = 2;
/** A process whose count stands still for this many windows is gone. */
const ABSENT_AFTER = 2;

/**
 * Which processes take part, and which engines each of them misses: the ground on which most of them leave an engine.
 * Exclusion does not rest on it, so a report that is late or lost costs time at most.
 */
export class Fleet {
  #text: string | null = null;
  #reports: Reports = {};
  #beat = 0;
  #reportedAt = -Infinity;
  readonly #seen = new Map<string, { beat: number; at: number }>();

  constructor(
    private readonly records: Records,
    private readonly name: string,
    /** A random name that this process has for its life. */
    private readonly self: string,
    private readonly window: number,
    private readonly clock: Clock,
  ) {}

  /** Says which engines do not answer this process, and hears what the others say. */
  async report(down: readonly string[], patience: number): Promise<void> {
    const now = this.clock.now();
    const isNews = String(down) !== String(this.#reports[this.self]?.down ?? []);
    if (!isNews && down.length === 0 && now < this.#reportedAt + this.window / REPORTS_PER_WINDOW) return;
    for (let tries = 0; tries < TRIES; tries += 1) {
      this.#beat += 1;
      const reports = { ...this.#present(now), [this.self]: { beat: this.#beat, down } };
      const text = JSON.stringify(reports);
      const found = await inTime(this.records.compareAndSet(this.name, this.#text, text), patience, this.clock);
      this.#text = found;
      this.#reports = readReports(found);
      if (found !== text) continue;
      this.#reportedAt = now;
      return;
    }
  }

  /** Whether most of the processes say that the engine does not answer. */
  mostMiss(engine: string): boolean {
    const reports = Object.values(this.#reports);
    return reports.filter(({ down }) => down.includes(engine)).length * 2 > reports.length;
  }

  /** Whether any of the processes says that the engine does not answer. */
  anyMisses(engine: string): boolean {
    return Object.values(this.#reports).some(({ down }) => down.includes(engine));
  }

  /** The reports, without those of processes that are gone: whose count has not moved, by this process's own clock. */
  #present(now: number): Reports {
    for (const id of this.#seen.keys()) if (!(id in this.#reports)) this.#seen.delete(id);
    const present: Record<string, Report> = {};
    for (const [id, report] of Object.entries(this.#reports)) {
      const seen = this.#seen.get(id);
      if (seen?.beat !== report.beat) this.#seen.set(id, { beat: report.beat, at: now });
      else if (now - seen.at > this.window * ABSENT_AFTER) continue;
      present[id] = report;
    }
    return present;
  }
}

function isReport(entry: [string, Partial<Report> | null]): entry is [string, Report] {
  return Number.isSafeInteger(entry[1]?.beat) && Array.isArray(entry[1]?.down);
}

/** None where somebody has damaged the value: the next write repairs it. */
function readReports(text: string | null): Reports {
  try {
    const values = JSON.parse(text ?? '{}') as Readonly<Record<string, Partial<Report>>> | null;
    return Object.fromEntries(Object.entries(values ?? {}).filter(isReport));
  } catch {
    return {};
  }
}
