import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { describeLockProvider, type TestRunner } from '../../lib/provider-kit/index.js';
import { DistantBackend, MemoryServer } from './memory-server.js';

type Body = () => Promise<void>;

it.each(['afterAll', 'after'] as const)(
  'a run of one case alone has ended when the hook "%s" of the runner has, with those that were begun ahead of it',
  async (hookName) => {
    const running = new Set<Observed>();
    class Observed extends DistantBackend {
      override async connect() {
        running.add(this);
        await super.connect();
      }
      override async close() {
        await super.close();
        running.delete(this);
      }
    }
    const cases: Body[] = [];
    const hooks: Body[] = [];
    const runner: TestRunner = {
      describe: (_title, body) => {
        body();
      },
      it: Object.assign((_title: string, body: Body) => cases.push(body), { skip: () => undefined }),
      [hookName]: (body: Body) => hooks.push(body),
    };
    describeLockProvider('memory', new MemoryServer(new MemoryStore(), Observed).harness(), runner);

    await cases[0]!();
    expect(running.size).toBeGreaterThan(0);
    expect(hooks).toHaveLength(1);
    await hooks[0]!();
    expect(running.size).toBe(0);
  },
);
