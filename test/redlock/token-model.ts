/**
 * A model of the tokens of one lock on three nodes, while callers of a process may hold it one after the other with a block of tokens. It
 * has no server, no clock and no code of the product. {@link search} goes through all orders of events within its bounds.
 *
 * Messages of one connection are executed in their order, and answered late or never. When a connection breaks, what was sent on it
 * is executed at any time or never. An attempt whose round has failed asks again and may find its votes. Estimates are
 * anything from 1 to one more than what the nodes know. Tokens of other locks raise the counters.
 *
 * A vote ends at any time after its attempt was granted or given up, so releases and clean-ups need no message, and more may happen here than
 * with leases. While votes are asked for they stand: a grant whose votes end before it is decided is not used.
 *
 * It checks one promise: **the first token of a grant is larger than the last one of each earlier grant**, also after nodes have lost their data, as
 * long as a majority remembers, and none loses it while votes are asked for.
 */
export interface Rule {
  /** Which token of the block a node compares with its counter. */
  readonly compared: 'first' | 'last';
  /** Which token of the block a vote writes, and which one the write-back. */
  readonly voted: 'first' | 'last';
  readonly written: 'first' | 'last';
  /** Whether a hold with the token of an earlier round has followers. */
  readonly found: 'alone' | 'with-followers';
}

/** The rule of the product. */
export const RULE: Rule = {
  compared: 'first',
  voted: 'last',
  written: 'last',
  found: 'alone',
};

/** How far a search goes. */
export interface Bounds {
  /** How many callers the attempts serve in their first, second, … round. */
  readonly attempts: readonly (readonly number[])[];
  /** What the nodes' counters are at first, and their clocks. */
  readonly counters?: readonly number[];
  readonly clocks?: readonly number[];
  /** How many connections break, how often a node loses its data, and how often another lock raises a counter. */
  readonly breaks?: number;
  readonly losses?: number;
  readonly raises?: number;
  /** Steps that come first, by name. */
  readonly after?: readonly string[];
}

export interface Found {
  readonly violation: string | undefined;
  /** What led to it. */
  readonly steps: readonly string[];
  readonly states: number;
  /** What has happened in some order of events. */
  readonly events: ReadonlySet<string>;
}

const MAJORITY = 2;
const NODES = 3;
const FOUND = 'a hold is found';

interface Message {
  /** `teach`: a write whose answer nobody waits for. */
  readonly do: 'vote' | 'write' | 'teach';
  readonly round: number;
  readonly first: number;
  readonly last: number;
}

interface Reply {
  readonly do: Message['do'];
  readonly round: number;
  /** `refused`: somebody else has the vote, or it is over. `accepted`: with the token of this very message. */
  readonly is: 'refused' | 'accepted' | 'voted';
  readonly written: number;
  readonly least: number;
  readonly isForgetful: boolean;
}

interface Line {
  readonly requests: readonly Message[];
  readonly replies: readonly Reply[];
  /** Sent on a connection that has broken. */
  readonly strays: readonly Message[];
}

interface Vote {
  readonly attempt: number;
  readonly round: number;
  /** The last token of the block; 0 for none. */
  readonly token: number;
}

interface Node {
  readonly clock: number;
  /** The largest token that it knows; 0 after it has lost its data. */
  readonly counter: number;
  readonly vote: Vote | undefined;
  /** To each attempt. */
  readonly lines: readonly Line[];
}

interface Attempt {
  readonly state: 'idle' | 'asking' | 'writing' | 'failed' | 'over';
  readonly round: number;
  /** The largest token that it has estimated: its process never names one twice. */
  readonly named: number;
  readonly received: readonly Reply[];
  readonly yes: number;
  readonly no: number;
  readonly followers: number;
  /** The last token that was agreed on, by round. */
  readonly agreed: readonly number[];
}

interface State {
  readonly nodes: readonly Node[];
  readonly attempts: readonly Attempt[];
  readonly breaks: number;
  readonly losses: number;
  readonly raises: number;
  /** The last token of all grants. */
  readonly highest: number;
  readonly violation?: string;
}

interface Step {
  readonly name: string;
  readonly next: State;
}

const LINE: Line = { requests: [], replies: [], strays: [] };

