import { expect, it } from '@jest/globals';
import { LockTable } from '../../lib/providers/memory/lock-table.js';
import { describeLockProvider, type TestRunner } from '../../lib/testing/index.js';
import { DistantMemoryProvider, MemoryBackend } from './memory-backend.js';

type Body = () => Promise<void>;

it.each(['afterAll', 'after'] as const)(
  'a run of one case alone has ended when the hook "%s" of the runner has, with those that were begun ahead of it',
  async (hookName) => {
    const running = new Set<Observed>();
    class Observed extends DistantMemoryProvider {
      override async start(context: Parameters<DistantMemoryProvider['start']>[0]) {
        running.add(this);
        await super.start(context);
      }
      override async stop() {
        await super.stop();
        running.delete(this);
      }
    }
    const table = new LockTable();
    const cases: Body[] = [];
    const hooks: Body[] = [];
    const runner: TestRunner = {
      describe: (_title, body) => {
        body();
      },
      it: Object.assign((_title: string, body: Body) => cases.push(body), { skip: () => undefined }),
      [hookName]: (body: Body) => hooks.push(body),
    };
    const harness = new MemoryBackend(table).harness();
    describeLockProvider('memory', { ...harness, create: () => new Observed(table) }, runner);

    await cases[0]!();
    expect(running.size).toBeGreaterThan(0);
    expect(hooks).toHaveLength(1);
    await hooks[0]!();
    expect(running.size).toBe(0);
  },
);
