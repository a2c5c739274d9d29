import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Cron, ScheduleModule } from '@nestjs/schedule';
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import { MeterProvider } from '@opentelemetry/sdk-metrics';
import {
  DistributedLock,
  DistributedLockModule,
  type LockEventName,
  LockService,
  LockUnavailableError,
  RunAsLeader,
  RunOnce,
} from '../../lib/index.js';
import { DistributedLockInstrumentation } from '../../lib/integrations/opentelemetry/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { LockAdmin } from '../../lib/core/lock-admin.js';
import { hasPrometheus, type PrometheusServer, startPrometheus } from '../servers/prometheus-server.mjs';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { freePort } from '../servers/server-process.mjs';
import { describeUnless } from '../unless.js';

const folder = join(import.meta.dirname, '../../docs/monitoring');
const RULES = join(folder, 'alert-rules.yml');
const RUNBOOK = join(folder, '../operate/runbook.md');
/** Metrics missing from the dashboard, with the reasons. */
const LEFT_OUT: Readonly<Record<string, string>> = {};
/** The PromQL keywords and functions that the files use. */
const PROMQL = new Set([
  ...['sum', 'max', 'min', 'by', 'sort_desc', 'le', 'rate', 'increase', 'histogram_quantile', 'or', 'unless', 'offset'],
  ...['time', 'max_over_time'],
]);
const FROM_PROMETHEUS = ['job', 'instance'];

interface Dashboard {
  readonly panels: readonly {
    readonly title: string;
    readonly targets: readonly { readonly expr: string; readonly legendFormat: string }[];
  }[];
  readonly templating: {
    readonly list: readonly { readonly type: string; readonly query: { readonly query: string } }[];
  };
}

const dashboard = JSON.parse(readFileSync(join(folder, 'grafana-dashboard.json'), 'utf8')) as Dashboard;
const targets = dashboard.panels.flatMap(({ title, targets: all }) => all.map((target) => ({ title, ...target })));
const variables = dashboard.templating.list.filter(({ type }) => type === 'query').map(({ query }) => query.query);

/** Replaces variables as Grafana does when everything is selected. */
const filledIn = (text: string) => text.replaceAll('$__rate_interval', '10s').replaceAll(/\$\w+/g, '.*');

