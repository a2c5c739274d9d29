// Jest looks up a global slowly, and a walk needs thousands of them.
const { floor, imul, max } = Math;

/**
 * A model of the votes of three nodes for one lock: how a hold loses votes, asks for them again, and counts them. It has no servers,
 * no clock and no code of the product. One walk is a random order of events: messages that arrive late or never, connections that
 * break, nodes that lose their data, leases that end.
 *
 * It checks three promises:
 *
 * - **Exclusion.** Two holds are valid at the same time only after nodes have lost so many votes that a hold was left without a
 *   majority. A vote that was asked for again is as good as any other here.
 * - **No return.** A renewal that was sent after another caller was granted never succeeds, whatever the nodes have lost: a lock that
 *   another caller had in between does not come back to life. (The exception: a node that loses a vote of an attempt that is not
 *   decided yet. The page on Redlock documents it, and the model does not do it.)
 * - **No needless loss.** Once all nodes have acknowledged votes for a hold and nothing is in flight, no renewal fails while a majority of
 *   these votes exists. (The exception: a connection broke or a vote was lost before that, and no renewal that was sent later has succeeded.)
 */
export interface Rule {
  /** When a vote counts that was asked for again. */
  readonly again: 'after-a-renewal' | 'same-round' | 'immediately' | 'never';
  /** Whether a vote counts immediately that arrives after the grant: only with the token of the grant, or always. */
  readonly late: 'with-token' | 'always';
  /** Whether a vote that is acknowledged after the grant is recounted immediately, or waits for the next renewal. */
  readonly recount: 'immediately' | 'never';
}

/** The rule of the product. */
export const RULE: Rule = { again: 'after-a-renewal', late: 'with-token', recount: 'immediately' };

export interface Walk {
  readonly violations: readonly string[];
  readonly grants: number;
  readonly renewals: number;
  /** Votes that were lost, asked for again, and counted. */
  readonly regained: number;
}

const NODES = 3;
const MAJORITY = 2;
const LEASE = 8;
const EVENTS = 160;
const MOST_LOSSES = 4;

interface Vote {
  readonly attempt: Attempt;
  readonly round: number;
  readonly until: number;
}

interface Node {
  vote: Vote | undefined;
  /** The largest token that it knows; 0 after it has lost its data. */
  counter: number;
}

type Message =
  | { readonly do: 'vote' | 'write'; readonly attempt: Attempt; readonly round: number }
  | { readonly do: 'extend'; readonly attempt: Attempt; readonly renewal: Renewal }
  | { readonly do: 'again'; readonly attempt: Attempt; readonly round: number }
  | { readonly do: 'release'; readonly attempt: Attempt };

interface Reply {
  readonly to: Message;
  /** `vote`: 2 with the token of the attempt, 1 without, 0 refused. `extend`: the round of the vote, or 0. Others: 1 or 0. */
  readonly value: number;
  readonly isForgetful: boolean;
}

interface Line {
  requests: Message[];
  replies: Reply[];
  /** Sent on a connection that has broken: each may be executed at any time, and is not answered. */
  strays: Message[];
}

interface Renewal {
  /** It extends nothing, and its failure ends nothing. */
  readonly isRecount: boolean;
  readonly sentAt: number;
  readonly sentStep: number;
  /** The votes that were acknowledged when it was sent. */
  readonly acknowledged: readonly number[];
  /** What the nodes have answered, by node: the round of the vote, 0 for none. */
  readonly answers: number[];
  missing: number[];
  outcome: 'given' | 'failed' | undefined;
}

/** One attempt, from its ask to its release. Times are in ticks, steps count events. */
interface Attempt {
  readonly process: number;
  readonly token: number;
  readonly round: number;
  readonly sentAt: number;
  readonly sentStep: number;
  state: 'asking' | 'held' | 'over';
  agreed: number;
  answers: number;
  isForgetfulSomewhere: boolean;
  grantedStep: number;
  validUntil: number;
  /** Nodes have lost votes of it so that no majority was left. */
  isBroken: boolean;
  /** By node, the round of the vote that counts, or was acknowledged; 0 for none. */
  counted: number[];
  acknowledged: number[];
  renewal: Renewal | undefined;
  /** When a vote of it was last lost or a connection of its process last broke; -1 after a renewal that was sent later has succeeded. */
  disturbedStep: number;
  /** The rounds of its votes by node, as they were when the process last knew all of them and nothing was in flight. */
  whole: number[];
}

