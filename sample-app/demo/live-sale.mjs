import { flashSale } from './sale.mjs';

const ITEMS = 100;
const ORDERS = 150;
/** The timing of the sale. The orders of a batch are served before the next batch arrives. */
const ORDERS_OVER = 9_000;
const AT_ONCE = 5;
const PAYMENT_TAKES = 20;
const LAST_WRITES = 6;

/**
 * A flash sale to watch: the same orders go to the endpoint with a lock and to the one without, in parallel. The page
 * shows the responses, and the library's events as reported by the shop's processes.
 */
export class LiveSale {
  #shops;
  #onChange;
  #waiting = new Map();
  #holds = [];
  #frozenAt;
  #isEnded = false;

  /**
   * @param {{ url: string, child: import('node:child_process').ChildProcess }[]} shops
   * @param {string} provider
   * @param {() => void} onChange called whenever `state` has changed
   */
  constructor(shops, provider, onChange) {
    this.#shops = shops;
    this.#onChange = onChange;
    this.state = {
      provider,
      processes: shops.length,
      items: ITEMS,
      orders: ORDERS,
      ordersOver: ORDERS_OVER,
      atOnce: AT_ONCE,
      paymentTakes: PAYMENT_TAKES,
      phase: 'ready',
      ...this.#empty(),
    };
    for (const [index, { child }] of shops.entries()) {
      child.on('message', (text) => {
        this.#receive(index + 1, JSON.parse(text));
        this.#onChange();
      });
      child.send('watch');
    }
  }

  /** Runs the sale. Returns false if one is already running. */
  open() {
    if (this.state.phase === 'open') return false;
    Object.assign(this.state, { phase: 'open', ...this.#empty() });
    // Orders in flight when the shop shuts down get no response.
    this.#run().catch((error) => {
      if (this.#isEnded) return;
      console.error(`The sale failed: ${error.message}`);
      this.state.phase = 'ready';
      this.#onChange();
    });
    return true;
  }

  /** Freezes the holder of the lock. Returns false if there is nothing to freeze. */
  freeze() {
    const { phase, freeze, guarded } = this.state;
    if (phase !== 'open' || guarded.left === 0 || (freeze && freeze.step !== 'over')) return false;
    // The current holder may be about to finish, so the next one is frozen while it waits for the bank.
    this.state.freeze = { step: 'armed' };
    if (this.#shops.length === 1) this.#shops[0].child.send('freeze');
    this.#onChange();
    return true;
  }

  /** Called before the shop shuts down, because a stopped process would never exit. */
  end() {
    this.#isEnded = true;
    if (this.state.freeze?.process) this.#resume();
  }

  #empty() {
    this.#waiting.clear();
    const sale = () => ({ answers: [], left: ITEMS });
    return {
      unguarded: sale(),
      guarded: sale(),
      holder: null,
      expiresIn: null,
      waiting: 0,
      grants: [],
      writes: [],
      freeze: null,
    };
  }

  async #run() {
    this.#onChange();
    const urls = this.#shops.map(({ url }) => url);
    const sell = (path, item, { answers }) => {
      const onAnswer = (outcome) => {
        answers.push(outcome);
        this.#onChange();
      };
      const terms = { items: ITEMS, orders: ORDERS, over: ORDERS_OVER, atOnce: AT_ONCE, paymentTakes: PAYMENT_TAKES };
      return flashSale(urls, path, { item, ...terms, onAnswer });
    };
    await Promise.all([
      sell('/unguarded/orders', 'teapot', this.state.unguarded),
      sell('/orders', 'lamp', this.state.guarded),
    ]);
    // Too late: the lock is no longer held.
    if (this.state.freeze?.step === 'armed') this.#disarm();
    this.state.phase = 'closed';
    this.#onChange();
  }

