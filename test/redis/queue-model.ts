/**
 * A model of callers that wait in their process, and of processes that wait at Redis: one key, in exclusive mode. It has no server, no
 * clock and no code of the product. {@link search} goes through all orders of events within its bounds.
 *
 * Time is counted in ticks. All messages of a tick arrive before the next one, in any order. A fault ends this: a frozen process does
 * nothing while time passes, and what it has sent may be executed at any time. So may the commands of a lost connection until the
 * process has reconnected.
 *
 * It checks four promises:
 *
 * - **Exclusion.** Two callers never hold validly at the same time. The exception: Redis lost its data, and the process of the older
 *   grant has not been answered since.
 * - **Tokens.** They grow in the order in which callers enter. After a loss of data, each new token is larger than all earlier ones, but
 *   a grant from before it may still let its callers in.
 * - **Nobody is left.** When all messages have arrived, no caller waits for a free lock, and no request that is over is queued or holds.
 * - **Order.** Without faults, a caller is overtaken by one cohort of each other process at most. In any case, the lock goes to the
 *   process of the oldest caller if all processes have asked with the age of theirs.
 */
export interface Rule {
  /** For which requests a notice is not answered with a release. */
  readonly known: 'until-released' | 'until-acknowledged' | 'while-waiting';
  /** Whom the answer `lost` of a renewal concerns: the present holder, or the one that sent it. */
  readonly lost: 'holder' | 'sender';
  /** What is executed first in a call that releases one request and asks for the next. */
  readonly first: 'ask' | 'release';
  /** Whether a hold that a repeated ask finds has followers. */
  readonly found: 'alone' | 'with-followers';
  /** Which asks carry the age of the oldest caller. */
  readonly age: 'each-ask' | 'first-ask';
  /** For how long a release is repeated; a number counts ticks since it was sent first. */
  readonly repeat: 'until-acknowledged' | number;
}

export const LEASE = 3;
const PROVISIONAL = 2;
/** A process that has not asked for so long counts as dead. */
const LIVE = 2;
/** The queue expires when nobody has asked for so long. */
export const KEEP = 4;
/** Tokens that a grant out of the queue reserves. */
const BLOCK = 2;

/** The rule of the product. */
export const RULE: Rule = {
  known: 'until-released',
  lost: 'holder',
  first: 'ask',
  found: 'alone',
  age: 'each-ask',
  repeat: 'until-acknowledged',
};

export type Fault = 'connection' | 'crash' | 'freeze' | 'data' | 'notice';

/** How far a search goes. */
export interface Bounds {
  /** The number of callers of each process. */
  readonly callers: readonly number[];
  /** What may go wrong, and how often altogether. Data is lost once at most. */
  readonly faults?: readonly Fault[];
  readonly mostFaults?: number;
  /** How many callers leave before they are served. */
  readonly leaving?: number;
  readonly states?: number;
  /** Steps that come first, by name. */
  readonly after?: readonly string[];
}

// In ticks: all that ends with `Ago`, and `left`.

interface Ask {
  readonly do: 'ask';
  readonly id: number;
  /** Of the oldest caller when it was sent. */
  readonly age: number;
  readonly hasAge: boolean;
  readonly callers: number;
  readonly sentAgo: number;
}

type Command =
  | Ask
  | { readonly do: 'renew'; readonly id: number; readonly token: number; readonly sentAgo: number }
  | { readonly do: 'release'; readonly id: number; readonly next: Ask | undefined; readonly sentAgo: number };

type Answer =
  | { readonly is: 'granted' | 'found' | 'renewed'; readonly last: number; readonly left: number }
  | { readonly is: 'queued' | 'lost' | 'released' };

interface Notice {
  readonly id: number;
  readonly last: number;
  readonly grantedAgo: number;
}

interface Reply {
  readonly to: Command;
  readonly answer: Answer;
  /** What this call granted to its own process. */
  readonly notice: Notice | undefined;
}

interface Caller {
  readonly age: number;
  /** The requests of other processes whose younger callers have overtaken it. */
  readonly overtakenBy: readonly number[];
}

interface Grant {
  /** The last token of its block. */
  readonly last: number;
  /** That of its holder. */
  readonly token: number;
  readonly followers: number;
  /** How many of the waiting callers had arrived when it was granted. */
  readonly eligible: number;
  readonly left: number;
  readonly isConfirmed: boolean;
  readonly isRenewing: boolean;
  /** Its process was answered that it is lost. */
  readonly isLost: boolean;
}