/** Goes through all orders of events, breadth first, so that a violation is found by a shortest way. */
export function search(bounds: Bounds, rule: Rule = RULE): Found {
  const events = new Set<string>();
  const model = new Model(bounds, rule, events);
  let start = model.start();
  for (const wanted of bounds.after ?? []) {
    const step = [...model.steps(start)].find(({ name }) => name === wanted);
    if (!step) throw new Error(`There is no step "${wanted}".`);
    start = step.next;
  }
  const cameFrom = new Map<string, readonly [previous: string, name: string]>();
  const steps = (last: string) => {
    const names: string[] = [];
    for (let at = cameFrom.get(last); at !== undefined && at[1] !== ''; at = cameFrom.get(at[0])) names.unshift(at[1]);
    return names;
  };
  cameFrom.set(encode(start), ['', '']);
  let edge: (readonly [string, State])[] = [[encode(start), start]];
  while (edge.length > 0) {
    const further: typeof edge = [];
    for (const [code, state] of edge) {
      for (const { name, next } of model.steps(state)) {
        const nextCode = encode(next);
        if (cameFrom.has(nextCode)) continue;
        cameFrom.set(nextCode, [code, name]);
        const { violation } = next;
        if (violation !== undefined) {
          return { violation, steps: steps(nextCode), states: cameFrom.size, events };
        }
        further.push([nextCode, next]);
      }
    }
    edge = further;
  }
  return { violation: undefined, steps: [], states: cameFrom.size, events };
}

class Model {
  constructor(
    private readonly bounds: Bounds,
    private readonly rule: Rule,
    private readonly events: Set<string>,
  ) {}

  start(): State {
    const { attempts, counters = [1, 1, 1], clocks = [0, 0, 0], breaks = 0, losses = 0, raises = 0 } = this.bounds;
    return {
      nodes: counters.map((counter, index) => ({
        clock: clocks[index]!,
        counter,
        vote: undefined,
        lines: attempts.map(() => LINE),
      })),
      attempts: attempts.map(() => ({
        state: 'idle',
        round: 0,
        named: 0,
        received: [],
        yes: 0,
        no: 0,
        followers: 0,
        agreed: [],
      })),
      ...{ breaks, losses, raises, highest: 0 },
    };
  }

  *steps(state: State): Generator<Step> {
    for (const index of state.attempts.keys()) yield* this.#attempt(state, index);
    for (const index of state.nodes.keys()) {
      yield* this.#mishaps(state, index);
      for (const attempt of state.attempts.keys()) yield* this.#line(state, index, attempt);
    }
  }

  /** What an attempt decides by itself. */
  *#attempt(state: State, index: number): Generator<Step> {
    const attempt = state.attempts[index]!;
    const rounds = this.bounds.attempts[index]!;
    const callers = rounds[attempt.round];
    if (attempt.state === 'idle' || attempt.state === 'failed') {
      // Attempts that are alike ask in their order.
      const isNext =
        attempt.round > 0 ||
        state.attempts.every(
          (each, other) =>
            other >= index || each.state !== 'idle' || String(this.bounds.attempts[other]) !== String(rounds),
        );
      if (callers !== undefined && isNext) yield* this.#asks(state, index, callers);
    } else if (attempt.state !== 'over') {
      yield { name: `${index} has no answer in time`, next: this.#fail(state, index) };
    }
  }

