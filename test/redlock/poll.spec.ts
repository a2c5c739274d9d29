import { tokenDigits } from '../../lib/providers/redlock/lock-script.js';
import { agreement, Answers, Poll, type Question } from '../../lib/providers/redlock/poll.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';

const TIMEOUT = 500;

function pollOf(nodes: number, question: Partial<Question> = {}): { poll: Poll<string>; clock: FakeClock } {
  const clock = new FakeClock();
  const write: Question = {
    lock: 'lock:redlock:order',
    args: ['W', '1'.repeat(32), '0', tokenDigits(1), '1'],
    ...question,
  };
  const answers = new Answers(nodes, Math.floor(nodes / 2) + 1);
  return { poll: new Poll<string>(write, answers, agreement, clock, TIMEOUT), clock };
}

describe('a poll of five nodes', () => {
  // 1: yes, 0: no, x: a fault.
  it.each([
    ['111', 'agreed', 'a majority has agreed'],
    ['1x0x1', 'undecided', 'two have agreed, and one of the silent nodes may have'],
    ['000', 'refused', 'a majority cannot agree any more'],
    ['xxx', 'unknown', 'a majority does not answer'],
    ['11x01', 'agreed', 'the last node decides'],
  ])('%s is %s: %s', async (answers, outcome) => {
    const { poll } = pollOf(5);
    Array.from(answers).forEach((answer, node) => {
      expect(poll.isOpen).toBe(true);
      if (answer === 'x') poll.onFault(new Error('down'));
      else poll.onReply(Number(answer), node);
    });
    expect(poll.isOpen).toBe(false);
    expect(await poll.outcome).toBe(outcome);
  });

  it('is decided by the timeout when nodes are silent, and only after replies that have arrived were read', async () => {
    const { poll, clock } = pollOf(5);
    poll.onSent(clock.now());
    poll.onReply(1, 0);
    await clock.advance(TIMEOUT);
    expect(poll.isOpen).toBe(true);
    await clock.advance(1);
    expect(await poll.outcome).toBe('unknown');
    expect(poll.cause).toMatchObject({ message: 'No answer in time.' });
  });

  it('gives later replies to its question alone, and leaves no timer', async () => {
    const late: unknown[] = [];
    const { poll, clock } = pollOf(3, { onLate: (reply, node) => late.push([reply, node]) });
    poll.onSent(clock.now());
    poll.onReply(1, 0);
    poll.onReply(1, 2);
    expect(clock.pendingTimers).toBe(0);
    poll.onReply(0, 1);
    poll.onFault(new Error('down'));
    expect(late).toEqual([[0, 1]]);
    expect(await poll.outcome).toBe('agreed');
  });

  it('that is settled before it is sent arms no timer', async () => {
    const { poll, clock } = pollOf(3);
    poll.settle('left');
    poll.onSent(clock.now());
    expect(clock.pendingTimers).toBe(0);
    expect(await poll.outcome).toBe('left');
  });
});