interface Request {
  readonly id: number;
  readonly isAsking: boolean;
  /** It was granted too long ago, so the grant is renewed before it is used. */
  readonly isConfirming: boolean;
  readonly grant: Grant | undefined;
}

interface Process {
  readonly index: number;
  condition: 'well' | 'frozen' | 'disconnected' | 'crashed';
  /** Callers that have not arrived yet. */
  coming: number;
  waiting: readonly Caller[];
  request: Request | undefined;
  /** The server knows the age of the oldest caller. */
  isPlaced: boolean;
  /** Releases that were not acknowledged. */
  pending: readonly { readonly id: number; readonly age: number }[];
  requests: number;
  sent: readonly Command[];
  replies: readonly Reply[];
  notices: readonly Notice[];
}

interface Entry {
  readonly id: number;
  readonly age: number;
}

interface Server {
  hold:
    { readonly id: number; readonly last: number; readonly left: number; readonly isProvisional: boolean } | undefined;
  queue: readonly Entry[];
  /** When each process has asked last. */
  seenAgo: readonly number[];
  /** The last token that was given out. */
  counter: number;
  /** What it was when the data was lost; 0 before. */
  counterAtLoss: number;
}

interface State {
  readonly server: Server;
  readonly processes: readonly Process[];
  faults: number;
  leaving: number;
  /** The largest token that has entered, of grants from before the loss of data and from after it. */
  entered: readonly [number, number];
  /** Something went wrong, or ended, in this tick. */
  isDisturbed: boolean;
  violation: string | undefined;
}

type Step = readonly [name: string, change: (process: Process) => void];

const MOST_PROCESSES = 4;
const processOf = (id: number): number => id % MOST_PROCESSES;

/** All that can happen to one key. */
class QueueModel {
  readonly events = new Map<string, number>();
  readonly #losesReplies: boolean;
  /** The copy that a step changes. */
  #state!: State;

  constructor(
    private readonly bounds: Bounds,
    private readonly rule: Rule,
  ) {
    this.#losesReplies = this.#can('connection') || this.#can('freeze');
  }

  get start(): State {
    const { callers, mostFaults = 0, leaving = 0 } = this.bounds;
    const none = { waiting: [], request: undefined, pending: [], sent: [], replies: [], notices: [] };
    const processes = callers.map((coming, index): Process => ({
      index,
      condition: 'well',
      coming,
      isPlaced: false,
      requests: 0,
      ...none,
    }));
    const server = { hold: undefined, queue: [], seenAgo: callers.map(() => KEEP), counter: 0, counterAtLoss: 0 };
    return {
      server,
      processes,
      faults: mostFaults,
      leaving,
      entered: [0, 0],
      isDisturbed: false,
      violation: undefined,
    };
  }

  /** The state after these steps. */
  after(names: readonly string[]): State {
    return names.reduce((state, name) => {
      for (const [each, next] of this.next(state)) if (each === name) return next;
      throw new Error(`"${name}" cannot happen.`);
    }, this.start);
  }