  *#asks(state: State, index: number, callers: number): Generator<Step> {
    const { round, named, agreed } = state.attempts[index]!;
    const counters = state.nodes.map(({ counter }) => counter);
    const most = Math.max(...counters) + 1;
    // A smaller one is refused by all, as none is.
    const refused = Math.min(...counters.filter((counter) => counter > 0));
    const least = Math.max(named, this.rule.compared === 'first' ? refused : refused - callers + 1) + 1;
    for (let first = 0; first <= most; first = first === 0 ? least : first + 1) {
      const last = first === 0 ? 0 : first + callers - 1;
      const asking = withAttempt(state, index, {
        state: 'asking',
        round: round + 1,
        named: Math.max(named, last),
        received: [],
        yes: 0,
        no: 0,
        followers: callers - 1,
        agreed: [...agreed, 0],
      });
      const next = send(asking, index, { do: 'vote', round: round + 1, first, last });
      yield { name: `${index} asks ${first === 0 ? 'without a token' : `with ${first} to ${last}`}`, next };
    }
  }

  /** What happens to a node without a message. */
  *#mishaps(state: State, index: number): Generator<Step> {
    const { attempts, nodes, losses, raises } = state;
    const { vote, counter } = nodes[index]!;
    const owner = vote && attempts[vote.attempt]!;
    if (owner && hasEnded(owner)) {
      yield { name: `a vote ends at ${index}`, next: withNode(state, index, { vote: undefined }) };
    }
    const others = nodes.filter((node, each) => each !== index && node.counter > 0);
    const isQuiet = () =>
      attempts.every((each) => each.state === 'idle' || hasEnded(each)) &&
      nodes.every(({ lines }) =>
        lines.every(({ requests, strays }) => [...requests, ...strays].every((each) => each.do !== 'vote')),
      );
    if (losses > 0 && others.length >= MAJORITY && isQuiet()) {
      const next = withNode({ ...state, losses: losses - 1 }, index, { vote: undefined, counter: 0 });
      yield { name: `${index} loses its data`, next };
    }
    // A grant of another lock, by the others and a vote here.
    if (counter === 0 && others.length >= MAJORITY) {
      const next = Math.max(...others.map((each) => each.counter)) + 1;
      yield { name: `${index} learns ${next}`, next: withNode(state, index, { counter: next }) };
    }
    if (counter > 0 && raises > 0) {
      const next = withNode({ ...state, raises: raises - 1 }, index, { counter: counter + 1 });
      yield { name: `${index} is raised to ${counter + 1}`, next };
    }
  }

  *#line(state: State, index: number, attempt: number): Generator<Step> {
    const line = state.nodes[index]!.lines[attempt]!;
    const { requests, replies, strays } = line;
    const [request] = requests;
    const [reply] = replies;
    if (request) {
      const { node, reply: answer } = this.#execute(state.nodes[index]!, attempt, request);
      const isHeard = hears(state.attempts[attempt]!, answer);
      const executed = { ...line, requests: requests.slice(1), replies: isHeard ? [...replies, answer] : replies };
      const next = withNode(state, index, { ...node, lines: node.lines.with(attempt, executed) });
      yield { name: `${index} executes ${request.do} of ${attempt}`, next: this.#tidy(next, attempt) };
    }
    if (reply) {
      const received = withLine(state, index, attempt, { ...line, replies: replies.slice(1) });
      yield {
        name: `${attempt} is answered by ${index}`,
        next: this.#tidy(this.#onReply(received, attempt, reply), attempt),
      };
    }
    if (state.breaks > 0 && requests.length > 0) {
      const broken = { requests: [], replies: [], strays: [...strays, ...requests] };
      const next = withLine({ ...state, breaks: state.breaks - 1 }, index, attempt, broken);
      yield { name: `a connection of ${attempt} to ${index} breaks`, next };
    }
    for (const [at, stray] of strays.entries()) {
      const rest = { ...line, strays: strays.toSpliced(at, 1) };
      const { node } = this.#execute(state.nodes[index]!, attempt, stray);
      const next = withNode(state, index, { ...node, lines: node.lines.with(attempt, rest) });
      yield { name: `${index} executes a late ${stray.do} of ${attempt}`, next: this.#tidy(next, attempt) };
    }
  }

  #execute(node: Node, attempt: number, { do: what, round, first, last }: Message): { node: Node; reply: Reply } {
    const { rule } = this;
    const { vote, counter, clock } = node;
    const mine = vote?.attempt === attempt ? vote : undefined;
    const isForgetful = counter === 0;
    const reply = { do: what, round, is: 'refused', written: 0, least: 0, isForgetful } satisfies Reply;
    if (what !== 'vote') {
      const token = rule.written === 'last' ? last : first;
      const learns = isForgetful ? mine?.round === round : counter < token;
      const written = { ...node, counter: learns ? token : counter, vote: mine ? { ...mine, token } : vote };
      return { node: written, reply: { ...reply, is: mine ? 'accepted' : 'refused' } };
    }
    if (vote && !mine) return { node, reply };
    if (!isForgetful && !vote && (rule.compared === 'first' ? first : last) > counter) {
      const token = rule.voted === 'last' ? last : first;
      const given = { ...node, counter: token, vote: { attempt, round, token: last } };
      return { node: given, reply: { ...reply, is: 'accepted', written: last, least: last } };
    }
    const given = mine ? { ...mine, round: Math.max(mine.round, round) } : { attempt, round, token: 0 };
    const least = Math.max(clock, counter + 1);
    return { node: { ...node, vote: given }, reply: { ...reply, is: 'voted', written: given.token, least } };
  }

  #onReply(state: State, index: number, reply: Reply): State {
    const attempt = state.attempts[index]!;
    const token = attempt.agreed[reply.round - 1]!;
    if (reply.do === 'vote' && reply.round === attempt.round && attempt.state === 'asking') {
      const received = [...attempt.received, reply];
      return this.#decide(withAttempt(state, index, { received }), index);
    }
    // A node that has lost its data learns the token, if its vote came late.
    if (reply.do === 'vote' && reply.is !== 'refused' && reply.isForgetful && token > 0) {
      const followers = reply.round === attempt.round ? attempt.followers : 0;
      return send(state, index, { do: 'teach', round: reply.round, first: token - followers, last: token });
    }
    if (reply.do === 'write' && reply.round === attempt.round && attempt.state === 'writing') {
      const [yes, no] = reply.is === 'accepted' ? [attempt.yes + 1, attempt.no] : [attempt.yes, attempt.no + 1];
      const counted = withAttempt(state, index, { yes, no });
      if (yes >= MAJORITY) return this.#grant(counted, index, 'a block is written back');
      if (no > NODES - MAJORITY) return this.#fail(counted, index);
      return counted;
    }
    return state;
  }

  #decide(state: State, index: number): State {
    const { received, followers: most, round, agreed } = state.attempts[index]!;
    const votes = received.filter(({ is }) => is !== 'refused');
    const forgetful = votes.filter(({ isForgetful }) => isForgetful).length;
    const isElected = votes.length - forgetful >= MAJORITY || forgetful >= MAJORITY;
    if (!isElected) return received.length < NODES ? state : this.#fail(state, index);
    const isFound = votes.some(({ is, written }) => is === 'voted' && written > 0);
    const followers = isFound && this.rule.found === 'alone' ? 0 : most;
    const carried = votes.find(
      ({ written }) => written > 0 && votes.filter((vote) => vote.written === written).length >= MAJORITY,
    );
    const largest = Math.max(...votes.map(({ written, least }) => Math.max(written, least)));
    const last = carried ? carried.written : largest + followers;
    const token = { followers, agreed: agreed.with(round - 1, last) };
    const message = { do: 'write', round, first: last - followers, last } as const;
    if (!carried)
      return this.#tidy(send(withAttempt(state, index, { ...token, state: 'writing' }), index, message), index);
    const granted = this.#grant(withAttempt(state, index, token), index, isFound ? FOUND : 'votes carry a block');
    return forgetful > 0 ? send(granted, index, { ...message, do: 'teach' }) : granted;
  }

  #fail(state: State, index: number): State {
    const isLast = state.attempts[index]!.round === this.bounds.attempts[index]!.length;
    return this.#tidy(withAttempt(state, index, { state: isLast ? 'over' : 'failed' }), index);
  }

  /** Leaves out what changes nothing any more. */
  #tidy(state: State, index: number): State {
    const attempt = state.attempts[index]!;
    const isOver = attempt.state === 'over';
    const nodes = state.nodes.map((node) => {
      const line = node.lines[index]!;
      const replies = line.replies.filter((reply) => hears(attempt, reply));
      const mayVote =
        node.vote?.attempt === index || [...line.requests, ...line.strays].some((each) => each.do === 'vote');
      const counts = (each: Message) => each.do === 'vote' || mayVote || node.counter < each.last;
      const requests = isOver ? line.requests.filter(counts) : line.requests;
      const strays = isOver ? line.strays.filter(counts) : line.strays;
      const vote = isOver && node.vote?.attempt === index ? { ...node.vote, token: 0 } : node.vote;
      return { ...node, vote, lines: node.lines.with(index, { requests, replies, strays }) };
    });
    const next = { ...state, nodes };
    if (!isOver) return next;
    const mayBeHeard = nodes.some(({ lines }) => {
      const { requests, replies, strays } = lines[index]!;
      return replies.length > 0 || [...requests, ...strays].some((each) => each.do === 'vote');
    });
    const agreed = mayBeHeard ? attempt.agreed : [];
    return withAttempt(next, index, { named: 0, received: [], yes: 0, no: 0, followers: 0, agreed });
  }

  #grant(state: State, index: number, event: string): State {
    const { agreed, round, followers } = state.attempts[index]!;
    const last = agreed[round - 1]!;
    const first = last - followers;
    const before = state.highest;
    if (before > 0 && (followers > 0 || event === FOUND)) this.events.add(event);
    if (before > 0 && state.nodes.some(({ counter }) => counter === 0)) this.events.add('a node has lost its data');
    const granted = this.#tidy(withAttempt(state, index, { state: 'over' }), index);
    if (first <= before) return { ...granted, violation: `token ${first} after ${before}` };
    return { ...granted, highest: last };
  }
}

