import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AcquireRequest, RenewOutcome } from '../../lib/api/lock-provider.js';
import { conformanceCases, describeLockProvider, type TestRunner } from '../../lib/provider-kit/index.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { DistantBackend, MemoryServer } from './memory-server.js';

const PROVIDERS = join(import.meta.dirname, '../../lib/providers');

function isProviderFolder(folder: string): boolean {
  return readdirSync(join(PROVIDERS, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .some((file) => /\bexport class \w+[^{]*\bimplements\b[^{]*\bLockProvider\b/.test(source(folder, file)));
}

function source(folder: string, file: string): string {
  return readFileSync(join(PROVIDERS, folder, file), 'utf8');
}

const folders = readdirSync(PROVIDERS).filter(isProviderFolder);

// Without a contract test, a broken provider could be released.
describe('every provider is tested with the conformance kit', () => {
  it('finds the provider folders', () => {
    expect(folders).toContain('memory');
  });

  it.each(folders)('%s', (folder) => {
    // A folder may have one spec for all its locks, one per kind, or one shared with other providers.
    const isOfFolder = new RegExp(`^([\\w-]+-)?${folder}(-[\\w-]+)?\\.spec\\.ts$`);
    const specs = readdirSync(import.meta.dirname).filter((file) => isOfFolder.test(file));
    const texts = specs.map((spec) => readFileSync(join(import.meta.dirname, spec), 'utf8'));
    expect(texts).toContainEqual(expect.stringContaining('describeLockProvider('));
  });
});

it('kit cases have unique ids', () => {
  const cases = conformanceCases(new MemoryServer(new MemoryStore()).harness()).map(({ id }) => id);
  expect(new Set(cases).size).toBe(cases.length);
});

it('docs/write-a-provider.md shows the provider that passes the kit', () => {
  const source = readFileSync(new URL('small-provider.ts', import.meta.url), 'utf8')
    .replace('../../lib/index.js', 'nestjs-distributed-lock')
    .replace('../../lib/provider-kit/index.js', 'nestjs-distributed-lock/provider-kit');
  const page = readFileSync(new URL('../../docs/write-a-provider.md', import.meta.url), 'utf8');
  expect(page).toContain(`\`\`\`ts\n${source}\`\`\`\n`);
});

type Body = () => Promise<void>;

it.each(['afterAll', 'after'] as const)(
  'the runner\'s "%s" hook waits for a single case and for cases prefetched with it',
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

const LEASE = 200;

/** The watchdog case on the real clock. */
function watchdogCase(Backend: typeof DistantBackend) {
  const harness = { ...new MemoryServer(new MemoryStore(), Backend).harness(), lease: LEASE };
  return conformanceCases(harness).find(({ id }) => id === '#22')!;
}

it('the watchdog case passes on a machine that stalls for longer than a lease', async () => {
  let stalls = 0;
  class StallsOnce extends DistantBackend {
    override async renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
      if (stalls++ === 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * LEASE);
      return super.renew(request, lease);
    }
  }
  await watchdogCase(StallsOnce).run();
  expect(stalls).toBeGreaterThan(1);
});

it('the watchdog case fails when renewals have no effect, regardless of retries', async () => {
  class NeverAnswers extends DistantBackend {
    override renew(): Promise<RenewOutcome> {
      return Promise.resolve('unknown');
    }
  }
  await expect(watchdogCase(NeverAnswers).run()).rejects.toThrow('how many leases the watchdog has kept the lock for');
});