  /** All that can happen next, by name. */
  *next(state: State): Generator<readonly [string, State]> {
    for (const process of state.processes) {
      for (const [name, change] of this.#steps(state, process)) {
        const { server, processes } = state;
        this.#state = { ...state, server: { ...server }, processes: processes.map((each) => ({ ...each })) };
        change(this.#state.processes[process.index]!);
        this.#checkExclusion();
        yield [`${name} ${process.index}`, this.#state];
      }
    }
  }

  *#steps(state: State, process: Process): Generator<Step> {
    const { index, condition, request, waiting } = process;
    if (index === 0 && state.processes.every(isQuiet)) yield ['tick', () => this.#tick()];
    if (process.sent.length > 0) yield ['server executes', (own) => this.#execute(own)];
    if (condition === 'crashed') return;
    if (state.faults > 0) yield* this.#faults(state, process);
    if (condition === 'frozen') {
      yield ['resumes', (own) => this.#resume(own)];
      return;
    }
    if (condition === 'disconnected') yield ['reconnects', (own) => this.#reconnect(own)];
    if (process.replies.length > 0) yield ['reply', (own) => this.#onReply(own, takeFirst(own, 'replies'))];
    if (process.notices.length > 0) yield ['notice', (own) => this.#onNotice(own, takeFirst(own, 'notices'))];
    if (process.coming > 0) yield ['caller arrives', (own) => this.#arrive(own)];
    if (state.leaving > 0) {
      for (const at of waiting.keys()) yield [`waiter ${at} leaves`, (own) => this.#leave(own, at)];
    }
    if (!request?.grant) return;
    yield ['releases', (own) => this.#end(own)];
    const { followers, eligible, left } = request.grant;
    if (followers > 0 && eligible > 0 && left > 0) yield ['local handoff', (own) => this.#enter(own)];
    if (isUnconfirmed(process)) yield ['confirms', (own) => this.#renew(own)];
  }

  *#faults(state: State, process: Process): Generator<Step> {
    const fault = (name: Fault, change: (process: Process) => void): Step => [
      `FAULT ${name}`,
      (own) => {
        this.#state.faults -= 1;
        this.#state.isDisturbed = true;
        change(own);
      },
    ];
    const { index, condition, request, pending, sent, notices } = process;
    const isFirstLoss = state.server.counterAtLoss === 0 && state.server.counter > 0;
    if (index === 0 && isFirstLoss && this.#can('data')) yield fault('data', () => loseData(this.#state.server));
    if (notices.length > 0 && this.#can('notice')) yield fault('notice', (own) => takeFirst(own, 'notices'));
    // Otherwise it makes no difference.
    const isActive = request !== undefined || pending.length + sent.length + notices.length > 0;
    if (isActive && this.#can('crash')) yield fault('crash', crash);
    if (!isActive || condition !== 'well') return;
    if (this.#can('freeze')) yield fault('freeze', (own) => (own.condition = 'frozen'));
    if (this.#can('connection')) yield fault('connection', disconnect);
  }

  #can(fault: Fault): boolean {
    return this.bounds.faults?.includes(fault) === true;
  }

  // In a process.

  #arrive(process: Process): void {
    process.coming -= 1;
    process.waiting = [...process.waiting, { age: 0, overtakenBy: [] }];
    if (!process.request) this.#send(process, this.#newRequest(process));
  }

  #leave(process: Process, at: number): void {
    const grant = process.request?.grant;
    this.#state.leaving -= 1;
    process.waiting = process.waiting.filter((_, index) => index !== at);
    if (at === 0) process.isPlaced = false;
    if (grant && at < grant.eligible) changeGrant(process, { eligible: grant.eligible - 1 });
    if (!grant && process.waiting.length === 0) this.#end(process);
  }

  /** A request for those that wait. Answers its first ask. */
  #newRequest(process: Process): Ask {
    process.requests += 1;
    process.isPlaced = false;
    const id = process.requests * MOST_PROCESSES + process.index;
    process.request = { id, isAsking: isConnected(process), isConfirming: false, grant: undefined };
    return askOf(process, true);
  }

  #askAgain(process: Process): void {
    if (!isConnected(process)) return;
    changeRequest(process, { isAsking: true });
    this.#send(process, askOf(process, this.rule.age === 'each-ask'));
  }

  #renew(process: Process): void {
    const { id, grant } = process.request!;
    if (grant) changeGrant(process, { isRenewing: isConnected(process) });
    this.#send(process, { do: 'renew', id, token: grant?.token ?? 0, sentAgo: 0 });
  }

  /** The request is over. The call that releases it carries the next one. */
  #end(process: Process): void {
    const { id } = process.request!;
    process.request = undefined;
    this.#release(process, id, process.waiting.length > 0 ? this.#newRequest(process) : undefined);
  }

  #release(process: Process, id: number, next?: Ask): void {
    if (!process.pending.some((each) => each.id === id)) process.pending = [...process.pending, { id, age: 0 }];
    this.#send(process, { do: 'release', id, next, sentAgo: 0 });
  }

  #send(process: Process, command: Command): void {
    if (isConnected(process)) process.sent = [...process.sent, command];
  }

  /** Uses a grant with `size` tokens, if it is valid for some time. */
  #grant(process: Process, last: number, size: number, left: number, isConfirmed: boolean): void {
    const { isConfirming, grant } = process.request!;
    if (grant || (left <= 0 && isConfirming)) return;
    if (left <= 0) {
      this.#count('a grant is confirmed first');
      changeRequest(process, { isConfirming: true });
      this.#renew(process);
      return;
    }
    const unused = { last, token: last - size, followers: size, eligible: process.waiting.length };
    changeRequest(process, {
      isConfirming: false,
      grant: { ...unused, left, isConfirmed, isRenewing: false, isLost: false },
    });
    this.#enter(process);
  }

  /** The oldest caller enters under the grant, with the next token. */
  #enter(process: Process): void {
    const { token, followers, eligible } = process.request!.grant!;
    changeGrant(process, { token: token + 1, followers: followers - 1, eligible: eligible - 1 });
    this.#checkToken(token + 1);
    const { age } = takeFirst(process, 'waiting');
    process.isPlaced = false;
    if (this.#state.faults + (this.bounds.mostFaults ?? 0) === 0) this.#checkOvertaking(process, age);
  }

  #onReply(process: Process, { to, answer, notice }: Reply): void {
    if (to.do === 'renew') this.#onRenewed(process, to.id, to.token, answer, to.sentAgo);
    if (to.do === 'release') process.pending = process.pending.filter(({ id }) => id !== to.id);
    const ask = askIn(to);
    if (ask) this.#onAsked(process, ask, answer, to.sentAgo);
    if (notice) this.#onNotice(process, notice);
  }

  #onAsked(process: Process, { id, callers }: Ask, answer: Answer, sentAgo: number): void {
    if (process.request?.id !== id) return;
    changeRequest(process, { isAsking: false });
    if (answer.is === 'granted') this.#grant(process, answer.last, callers, LEASE - sentAgo, true);
    if (answer.is !== 'found') return;
    this.#count('a hold is found');
    const followers = this.rule.found === 'alone' ? 0 : BLOCK - 1;
    this.#grant(process, answer.last + followers, 1 + followers, answer.left - sentAgo, false);
  }

  #onRenewed(process: Process, id: number, token: number, answer: Answer, sentAgo: number): void {
    const { request } = process;
    if (request?.id !== id) return;
    const { grant } = request;
    // Sent to confirm an earlier grant, so it is not about this one.
    if (grant && token === 0) return;
    if (!grant) {
      if (!request.isConfirming) return;
      changeRequest(process, { isConfirming: false });
      if (answer.is === 'renewed') this.#grant(process, answer.last, 1, LEASE - sentAgo, true);
      else this.#askAgain(process);
    } else if (answer.is === 'renewed' && answer.last === grant.last && grant.left > 0) {
      const left = Math.max(grant.left, LEASE - sentAgo);
      changeGrant(process, { left, isConfirmed: true, isRenewing: false });
    } else if (this.rule.lost === 'holder' || grant.token === token) {
      this.#count(grant.token === token ? 'a renewal is lost' : 'a renewal is lost after a local handoff');
      this.#end(process);
    } else changeGrant(process, { isConfirmed: true, isRenewing: false, isLost: true });
  }

  #onNotice(process: Process, { id, last, grantedAgo }: Notice): void {
    const { request, pending } = process;
    const isOwn = request?.id === id;
    if (isOwn && request.grant) this.#count('a notice arrives during the hold');
    if (isOwn && !request.grant) this.#grant(process, last, BLOCK, PROVISIONAL - grantedAgo, false);
    else {
      const isPending = this.rule.known === 'until-acknowledged' && pending.some((each) => each.id === id);
      if ((isOwn && this.rule.known !== 'while-waiting') || isPending) return;
      this.#count('a notice is answered with a release');
      this.#release(process, id);
    }
  }

  #resume(process: Process): void {
    process.condition = 'well';
    this.#state.isDisturbed = true;
    this.#onTimer(process);
  }

  /** Holds are renewed first. Releases come last, so that they see all that wait. */
  #reconnect(process: Process): void {
    process.condition = 'well';
    process.sent = [];
    this.#state.isDisturbed = true;
    const { request, pending } = process;
    if (request?.isConfirming || (request?.grant && request.grant.left > 0)) this.#renew(process);
    else this.#onTimer(process);
    for (const { id } of pending) this.#release(process, id);
  }

