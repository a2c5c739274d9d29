// What jobs must never do: begin a tick twice, or not at all. A tick is the name of a time by the clock of the machine, on which the resource notes once what
// its own clock shows.

/** The first firing of a round may be planned just after a tick. */
const FIRST = 500;
/** At the end of a round, the last ticks may still be waited for: half of a period, and the look after a lease. */
const LAST = 4_000;
/**
 * A run begins before its first act is recorded; a server may be away before its fault is recorded; and a caller may still begin after the end of
 * the round is recorded, because workers are told afterwards.
 */
const RECORDED = 200;

export class TickRules {
  #settings;
  /** By key: the tick that was begun last, how often, and when for the first time. */
  #last = new Map();
  /** By key: the ticks that were begun. */
  #begun = new Map();
  /** By key: `{ from, to }` of its runs. */
  #runs = new Map();
  /** By key: when a process first fired it in this round. */
  #firedSince = new Map();
  #roundEndedAt = -Infinity;
  #wallAhead = 0;
  /** How many ticks were due, and how many of them were not begun for a documented reason. */
  counts = { due: 0, excused: 0 };

  /** `{ period, afterCrash, outageOver }`, as `jobs` of a subject. */
  constructor(settings) {
    this.#settings = settings;
  }

  /** `wall` is what the clock of the machine showed `at` this time. */
  start(at, wall) {
    this.#wallAhead = wall - at;
  }

  fired(at, key) {
    const isOfLastRound = at < this.#roundEndedAt + RECORDED;
    if (!isOfLastRound && !this.#firedSince.has(key)) this.#firedSince.set(key, at);
  }

  /** When a tick of this key was begun last. */
  lastBegunAt(key) {
    return this.#last.get(key)?.at ?? -Infinity;
  }

  /** A run has begun. Answers what is wrong with its tick, if anything is. */
  begun(at, { op, key, tick, attempt }) {
    const last = this.#last.get(key);
    const isAgain = last?.tick === tick && attempt === last.attempt + 1 && attempt <= 1 + this.#settings.afterCrash;
    this.#last.set(key, { tick, attempt, at });
    listOf(this.#begun, key).push(tick);
    const runs = listOf(this.#runs, key);
    // A run that is begun again goes on.
    const before = isAgain && runs.findLast((run) => run.tick === tick);
    runs.push({ op, tick, from: before ? before.from : at, to: Infinity });
    if (isAgain || last === undefined || tick > last.tick) return undefined;
    const name = new Date(tick).toISOString();
    return `tick ${name} (attempt ${attempt}) after ${new Date(last.tick).toISOString()} (attempt ${last.attempt})`;
  }

  /** The run of this caller is over, or its process. */
  ended(at, op, key) {
    const run = this.#runs.get(key)?.findLast((each) => each.op === op);
    if (run) run.to = at;
  }

  /** The end of a round: answers the ticks that nobody has begun, although no run and no outage kept processes from it. */
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