/** A small repeatable generator (mulberry32). */
function generator(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** One random order of events, decided by `seed`. */
export function walk(seed: number, rule: Rule = RULE, processes = 2): Walk {
  const fraction = generator(seed);
  const pick = (count: number) => floor(fraction() * count);
  const nodes: Node[] = Array.from({ length: NODES }, () => ({ vote: undefined, counter: 1 }));
  const lines: Line[][] = Array.from({ length: processes }, () =>
    nodes.map(() => ({ requests: [], replies: [], strays: [] })),
  );
  const current: (Attempt | undefined)[] = new Array<undefined>(processes).fill(undefined);
  const granted: Attempt[] = [];
  const violations: string[] = [];
  let [now, step, rounds, losses, renewals, regained] = [0, 0, 0, 0, 0, 0];

  const standing = (node: Node): Vote | undefined => (node.vote && node.vote.until > now ? node.vote : undefined);
  const isValid = (attempt: Attempt) => attempt.state === 'held' && now < attempt.validUntil;
  const sendTo = (index: number, message: Message) => lines[message.attempt.process]![index]!.requests.push(message);
  const sendToAll = (message: Message) => {
    for (const index of nodes.keys()) sendTo(index, message);
  };
  /** Whether a loss has left a valid hold without a majority of votes that last as long as it counts on them. */
  const look = (attempt: Attempt) => {
    const votes = nodes.filter(({ vote }) => vote?.attempt === attempt && vote.until >= attempt.validUntil).length;
    if (losses > 0 && isValid(attempt) && votes < MAJORITY) attempt.isBroken = true;
  };
  const end = (attempt: Attempt) => {
    attempt.state = 'over';
    current[attempt.process] = undefined;
    sendToAll({ do: 'release', attempt });
  };

  const ask = (process: number) => {
    rounds += 1;
    const attempt: Attempt = {
      process,
      // As the estimates of two processes: about the time, and rarely in order.
      token: 10 * (step + 1) + 3 * pick(40) + process,
      round: rounds,
      sentAt: now,
      sentStep: step,
      state: 'asking',
      agreed: 0,
      answers: 0,
      isForgetfulSomewhere: false,
      grantedStep: 0,
      validUntil: -1,
      isBroken: false,
      counted: [0, 0, 0],
      acknowledged: [0, 0, 0],
      renewal: undefined,
      disturbedStep: -1,
      whole: [],
    };
    current[process] = attempt;
    sendToAll({ do: 'vote', attempt, round: attempt.round });
  };

  const grant = (attempt: Attempt) => {
    attempt.state = 'held';
    attempt.grantedStep = step;
    attempt.validUntil = attempt.sentAt + LEASE;
    attempt.counted = [...attempt.acknowledged];
    if (attempt.isForgetfulSomewhere) sendToAll({ do: 'write', attempt, round: attempt.round });
    if (!isValid(attempt)) {
      end(attempt);
      return;
    }
    for (const other of granted) {
      if (isValid(other) && !other.isBroken) violations.push(`two hold: ${other.token} and ${attempt.token}`);
    }
    granted.push(attempt);
  };

  const renew = (attempt: Attempt, isRecount = false) => {
    const acknowledged = [...attempt.acknowledged];
    const renewal: Renewal = {
      isRecount,
      sentAt: now,
      sentStep: step,
      acknowledged,
      answers: [],
      missing: [],
      outcome: undefined,
    };
    if (!isRecount) attempt.renewal = renewal;
    sendToAll({ do: 'extend', attempt, renewal });
  };

  const acknowledge = (attempt: Attempt, index: number, round: number) => {
    if (round <= attempt.acknowledged[index]!) return;
    attempt.acknowledged[index] = round;
    if (attempt.state === 'held' && rule.recount === 'immediately') renew(attempt, true);
  };

  const askAgain = (attempt: Attempt, index: number) => {
    if (rule.again === 'never' || attempt.state !== 'held') return;
    rounds += 1;
    sendTo(index, { do: 'again', attempt, round: rounds });
  };

  const succeed = (attempt: Attempt, renewal: Renewal) => {
    renewal.outcome = 'given';
    if (!isValid(attempt)) return;
    if (!renewal.isRecount) {
      renewals += 1;
      attempt.validUntil = renewal.sentAt + LEASE;
      if (renewal.sentStep > attempt.disturbedStep) attempt.disturbedStep = -1;
    }
    look(attempt);
    renewal.acknowledged.forEach((round, index) => {
      if (round <= attempt.counted[index]!) return;
      if (round !== attempt.round) regained += 1;
      attempt.counted[index] = round;
    });
    for (const other of granted) {
      const isBetween = other.sentStep > attempt.grantedStep && other.grantedStep < renewal.sentStep;
      if (isBetween) violations.push(`${attempt.token} came back after ${other.token}`);
      const isClean = !other.isBroken && !attempt.isBroken;
      if (other !== attempt && isValid(other) && isClean) violations.push(`two hold: ${other.token}, ${attempt.token}`);
    }
    for (const index of renewal.missing) askAgain(attempt, index);
  };

  const fail = (attempt: Attempt, renewal: Renewal) => {
    renewal.outcome = 'failed';
    if (renewal.isRecount) return;
    const kept = attempt.whole.filter((round, index) => {
      const vote = standing(nodes[index]!);
      return vote?.attempt === attempt && vote.round === round;
    });
    if (kept.length >= MAJORITY) violations.push(`${attempt.token} was lost needlessly`);
    end(attempt);
  };

  const onExtended = (attempt: Attempt, renewal: Renewal, index: number, round: number) => {
    if (round > 0) acknowledge(attempt, index, round);
    else if (!renewal.isRecount) {
      if (renewal.outcome === 'given') askAgain(attempt, index);
      else if (renewal.outcome === undefined) renewal.missing.push(index);
    }
    if (renewal.outcome !== undefined || attempt.state !== 'held') return;
    renewal.answers[index] = round;
    const isCounted = (at: number) => rule.again === 'same-round' || attempt.counted[at] === renewal.answers[at];
    const answered = nodes.map((_, at) => at).filter((at) => renewal.answers[at] !== undefined);
    const without = answered.filter((at) => renewal.answers[at] === 0);
    const counting = answered.filter((at) => !without.includes(at) && isCounted(at));
    if (counting.length >= MAJORITY) succeed(attempt, renewal);
    // A vote that does not count yet may count before the last answer.
    else if (without.length > NODES - MAJORITY || answered.length === NODES) fail(attempt, renewal);
  };

  const onReply = ({ to, value, isForgetful }: Reply, index: number) => {
    const { attempt } = to;
    if (to.do === 'vote') {
      attempt.answers += 1;
      attempt.isForgetfulSomewhere ||= isForgetful;
      const isCounted = value === 2 || (value === 1 && rule.late === 'always');
      if (attempt.state === 'held' && isCounted && attempt.counted[index] === 0) attempt.counted[index] = to.round;
      if (value > 0 && isCounted) attempt.acknowledged[index] = max(attempt.acknowledged[index]!, to.round);
      else if (value > 0) acknowledge(attempt, index, to.round);
      if (attempt.state === 'held') {
        if (isForgetful) sendToAll({ do: 'write', attempt, round: attempt.round });
      } else if (attempt.state === 'asking') {
        if (value === 2) attempt.agreed += 1;
        if (attempt.agreed >= MAJORITY) grant(attempt);
        else if (attempt.answers === NODES) end(attempt);
      }
    } else if (to.do === 'extend') onExtended(attempt, to.renewal, index, value);
    else if (to.do === 'again' && value === 1) {
      acknowledge(attempt, index, to.round);
      if (rule.again === 'immediately') attempt.counted[index] = max(attempt.counted[index]!, to.round);
    }
  };

  const execute = (message: Message, node: Node): Reply => {
    const { attempt } = message;
    const vote = standing(node);
    const mine = vote?.attempt === attempt ? vote : undefined;
    const isForgetful = node.counter === 0;
    const put = (round: number) => (node.vote = { attempt, round, until: now + LEASE });
    let value = 0;
    switch (message.do) {
      case 'vote':
        if (mine) value = 1;
        else if (!vote) {
          put(message.round);
          value = !isForgetful && attempt.token > node.counter ? 2 : 1;
          if (value === 2) node.counter = attempt.token;
        }
        break;
      case 'write':
        if (node.counter > 0 || mine?.round === message.round) node.counter = max(node.counter, attempt.token);
        break;
      case 'extend':
        if (mine) {
          if (!message.renewal.isRecount) put(mine.round);
          value = mine.round;
        } else if (!vote && rule.again === 'same-round') {
          put(attempt.round);
          value = attempt.round;
        }
        break;
      case 'again':
        if (!vote) {
          put(message.round);
          if (node.counter > 0) node.counter = max(node.counter, attempt.token);
          value = 1;
        }
        break;
      case 'release':
        if (mine) node.vote = undefined;
    }
    return { to: message, value, isForgetful: isForgetful && value > 0 };
  };

  const lose = (index: number) => {
    const node = nodes[index]!;
    if (losses === MOST_LOSSES || nodes.filter(({ counter }) => counter > 0).length <= MAJORITY) return;
    const isAskedFor = current.some((attempt) => attempt?.state === 'asking');
    if (isAskedFor && standing(node)?.attempt.state === 'asking') return;
    losses += 1;
    if (node.vote) node.vote.attempt.disturbedStep = step;
    node.vote = undefined;
    node.counter = 0;
    for (const attempt of granted) look(attempt);
  };

  // A grant of another lock has reached the node, with its token.
  const teach = (node: Node) => {
    if (node.counter === 0) node.counter = max(...nodes.map(({ counter }) => counter)) + 1;
  };

  const break_ = (line: Line, process: number) => {
    const attempt = current[process];
    if (attempt) attempt.disturbedStep = step;
    line.strays.push(...line.requests);
    line.requests = [];
    line.replies = [];
  };

  /** All nodes have acknowledged votes for what the process holds, and nothing of it is in flight. */
  const settle = (attempt: Attempt) => {
    if (attempt.state !== 'held' || attempt.disturbedStep >= 0) return;
    if (lines[attempt.process]!.some(({ requests, replies }) => requests.length + replies.length > 0)) return;
    const known = attempt.acknowledged;
    const isWhole = nodes.every((node, index) => {
      const vote = standing(node);
      return vote?.attempt === attempt && vote.round === known[index];
    });
    if (isWhole) attempt.whole = [...known];
  };

  const flat = lines.flatMap((own, process) => own.map((line, index) => ({ line, index, process })));
  /** A message or a reply gets on: one line in four is slow. */
  const slow = flat.map(() => fraction() < 0.25);
  const advance = () => {
    const start = pick(flat.length);
    for (let offset = 0; offset < flat.length; offset += 1) {
      const at = (start + offset) % flat.length;
      const { line, index } = flat[at]!;
      if (slow[at] && fraction() < 0.9) continue;
      const reply = line.replies.length > 0 && (line.requests.length === 0 || fraction() < 0.5);
      if (reply) onReply(line.replies.shift()!, index);
      else if (line.requests.length > 0) line.replies.push(execute(line.requests.shift()!, nodes[index]!));
      else continue;
      return;
    }
  };

  for (; step < EVENTS && violations.length === 0; step += 1) {
    const draw = fraction();
    const process = pick(processes);
    const attempt = current[process];
    if (draw < 0.75) advance();
    else if (draw < 0.89) {
      if (!attempt) ask(process);
      else if (attempt.state === 'held') {
        if (!isValid(attempt) || fraction() < 0.15) end(attempt);
        else if (attempt.renewal === undefined || attempt.renewal.outcome !== undefined || fraction() < 0.3)
          renew(attempt);
      } else if (fraction() < 0.1) end(attempt);
    } else if (draw < 0.92) now += 1;
    else if (draw < 0.95) lose(pick(NODES));
    else if (draw < 0.965) teach(nodes[pick(NODES)]!);
    else if (draw < 0.97) slow[pick(flat.length)] = fraction() < 0.25;
    else {
      const { line, index, process: owner } = flat[pick(flat.length)]!;
      if (draw < 0.98) break_(line, owner);
      else if (line.strays.length > 0) execute(line.strays.splice(pick(line.strays.length), 1)[0]!, nodes[index]!);
    }
    for (const held of current) if (held) settle(held);
  }
  return { violations, grants: granted.length, renewals, regained };
}