  /** What a process does in each tick. */
  #onTimer(process: Process): void {
    const { request } = process;
    if (!request) return;
    const { grant } = request;
    if (grant && grant.left <= 0) {
      this.#count('a grant is lost by the clock');
      this.#end(process);
    } else if (grant) {
      if (!grant.isRenewing && (grant.left <= 1 || !grant.isConfirmed)) this.#renew(process);
    } else if (!request.isAsking && !request.isConfirming) this.#askAgain(process);
  }

  // At the server.

  #execute(process: Process): void {
    const to = takeFirst(process, 'sent');
    const own: Notice[] = [];
    const answer = this.#answer(process.index, to, own);
    if (process.condition === 'disconnected' || process.condition === 'crashed') return;
    const reply: Reply = { to, answer, notice: own[0] };
    // It does not matter when such a reply arrives, unless a fault can delay it or lose it.
    const changesNothing = (answer.is === 'queued' || answer.is === 'released') && !reply.notice;
    const isSafe = process.condition === 'well' && !(this.#losesReplies && this.#state.faults > 0);
    if (changesNothing && isSafe && process.replies.length === 0) this.#onReply(process, reply);
    else process.replies = [...process.replies, reply];
  }

  #answer(caller: number, command: Command, own: Notice[]): Answer {
    const { server } = this.#state;
    endLease(server);
    const { id } = command;
    if (command.do === 'ask') return this.#answerAsk(caller, command, own);
    if (command.do === 'renew') {
      if (server.hold?.id === id) {
        server.hold = { ...server.hold, left: LEASE, isProvisional: false };
        return { is: 'renewed', last: server.hold.last, left: LEASE };
      }
      this.#serve(caller, own);
      return { is: 'lost' };
    }
    const { next } = command;
    const askFirst = next && this.rule.first === 'ask' && this.#answerAsk(caller, next, own);
    if (server.hold?.id === id) server.hold = undefined;
    server.queue = server.queue.filter((entry) => entry.id !== id);
    this.#serve(caller, own);
    return askFirst || (next && this.#answerAsk(caller, next, own)) || { is: 'released' };
  }

  #answerAsk(caller: number, ask: Ask, own: Notice[]): Answer {
    const { server, processes } = this.#state;
    const { id, age, hasAge, callers } = ask;
    server.seenAgo = server.seenAgo.with(caller, 0);
    if (server.hold?.id === id) return { is: 'found', last: server.hold.last, left: server.hold.left };
    if (!server.hold && server.queue.length === 0) {
      server.counter += callers;
      server.hold = { id, last: server.counter, left: LEASE, isProvisional: false };
      return { is: 'granted', last: server.counter, left: LEASE };
    }
    const before = server.queue.find((entry) => entry.id === id);
    const entry = { id, age: hasAge ? age : (before?.age ?? 0) };
    server.queue = [...server.queue.filter((each) => each !== before), entry];
    const process = processes[caller]!;
    if (process.request?.id === id) process.isPlaced = age === process.waiting[0]?.age;
    this.#serve(caller, own);
    return { is: 'queued' };
  }

  /** The grant loop. The process of the call gets its notice with the reply. */
  #serve(caller: number, own: Notice[]): void {
    const { server, processes } = this.#state;
    while (!server.hold && server.queue.length > 0) {
      const head = server.queue.reduce((one, other) => (isBefore(other, one) ? other : one));
      const process = processes[processOf(head.id)]!;
      const isAlive = process.index === caller || server.seenAgo[process.index]! < LIVE;
      if (isAlive) this.#checkOrder(head.id);
      server.queue = server.queue.filter((entry) => entry !== head);
      if (!isAlive) continue;
      server.counter += BLOCK;
      server.hold = { id: head.id, last: server.counter, left: PROVISIONAL, isProvisional: true };
      const notice: Notice = { id: head.id, last: server.counter, grantedAgo: 0 };
      if (process.index === caller) own.push(notice);
      else if (process.condition !== 'crashed') process.notices = [...process.notices, notice];
    }
  }

  #tick(): void {
    const { server, processes } = this.#state;
    this.#checkLeft();
    this.#state.isDisturbed = false;
    if (server.hold) server.hold = { ...server.hold, left: Math.max(server.hold.left - 1, 0) };
    server.seenAgo = server.seenAgo.map((ago) => Math.min(ago + 1, KEEP));
    if (server.seenAgo.every((ago) => ago === KEEP)) server.queue = [];
    growOlder(this.#state);
    for (const process of processes) {
      process.sent = process.sent.map(sentEarlier);
      process.replies = process.replies.map(({ to, answer, notice }) => {
        return { to: sentEarlier(to), answer, notice: notice && grantedEarlier(notice) };
      });
      process.notices = process.notices.map(grantedEarlier);
      const grant = process.request?.grant;
      if (grant) changeGrant(process, { left: Math.max(grant.left - 1, 0) });
      const { repeat } = this.rule;
      if (repeat !== 'until-acknowledged') {
        const aged = process.pending.map(({ id, age }) => ({ id, age: age + 1 }));
        process.pending = aged.filter(({ age }) => age < repeat);
      }
      if (process.condition !== 'frozen') this.#onTimer(process);
    }
  }

  // What must hold.

  #checkExclusion(): void {
    const { server, processes } = this.#state;
    const isValid = (grant: Grant | undefined) => grant !== undefined && grant.left > 0;
    const [one, other] = processes.map(({ request }) => request?.grant).filter(isValid) as Grant[];
    const isExcused = ({ last, isLost }: Grant) => last <= server.counterAtLoss && !isLost;
    if (one && other && !isExcused(one) && !isExcused(other)) {
      this.#state.violation = `two hold: with token ${one.token}, and with token ${other.token}`;
    }
  }

  #checkToken(token: number): void {
    const { server, entered } = this.#state;
    const isAfterLoss = server.counterAtLoss > 0 && token > server.counterAtLoss;
    const largest = isAfterLoss ? Math.max(...entered) : entered[0];
    if (token <= largest) this.#state.violation = `token ${token} enters after token ${largest}`;
    this.#state.entered = isAfterLoss ? [entered[0], token] : [token, entered[1]];
  }

  /** A caller of the process enters that has waited for `age`. */
  #checkOvertaking({ index, request }: Process, age: number): void {
    const { id } = request!;
    for (const process of this.#state.processes) {
      if (process.index === index) continue;
      process.waiting = process.waiting.map((caller) => {
        if (caller.age <= age || caller.overtakenBy.includes(id)) return caller;
        const isAgain = caller.overtakenBy.some((each) => processOf(each) === index);
        if (isAgain) this.#state.violation = `overtaken by two cohorts of process ${index}`;
        return { ...caller, overtakenBy: [...caller.overtakenBy, id] };
      });
    }
  }

  /** The request is about to be granted out of the queue. */
  #checkOrder(id: number): void {
    const ages = new Map<number, number>();
    for (const { request, waiting, isPlaced } of this.#state.processes) {
      if (!request || request.grant) continue;
      if (!isPlaced || !this.#state.server.queue.some((entry) => entry.id === request.id)) return;
      ages.set(request.id, waiting[0]!.age);
    }
    const age = ages.get(id);
    if (age !== undefined && Math.max(...ages.values()) > age) this.#state.violation = 'granted to a younger caller';
  }

  /** All messages of the tick have arrived. */
  #checkLeft(): void {
    const { server, processes, isDisturbed } = this.#state;
    if (isDisturbed || !processes.every(({ condition }) => condition === 'well' || condition === 'crashed')) return;
    const isOver = ({ id }: { readonly id: number }) => {
      const { condition, request } = processes[processOf(id)]!;
      return condition !== 'crashed' && request?.id !== id;
    };
    const hold = server.hold && server.hold.left > 0 ? server.hold : undefined;
    const isWaiting = processes.some(({ waiting, request }) => waiting.length > 0 && !request?.grant);
    if (!hold && isWaiting) this.#state.violation = 'a caller waits for a free lock';
    if (hold && isOver(hold)) this.#state.violation = 'a request that is over holds the lock';
    if (server.queue.some(isOver)) this.#state.violation = 'a request that is over is queued';
  }

  #count(event: string): void {
    this.events.set(event, (this.events.get(event) ?? 0) + 1);
  }
}