/** Whether a reply still changes anything. */
function hears({ state, round, agreed }: Attempt, reply: Reply): boolean {
  if (reply.do !== 'vote') return reply.do === 'write' && state === 'writing' && reply.round === round;
  if (state === 'asking' && reply.round === round) return true;
  return reply.is !== 'refused' && reply.isForgetful && agreed[reply.round - 1]! > 0;
}

function hasEnded({ state }: Attempt): boolean {
  return state === 'over' || state === 'failed';
}

function withAttempt(state: State, index: number, changed: Partial<Attempt>): State {
  return { ...state, attempts: state.attempts.with(index, { ...state.attempts[index]!, ...changed }) };
}

function withNode(state: State, index: number, changed: Partial<Node>): State {
  return { ...state, nodes: state.nodes.with(index, { ...state.nodes[index]!, ...changed }) };
}

function withLine(state: State, index: number, attempt: number, line: Line): State {
  return withNode(state, index, { lines: state.nodes[index]!.lines.with(attempt, line) });
}

/** To all nodes. */
function send(state: State, attempt: number, message: Message): State {
  const nodes = state.nodes.map((node) => {
    const line = node.lines[attempt]!;
    return { ...node, lines: node.lines.with(attempt, { ...line, requests: [...line.requests, message] }) };
  });
  return { ...state, nodes };
}