  /** Reports of the same process arrive in order. Reports of different processes may not. */
  #receive(process, { type, fencingToken: token, ...report }) {
    const { state } = this;
    // Ignores orders for items of other sales.
    if (report.key !== undefined && report.key !== 'stock:lamp') return;
    switch (type) {
      case 'acquired':
        state.grants.push({ token, process, waited: Math.round(report.waited), outcome: null });
        this.#holds.push({ process, token });
        this.#findHolder();
        return this.#onAcquired(process, token);
      case 'released':
      case 'release-pending':
      case 'lost':
        return this.#onEnd(process, report.reason);
      case 'write':
        if (report.item === 'teapot') state.unguarded.left = report.left;
        if (report.item === 'lamp' && token !== null) this.#onWrite(process, token, report);
        return;
      case 'payment':
        if (report.item === 'lamp' && token !== null) this.#onPayment(process, token);
        return;
      case 'frozen':
        return this.#frozen(process, token);
      case 'load':
        this.#waiting.set(process, report.waiting);
        state.waiting = [...this.#waiting.values()].reduce((sum, count) => sum + count, 0);
        // An idle process does not report the lease.
        if (report.expiresIn !== null || !state.holder) state.expiresIn = report.expiresIn;
    }
  }

  /** Events that end a hold have no token, but a process has at most one hold of a key at a time. */
  #onEnd(process, lossReason) {
    const { freeze } = this.state;
    const ended = this.#holds.find((hold) => hold.process === process);
    if (!ended) return;
    this.#holds = this.#holds.filter((hold) => hold !== ended);
    this.#findHolder();
    if (!lossReason) this.#setOutcome(ended.token, 'soldOut');
    if (ended.token !== freeze?.token) return;
    if (lossReason) freeze.lost = lossReason;
    else if (freeze.step === 'frozen') this.#missed();
  }

  /** Keeps the first outcome, because a hold that has sold an item also ends. */
  #setOutcome(token, outcome) {
    const grant = this.state.grants.find((each) => each.token === token);
    if (grant) grant.outcome ??= outcome;
  }

  /** A frozen holder does not report the loss of its lock. The largest token is the latest grant. */
  #findHolder() {
    this.state.holder = this.#holds.reduce(
      (last, hold) => (last && BigInt(last.token) > BigInt(hold.token) ? last : hold),
      null,
    );
  }

  #onAcquired(process, token) {
    const { freeze } = this.state;
    if (freeze?.step === 'frozen' && BigInt(token) > BigInt(freeze.token)) {
      const after = Math.round(performance.now() - this.#frozenAt);
      Object.assign(freeze, { step: 'entered', next: { process, token, after } });
    }
  }

  /** A holder that waits for the bank has read the stock and will write it. */
  #onPayment(process, token) {
    if (this.state.freeze?.step !== 'armed' || this.#shops.length === 1) return;
    // A process that is still stopped at the end would never exit.
    if (this.#isEnded) return;
    this.#shops[process - 1].child.kill('SIGSTOP');
    this.#frozen(process, token);
  }

  #onWrite(process, token, { left, isAccepted }) {
    const { freeze, guarded, writes } = this.state;
    this.#setOutcome(token, isAccepted ? 'sold' : 'refused');
    if (isAccepted) guarded.left = left;
    writes.unshift({ token, process, left, isAccepted });
    // A rejected write stays visible.
    const oldest = writes.findLastIndex((write) => write.isAccepted);
    if (writes.length > LAST_WRITES) writes.splice(oldest, 1);
    if (!freeze) return;
    if (freeze.token === token) {
      if (freeze.step === 'frozen') this.#missed();
      else Object.assign(freeze, { step: 'over', isAccepted });
    } else if (freeze.step === 'entered' && isAccepted && BigInt(token) > BigInt(freeze.token)) {
      Object.assign(freeze, { step: 'resumed', write: { process, token, left } });
      this.#resume();
    }
  }

  #frozen(process, token) {
    this.#frozenAt = performance.now();
    this.state.freeze = { step: 'frozen', process, token };
  }

  /** The order finished before its process was frozen, so the next one is frozen instead. */
  #missed() {
    this.#resume();
    this.state.freeze = { step: 'armed' };
  }

  #disarm() {
    if (this.#shops.length === 1) this.#shops[0].child.send('resume');
    this.state.freeze = null;
  }

  #resume() {
    const { child } = this.#shops[this.state.freeze.process - 1];
    if (this.#shops.length > 1) child.kill('SIGCONT');
    else if (child.connected) child.send('resume');
  }
}