function takeFirst<K extends 'waiting' | 'sent' | 'replies' | 'notices'>(process: Process, key: K): Process[K][number] {
  const [first, ...rest] = process[key];
  Object.assign(process, { [key]: rest });
  return first!;
}

function changeRequest(process: Process, change: Partial<Request>): void {
  process.request = { ...process.request!, ...change };
}

function changeGrant(process: Process, change: Partial<Grant>): void {
  changeRequest(process, { grant: { ...process.request!.grant!, ...change } });
}

function askOf({ request, waiting }: Process, hasAge: boolean): Ask {
  const callers = Math.min(waiting.length, BLOCK);
  return { do: 'ask', id: request!.id, age: waiting[0]!.age, hasAge, callers, sentAgo: 0 };
}

function askIn(command: Command): Ask | undefined {
  if (command.do === 'renew') return undefined;
  return command.do === 'ask' ? command : command.next;
}

function isConnected({ condition }: Process): boolean {
  return condition === 'well' || condition === 'frozen';
}

function isUnconfirmed(process: Process): boolean {
  const grant = process.request?.grant;
  return grant !== undefined && isConnected(process) && grant.left > 0 && !grant.isConfirmed && !grant.isRenewing;
}

/** Whether time may pass. */
function isQuiet(process: Process): boolean {
  const { condition, sent, replies, notices } = process;
  if (condition === 'frozen' || condition === 'crashed') return true;
  if (condition === 'disconnected') return notices.length === 0;
  return sent.length + replies.length + notices.length === 0 && !isUnconfirmed(process);
}