/** Nodes that are alike may change places. */
function encode({ nodes, attempts, breaks, losses, raises, highest, violation }: State): string {
  const rest = `${breaks}${losses}${raises}.${highest}${violation ?? ''}`;
  return `${nodes.map(nodeCode).sort().join('|')}#${attempts.map(attemptCode).join('|')}#${rest}`;
}

function nodeCode({ clock, counter, vote, lines }: Node): string {
  let code = `${clock}.${counter}/${vote ? `${vote.attempt}.${vote.round}.${vote.token}` : ''}`;
  for (const { requests, replies, strays } of lines) {
    code += `/${codeOf(requests, messageCode)};${codeOf(replies, replyCode)};${strays.map(messageCode).sort().join()}`;
  }
  return code;
}

function attemptCode({ state, round, named, received, yes, no, followers, agreed }: Attempt): string {
  if (state === 'idle') return '';
  const votes = state === 'asking' ? received.map(replyCode).sort().join() : '';
  return `${state[0]}${round}.${named}.${votes}.${yes}${no}${followers}.${agreed.join()}`;
}

function codeOf<T>(each: readonly T[], one: (item: T) => string): string {
  return each.length === 0 ? '' : each.length === 1 ? one(each[0]!) : each.map(one).join();
}

function messageCode({ do: what, round, first, last }: Message): string {
  return `${what[0]}${round}.${first}.${last}`;
}

function replyCode({ do: what, round, is, written, least, isForgetful }: Reply): string {
  return `${what[0]}${round}${is[0]}${written}.${least}${isForgetful ? '?' : ''}`;
}
