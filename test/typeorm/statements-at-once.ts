import { jest } from '@jest/globals';
import { Client } from 'pg';

/** On how many connections of pg statements are sent while `task` runs, and how many any of them has under way at most. */
export async function statementsAtOnce(task: () => Promise<void>): Promise<{ connections: number; most: number }> {
  const running = new Map<Client, number>();
  let most = 0;
  const { query } = Client.prototype;
  const spy = jest.spyOn(Client.prototype, 'query').mockImplementation(function (this: Client, ...args: unknown[]) {
    const count = (running.get(this) ?? 0) + 1;
    running.set(this, count);
    most = Math.max(most, count);
    const answer: unknown = Reflect.apply(query, this, args);
    const done = () => running.set(this, (running.get(this) ?? 0) - 1);
    void Promise.resolve(answer).then(done, done);
    return answer;
  });
  try {
    await task();
  } finally {
    spy.mockRestore();
  }
  return { connections: running.size, most };
}