/** What it has sent may still be executed. */
function crash(process: Process): void {
  const none = { coming: 0, waiting: [], request: undefined, isPlaced: false, pending: [], replies: [], notices: [] };
  Object.assign(process, { condition: 'crashed', ...none });
}

/** What it has sent may still be executed until it reconnects, but is not answered. */
function disconnect(process: Process): void {
  process.condition = 'disconnected';
  process.replies = [];
  if (process.request) changeRequest(process, { isAsking: false });
  if (process.request?.grant) changeGrant(process, { isRenewing: false });
}

function loseData(server: Server): void {
  server.hold = undefined;
  server.queue = [];
  server.seenAgo = server.seenAgo.map(() => KEEP);
  // The next tokens come from the server's clock, which is ahead of all that were given out.
  server.counterAtLoss = server.counter;
}

/** Ends a lease that has run out. A process that did not confirm its grant counts as dead until it asks. */
function endLease(server: Server): void {
  if (!server.hold || server.hold.left > 0) return;
  const { id, isProvisional } = server.hold;
  if (isProvisional) server.seenAgo = server.seenAgo.with(processOf(id), KEEP);
  server.hold = undefined;
}

function isBefore(one: Entry, other: Entry): boolean {
  return one.age > other.age || (one.age === other.age && one.id < other.id);
}

