interface Vote {
  readonly text: string;
  readonly until: number;
}

/** A Redis server that has the lock script and nothing else: a second implementation of the Lua code, in JavaScript. */
export class ModelNode {
  readonly votes = new Map<string, Vote>();
  counter: string | undefined;
  /** Writes of tokens are taken from everybody by a node that knows none, as they were once. */
  isCredulous = false;
  /** Of a block of tokens it compares the last one instead of the first. */
  comparesLast = false;

  constructor(
    /** This node's wall clock, in ms. */
    private readonly time: () => number,
  ) {}

  /** Whether the node knows what tokens were given out before. */
  get remembers(): boolean {
    return this.counter !== undefined;
  }

  /** How many votes exist. */
  get standing(): number {
    return [...this.votes.keys()].filter((lock) => this.#vote(lock)).length;
  }

  forget(): void {
    this.votes.clear();
    this.counter = undefined;
  }

  /** `EVAL` and `EVALSHA`, without the script: the number of keys, the keys, the process, and three values for each operation. */
  run([count = '0', ...rest]: readonly string[]): unknown {
    const values = rest.slice(Number(count) + 1);
    const replies = rest.slice(1, Number(count)).map((lock, index) => {
      const [code = '', vote = '', ms = ''] = values.slice(3 * index);
      return this.#operate(lock, code, Number(ms), vote);
    });
    const [code = '', , ms] = values;
    // The short way: a vote that carries the token, a release.
    const isShort = (code === 'V' && replies[0] === 1) || (code === 'R' && ms === '0');
    return replies.length === 1 && isShort ? replies[0] : replies;
  }

  #operate(lock: string, code: string, ms: number, text: string): unknown {
    const [holder, token, round] = [text.slice(0, 32), text.slice(32, 48), text.slice(48, 60)];
    const vote = this.#vote(lock);
    const mine = vote?.text.slice(0, 32) === holder ? vote : undefined;
    switch (code) {
      case 'V':
        return vote && !mine ? 0 : this.#elect(lock, mine, ms, text);
      case 'W':
        if (this.counter === undefined ? this.isCredulous || mine?.text.slice(48) === round : this.counter < token)
          this.counter = token;
        if (mine) this.votes.set(lock, { ...mine, text: holder + token + mine.text.slice(48) });
        return mine ? 1 : 0;
      case 'E':
        if (mine && ms > 0) this.#put(lock, mine.text, ms);
        return mine ? mine.text.slice(48) : 0;
      case 'A':
        if (vote) return 0;
        this.#put(lock, text, ms);
        if (this.counter !== undefined && this.counter < token) this.counter = token;
        return 1;
      case 'R':
        if (mine && ms > 0) this.#put(lock, '-'.repeat(32) + mine.text.slice(32), ms);
        else if (mine) this.votes.delete(lock);
        return mine ? 1 : 0;
      case 'C':
        return mine && mine.text.slice(48) <= round && this.votes.delete(lock) ? 1 : 0;
      case 'I':
        return vote ? vote.text.slice(0, 48) + String(this.#left(vote)) : 0;
      case 'F':
        return vote && this.votes.delete(lock) ? 1 : 0;
      default:
        throw new Error(`There is no operation ${code}.`);
    }
  }

  #elect(lock: string, mine: Vote | undefined, ms: number, text: string): unknown {
    const last = this.counter;
    const [holder, token, round] = [text.slice(0, 32), text.slice(32, 48), text.slice(48, 60)];
    const first = text.slice(60) || token;
    if (last !== undefined && !mine && (this.comparesLast ? token : first) > last) {
      this.counter = token;
      this.#put(lock, text.slice(0, 60), ms);
      return 1;
    }
    const least = Math.max(Math.floor(this.time() * 1_000), last === undefined ? 0 : Number(last) + 1);
    const written = mine ? mine.text.slice(32, 48) : '0'.repeat(16);
    const left = mine ? this.#left(mine) : ms;
    if (!mine) this.#put(lock, holder + written + round, ms);
    else if (mine.text.slice(48) < round) this.votes.set(lock, { ...mine, text: mine.text.slice(0, 48) + round });
    return `${last === undefined ? '?' : '+'}${written}${String(least).padStart(16, '0')}${left}`;
  }

  #vote(lock: string): Vote | undefined {
    const vote = this.votes.get(lock);
    return vote && vote.until > this.time() ? vote : undefined;
  }

  #put(lock: string, text: string, ms: number): void {
    this.votes.set(lock, { text, until: this.time() + ms });
  }

  #left({ until }: Vote): number {
    return Math.ceil(until - this.time());
  }
}
