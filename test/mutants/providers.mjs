const SQL = 'lib/providers/sql';
const ZOOKEEPER = 'lib/providers/zookeeper';

/** Faults in the providers that the simulation does not run. */
export const PROVIDERS = [
  // SQL.
  {
    id: 'late-grant-kept',
    file: `${SQL}/connection/session.ts`,
    from: '        [statement.resolve, statement.reject] = settle;\n',
    to: '        void settle;\n',
    breaks: 'what a statement was granted after its timeout is never undone',
    killedBy: 'test/typeorm/server-paused.spec.ts',
    test: '',
  },
  {
    id: 'statement-in-another-context',
    file: `${SQL}/connection/session.ts`,
    from: 'send: send && this.#current ? AsyncResource.bind(send) : send,',
    to: 'send,',
    breaks: 'a statement that waits for its turn runs in the async context of the one before it',
    killedBy: 'test/sql/session.spec.ts',
    test: '',
  },
  {
    id: 'end-of-transaction-unseen',
    file: `${SQL}/connection/session.ts`,
    from: '    if (this.#hasTransaction) this.#observe(answer);\n',
    to: '',
    breaks: 'a statement that ends the transaction of a lock is not noticed',
    killedBy: 'test/typeorm/transaction-ends.spec.ts',
    test: '',
  },
  {
    id: 'renewed-behind-statement',
    file: `${SQL}/connection/session.ts`,
    from: 'if (isBusy && this.home.clock.now() - this.answered > this.kind.guard / 3)',
    to: 'if (false)',
    breaks: 'a renewal counts while the answer of a statement is overdue',
    killedBy: 'test/sql/session.spec.ts',
    test: '',
  },
  {
    id: 'session-used-again-too-early',
    file: `${SQL}/connection/session.ts`,
    from: "if (this.#state !== 'open' || this.inFlight > 0 || this.#hasTransaction) this.destroy();",
    to: "if (this.#state !== 'open' || this.#hasTransaction) this.destroy();",
    breaks: 'a connection is used again while a statement is in flight on it',
    killedBy: 'test/sql/session.spec.ts',
    test: '',
  },
  // ZooKeeper.
  {
    id: 'node-of-another-session',
    file: `${ZOOKEEPER}/lock-node.ts`,
    from: 'if (stat?.owner !== this.session.id) return null;',
    to: 'if (!stat) return null;',
    breaks: 'a node that another session has created counts as ours',
    killedBy: 'test/zookeeper/lock-node.spec.ts',
    test: '',
  },
  {
    id: 'creation-in-flight-missed',
    file: `${ZOOKEEPER}/lock-node.ts`,
    from: 'if (!this.isThere) await this.session.heartbeat();',
    to: '',
    breaks: 'a node whose creation is still in flight counts as not created',
    killedBy: 'test/zookeeper/lock-node.spec.ts',
    test: '',
  },
];