/** Time passes. Only the order of ages matters, so they are numbered again. What was sent names the age of that time. */
function growOlder({ server, processes }: State): void {
  const waiting = processes.flatMap((process) => process.waiting);
  const sent = processes.flatMap((process) => process.sent.map(askIn).filter((ask) => ask !== undefined));
  const ages = new Set([...server.queue, ...waiting, ...sent].map(({ age }) => age));
  const order = [...ages].sort((one, other) => one - other);
  const older = <T extends { readonly age: number }>(each: T): T => ({ ...each, age: order.indexOf(each.age) + 1 });
  const still = (ask: Ask): Ask => ({ ...ask, age: order.indexOf(ask.age) });
  server.queue = server.queue.map(older);
  for (const process of processes) {
    process.waiting = process.waiting.map(older);
    process.sent = process.sent.map((command) => {
      if (command.do === 'ask') return still(command);
      return command.do === 'release' && command.next ? { ...command, next: still(command.next) } : command;
    });
  }
}

function sentEarlier(command: Command): Command {
  return { ...command, sentAgo: Math.min(command.sentAgo + 1, LEASE) };
}

function grantedEarlier(notice: Notice): Notice {
  return { ...notice, grantedAgo: Math.min(notice.grantedAgo + 1, PROVISIONAL) };
}