describeUnless(hasPrometheus ? undefined : 'they need Prometheus, which npm run test:all installs as root')(
  'Dashboard and alert rules',
  () => {
    let server: RedisServer;
    let app: INestApplication;
    let prometheus: PrometheusServer;
    let exported: Exported;
    const instrumentation = new DistributedLockInstrumentation();
    let meterProvider: MeterProvider;
    let startedAt: number;

    beforeAll(async () => {
      startedAt = Date.now() / 1000;
      const port = await freePort();
      meterProvider = new MeterProvider({ readers: [new PrometheusExporter({ port, host: '127.0.0.1' })] });
      instrumentation.setMeterProvider(meterProvider);
      instrumentation.enable();
      server = await startRedisServer();
      prometheus = await startPrometheus({ a: `127.0.0.1:${port}` }, [RULES]);
      app = await startShop(server.url);
      await everyOutcome(app, server);
      exported = new Exported(await (await fetch(`http://127.0.0.1:${port}/metrics`)).text());
      // Wait until the last event has been scraped twice, so that every rate has two samples.
      const last = 'rate(distributed_lock_renewals_total{distributed_lock_outcome="unanswered"}[10s])';
      while ((await prometheus.query(last)).length === 0) await sleep(200);
    }, 120_000);

    afterAll(async () => {
      await app.close();
      instrumentation.disable();
      await Promise.all([meterProvider.shutdown(), prometheus.stop(), server.stop()]);
    });

    it('use only exported metrics, labels, and values', async () => {
      const selectors = variables.map((variable) => labelValues(variable));
      const expressions = [
        ...targets.map(({ expr }) => filledIn(expr)),
        ...selectors.map(({ selector, label }) => `sum by (${label}) (${selector})`),
        ...(await prometheus.rules()).map(({ query }) => query),
      ];
      expect(expressions.flatMap((expression) => exported.unknownIn(expression))).toEqual([]);
    });

    it('are checked by a test that detects unknown names, labels, and values', () => {
      const wrong = [
        ['rate(distributed_lock_renewal_total[5m])', 'distributed_lock_renewal_total'],
        ['sum by (distributed_lock_key) (distributed_lock_held)', 'distributed_lock_key'],
        ['distributed_lock_held{distributed_lock_mode="share"}', 'distributed_lock_mode="share"'],
        ['distributed_lock_acquire_duration_count', 'distributed_lock_acquire_duration_count'],
        ['{__name__=~"distributed_lock_acquire_duration(_s)?_count"}', 'distributed_lock_acquire_duration(_s)?_count'],
      ] as const;
      for (const [expression, unknown] of wrong) expect(exported.unknownIn(expression)).toEqual([unknown]);
    });

    it('include every metric on the dashboard', () => {
      const shown = new Set(targets.flatMap(({ expr }) => exported.familiesIn(filledIn(expr))));
      expect([...shown, ...Object.keys(LEFT_OUT)].sort()).toEqual([...exported.families].sort());
    });

    it.each(targets)('show data in panel "$title" with the labels of its legend', async ({ expr, legendFormat }) => {
      // One second more, so that the last scrape precedes the last step.
      const series = await prometheus.range(filledIn(expr), startedAt, Date.now() / 1000 + 1, 1);
      expect(series.length).toBeGreaterThan(0);
      const labels = new Set(series.flatMap(({ metric }) => Object.keys(metric)));
      for (const [, label] of legendFormat.matchAll(/\{\{(\w+)\}\}/g)) expect(labels).toContain(label);
    });

    it.each(variables)('have values for the variable %s', async (variable) => {
      const { selector, label } = labelValues(variable);
      expect(await prometheus.labelValues(label, selector)).not.toEqual([]);
    });

    it('link each rule to the runbook section that names its alert', async () => {
      const page = readFileSync(RUNBOOK, 'utf8');
      const headings = Array.from(page.matchAll(/^## (.+)$/gm), ([, text = '']) => text);
      for (const { name, annotations } of await prometheus.rules()) {
        const { pathname, hash } = new URL(annotations['runbook_url'] ?? annotations['runbook'] ?? '', 'file:///');
        expect(pathname).toMatch(/\/docs\/operate\/runbook\.md$/);
        expect(headings.map(anchorOf)).toContain(hash.slice(1));
        expect(page).toMatch(new RegExp(`^- \\[.*\\]\\(${hash}\\)[^-]*\`${name}\``, 'm'));
      }
    });

    it('alert about a lost lock, and describe what to do', async () => {
      const rules = await prometheus.rules();
      expect(rules.map(({ name }) => name)).toHaveLength(8);
      for (const { query, annotations, labels } of rules) {
        const names = Object.keys(annotations).map((name) => name.replace('runbook_url', 'runbook'));
        expect(names.sort()).toEqual(['description', 'runbook', 'summary']);
        expect(labels['severity']).toMatch(/^(critical|warning)$/);
        const [, kept = ''] = /(?:sum|max|min) by \(([^)]*)\)/.exec(query) ?? [];
        const used = Object.values(annotations).flatMap((text) => [...text.matchAll(/\$labels\.(\w+)/g)]);
        for (const [, label] of used) expect(kept.split(', ')).toContain(label);
      }
      const losses = async () =>
        (await prometheus.alerts()).filter(({ labels }) => labels['alertname'] === 'DistributedLockLost');
      while ((await losses()).length < 2) await sleep(200); // until the rules have been evaluated
      const fired = (await losses()).map(({ labels, state }) => `${state}: ${labels['distributed_lock_loss_reason']}`);
      expect(fired.sort()).toEqual(['firing: max-hold', 'firing: revoked']);
    });

    it('fire each rule only when they should', () => {
      const cwd = join(import.meta.dirname, 'monitoring');
      const files = ['alert-rules.test.yml', 'days.test.yml'];
      const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', ...files], { cwd, encoding: 'utf8' });
      expect({ status, stdout, stderr }).toMatchObject({ status: 0 });
    });
  },
);

class Orders {
  @DistributedLock('order:#{id}', { wait: 0, onBusy: 'skip' })
  async pay(id: number): Promise<void> {
    await Promise.resolve(id);
  }
  @DistributedLock('parcel:#{id}', { wait: '10s' })
  async ship(id: number): Promise<void> {
    await Promise.resolve(id);
  }
}

class Reports {
  @RunOnce('nightly-report', { minHold: 0 })
  async send(): Promise<void> {}
  @Cron('0 3 * * *')
  @RunOnce('cleanup')
  async clean(): Promise<void> {}
}

class Billing {
  @RunAsLeader('billing')
  async run(): Promise<void> {}
}

async function startShop(url: string): Promise<INestApplication> {
  const provider = new RedisLockProvider({ url, commandTimeout: 500 });
  const locks = DistributedLockModule.forRoot({ provider, defaults: { lease: '3s', wait: 0 }, shutdownGrace: 0 });
  class ShopModule {}
  const module = {
    module: ShopModule,
    imports: [locks, ScheduleModule.forRoot()],
    providers: [Orders, Reports, Billing],
  };
  const app = await NestFactory.create(module, { logger: false, abortOnError: false });
  return app.init();
}

/** Ends real locks in every way that the files distinguish. */
async function everyOutcome(app: INestApplication, server: RedisServer): Promise<void> {
  const [orders, locks, admin] = [app.get(Orders), app.get(LockService), app.get(LockAdmin)];
  const next = (name: LockEventName) => new Promise((resolve) => locks.events.once(name, resolve));
  await next('resigned');
  await orders.pay(1);
  await app.get(Reports).send();
  await locks.acquire('order:2');
  await orders.pay(2); // busy, and therefore skipped
  const inTheWay = await locks.acquire('parcel:1');
  const waits = next('waiting');
  const shipped = orders.ship(1);
  await waits;
  await inTheWay.release();
  await shipped;
  const tooLong = await locks.acquire('long', { maxHold: 50 });
  const revoked = await locks.acquire('revoked', { lease: 500 });
  const lost = Promise.all([tooLong, revoked].map(({ signal }) => once(signal, 'abort')));
  await admin.forceRelease('revoked');
  await Promise.all([lost, next('renewed')]);
  const unanswered = next('renewal-failed');
  server.signal('SIGSTOP');
  await expect(locks.acquire('unavailable')).rejects.toThrow(LockUnavailableError);
  await unanswered;
  server.signal('SIGCONT');
}

/** Returns a heading's anchor as GitHub generates it. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\w -]/g, '')
    .replaceAll(' ', '-');
}

function labelValues(variable: string): { selector: string; label: string } {
  const [, selector = '', label = ''] = /^label_values\((.*), (\w+)\)$/.exec(filledIn(variable)) ?? [];
  return { selector, label };
}

/** What a metrics page exports about this library. */
class Exported {
  readonly families = new Set<string>();
  /**
   * The family of each series, under the name used by the Node exporter and by the collector, which appends the unit.
   */
  readonly #names = new Map<string, string>();
  /** Names that are the same in both, and can therefore be used directly. */
  readonly #plainNames = new Set<string>();
  readonly #labels = new Map<string, Set<string>>(FROM_PROMETHEUS.map((label) => [label, new Set()]));

  constructor(page: string) {
    const inSeconds = new Set(Array.from(page.matchAll(/^# UNIT (\w+) s$/gm), ([, family]) => family));
    for (const [, family = ''] of page.matchAll(/^# TYPE (distributed_lock_\w+) /gm)) this.families.add(family);
    for (const [, name = '', labels = ''] of page.matchAll(/^(distributed_lock_\w+)\{(.*)\} \S+$/gm)) {
      const family = [...this.families].find((each) => name.startsWith(each)) ?? '';
      this.#names.set(name, family);
      if (inSeconds.has(family)) this.#names.set(name.replace(family, `${family}_seconds`), family);
      else this.#plainNames.add(name);
      for (const [, label = '', value = ''] of labels.matchAll(/(\w+)="([^"]*)"/g)) {
        this.#labels.set(label, (this.#labels.get(label) ?? new Set()).add(value));
      }
    }
  }

  /** Returns the words of an expression that are neither PromQL nor exported, and values that no label has. */
  unknownIn(expression: string): string[] {
    const unknown: string[] = [];
    const rest = expression.replaceAll(
      /(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"/g,
      (matcher, label: string, _, value: string) => {
        const values = label === '__name__' ? [] : value.split('|');
        if (label === '__name__' && !this.#matchesBothNames(value)) unknown.push(value);
        const known = this.#labels.get(label);
        if (known && values.some((each) => each !== '.*' && !known.has(each))) unknown.push(matcher);
        return label === '__name__' ? '' : label;
      },
    );
    const words = Array.from(rest.matchAll(/\b[a-z_]\w*/gi), ([word]) => word);
    const isKnown = (word: string) => PROMQL.has(word) || this.#plainNames.has(word) || this.#labels.has(word);
    return [...unknown, ...words.filter((word) => !isKnown(word))];
  }

  /** Returns the metrics that an expression refers to. */
  familiesIn(expression: string): string[] {
    const patterns = Array.from(
      expression.matchAll(/__name__=~"([^"]*)"|\b(distributed_lock_\w+)/g),
      (match) => match[1] ?? match[2] ?? '',
    );
    return [...this.#names]
      .filter(([name]) => patterns.some((pattern) => fully(pattern).test(name)))
      .map(([, family]) => family);
  }

  #matchesBothNames(pattern: string): boolean {
    const matched = [...this.#names].filter(([name]) => fully(pattern).test(name));
    return matched.length === 2 && matched[0]?.[1] === matched[1]?.[1];
  }
}

function fully(pattern: string): RegExp {
  return new RegExp(`^(?:${pattern})$`);
}
