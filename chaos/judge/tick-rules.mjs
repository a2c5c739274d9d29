// Rules for jobs: a tick must not start twice, nor be missed. A tick is named by the time on the machine's clock. The
// resource records once what that clock shows, relative to its own.

/** The first firing of a round may be scheduled just after a tick. */
const FIRST = 500;
/** At the end of a round, the last ticks may still be pending, for half a period plus the check after a lease. */
const LAST = 4_000;
/**
 * A run starts before its first act is recorded, and a server may be down before its fault is recorded. A caller may
 * still start after the end of the round is recorded, because workers are notified afterwards.
 */
const RECORDED = 200;

export class TickRules {
  #settings;
  /** By key: the tick that was started last, its attempt, and when. */
  #last = new Map();
  /** By key: the ticks that were started. */
  #begun = new Map();
  /** By key: `{ from, to }` of its runs. */
  #runs = new Map();
  /** By key: when a process first fired it in this round. */
  #firedSince = new Map();
  #roundEndedAt = -Infinity;
  #wallAhead = 0;
  /** How many ticks were due, and how many of them were not started for a documented reason. */
  counts = { due: 0, excused: 0 };

  /** `settings` are the `jobs` of a subject: `{ period, afterCrash, outageOver }`. */
  constructor(settings) {
    this.#settings = settings;
  }

  /** `wall` is what the machine's clock showed at the time `at`. */
  start(at, wall) {
    this.#wallAhead = wall - at;
  }

  fired(at, key) {
    const isOfLastRound = at < this.#roundEndedAt + RECORDED;
    if (!isOfLastRound && !this.#firedSince.has(key)) this.#firedSince.set(key, at);
  }

  /** When a tick of this key was last started. */
  lastBegunAt(key) {
    return this.#last.get(key)?.at ?? -Infinity;
  }

  /** A run has started. Returns what is wrong with its tick, if anything is. */
  begun(at, { op, key, tick, attempt }) {
    const last = this.#last.get(key);
    const isAgain = last?.tick === tick && attempt === last.attempt + 1 && attempt <= 1 + this.#settings.afterCrash;
    this.#last.set(key, { tick, attempt, at });
    listOf(this.#begun, key).push(tick);
    const runs = listOf(this.#runs, key);
    // A run that is started again continues the earlier one.
    const before = isAgain && runs.findLast((run) => run.tick === tick);
    runs.push({ op, tick, from: before ? before.from : at, to: Infinity });
    if (isAgain || last === undefined || tick > last.tick) return undefined;
    const name = new Date(tick).toISOString();
    return `tick ${name} (attempt ${attempt}) after ${new Date(last.tick).toISOString()} (attempt ${last.attempt})`;
  }

  /** This caller's run is over, or its process has died. */
  ended(at, op, key) {
    const run = this.#runs.get(key)?.findLast((each) => each.op === op);
    if (run) run.to = at;
  }

  /** The round has ended. Returns the ticks that were not started although no run and no outage prevented it. */
  quiet(at, faults) {
    const { period, outageOver } = this.#settings;
    const missed = [];
    for (const [key, firedSince] of this.#firedSince) {
      const begun = new Set(this.#begun.get(key));
      const runs = this.#runs.get(key) ?? [];
      const first = Math.ceil((firedSince + FIRST + this.#wallAhead) / period) * period;
      for (let tick = first; tick - this.#wallAhead < at - LAST; tick += period) {
        const due = tick - this.#wallAhead;
        const isDueIn = ({ from, to }) => due > from - RECORDED && due < to + RECORDED;
        const outages = faults.filter(({ of }) => of === 'server');
        const isExcused =
          runs.some(isDueIn) || outages.some(({ begin, end }) => isDueIn({ from: begin, to: end + outageOver }));
        this.counts.due += 1;
        if (begun.has(tick)) continue;
        if (isExcused) this.counts.excused += 1;
        else missed.push({ key, what: new Date(tick).toISOString() });
      }
    }
    this.#firedSince.clear();
    this.#roundEndedAt = at;
    return missed;
  }
}

function listOf(map, key) {
  const list = map.get(key) ?? [];
  map.set(key, list);
  return list;
}