/** Equal for states with the same future: tokens count back from the last one, and ids from the last one of their process. */
function fingerprint({ server, processes, ...state }: State): string {
  const token = (value: number) => (value === 0 ? '-' : server.counter - value);
  const idOf = (id: number) =>
    `${processOf(id)}${processes[processOf(id)]!.requests - Math.floor(id / MOST_PROCESSES)}`;
  const flags = (...each: boolean[]) => each.map(Number).join('');
  const ask = ({ id, age, hasAge, callers }: Ask) => `${idOf(id)}.${age}${Number(hasAge)}${callers}`;
  const command = (each: Command): string => {
    if (each.do === 'ask') return `a${ask(each)}${each.sentAgo}`;
    if (each.do === 'renew') return `n${idOf(each.id)}.${token(each.token)}.${each.sentAgo}`;
    return `r${idOf(each.id)}${each.next ? `${ask(each.next)}${each.sentAgo}` : ''}`;
  };
  const notice = ({ id, last, grantedAgo }: Notice) => `m${idOf(id)}.${token(last)}.${grantedAgo}`;
  const reply = ({ to, answer, ...own }: Reply) => {
    const values = 'last' in answer ? `${token(answer.last)}.${answer.left}` : '';
    return `${command(to)}${answer.is[0]!}${values}${own.notice ? notice(own.notice) : ''}`;
  };
  const { hold, queue, seenAgo, counterAtLoss } = server;
  const entered = state.entered.map(token).join('.');
  let text = `${state.faults}${state.leaving}${flags(state.isDisturbed)}${entered}.${token(counterAtLoss)}.${seenAgo.join('')}`;
  if (hold) text += `h${idOf(hold.id)}.${token(hold.last)}.${hold.left}${flags(hold.isProvisional)}`;
  text += `q${queue
    .map(({ id, age }) => `${idOf(id)}.${age}`)
    .sort()
    .join()}`;
  for (const { condition, coming, isPlaced, waiting, request, pending, sent, replies, notices } of processes) {
    text += `|${condition[0]!}${coming}${flags(isPlaced)}`;
    for (const { age, overtakenBy } of waiting) text += `w${age}.${overtakenBy.map(idOf).join('.')}`;
    if (request) text += `i${flags(request.isAsking, request.isConfirming)}`;
    if (request?.grant) {
      const { last, token: own, followers, eligible, left, isConfirmed, isRenewing, isLost } = request.grant;
      text += `g${token(last)}.${token(own)}.${followers}.${eligible}.${left}${flags(isConfirmed, isRenewing, isLost)}`;
    }
    for (const { id, age } of pending) text += `p${idOf(id)}.${age}`;
    text += `:${sent.map(command).join()}:${replies.map(reply).join()}:${notices.map(notice).join()}`;
  }
  return text;
}

export interface Search {
  readonly states: number;
  /** Whether all states were visited. */
  readonly isComplete: boolean;
  /** How often something rare has happened. */
  readonly events: ReadonlyMap<string, number>;
  readonly violation?: string;
  /** The shortest way to the violation. */
  readonly steps: readonly string[];
}

/** Goes through all that can happen, breadth first, until a promise is broken. */
export function search(bounds: Bounds, rule: Rule = RULE): Search {
  const model = new QueueModel(bounds, rule);
  const { events } = model;
  const start = model.after(bounds.after ?? []);
  const known = new Set([fingerprint(start)]);
  // Of each state, the one before it, and the number of the step from there.
  const from = [0];
  const numbers = [0];
  const wayTo = (index: number, number: number): string[] => {
    const way = [number];
    for (let at = index; at > 0; at = from[at]!) way.unshift(numbers[at]!);
    let state = start;
    const names = way.map((each) => {
      const [name, next] = [...model.next(state)][each]!;
      state = next;
      return name;
    });
    return [...(bounds.after ?? []), ...names];
  };
  let layer: [index: number, state: State][] = [[0, start]];
  while (layer.length > 0) {
    const nextLayer: typeof layer = [];
    for (const [index, state] of layer) {
      if (known.size >= (bounds.states ?? Infinity))
        return { states: known.size, isComplete: false, events, steps: [] };
      let number = 0;
      for (const [, next] of model.next(state)) {
        const states = known.size;
        if (next.violation !== undefined) {
          const { violation } = next;
          return { states, isComplete: false, events, violation, steps: wayTo(index, number) };
        }
        if (known.add(fingerprint(next)).size > states) {
          from.push(index);
          numbers.push(number);
          nextLayer.push([states, next]);
        }
        number += 1;
      }
    }
    layer = nextLayer;
  }
  return { states: known.size, isComplete: true, events, steps: [] };
}
