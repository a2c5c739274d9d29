import { jest } from '@jest/globals';
import {
  type Browser,
  browserPath,
  closed,
  contrastBelow,
  countClasses,
  freezeHolder,
  launchBrowser,
  overflowing,
  type Page,
  startSale,
  styleOf,
} from './sale-browser.mjs';
import { describeUnless } from '../unless.js';

const ITEMS = 100;
const ORDERS = 150;
// This takes half a minute, and several minutes on a busy machine.
const TIMEOUT = 240_000;

// Commands of the README, as a new user would run them.
const SHOPS = [
  { on: 'memory, one process', options: [], frozen: /^One order is frozen while it holds token/, reason: 'max-hold' },
  {
    on: 'Redis, two processes',
    options: ['--provider', 'redis', '--instances', '2'],
    frozen: /^Process [12] is frozen while it holds token/,
    reason: 'expired',
  },
];

interface Visit {
  readonly sale: Awaited<ReturnType<typeof startSale>>;
  readonly page: Page;
  readonly problems: string[];
  readonly hosts: Set<string>;
}

jest.setTimeout(TIMEOUT);

describeUnless(browserPath === undefined ? 'it needs Chromium, which npm run test:all installs as root' : undefined)(
  'The page of npm start',
  () => {
    let browser: Browser;
    const visits = new Map<string, Visit>();

    // Run both sales at the same time, because they mostly wait.
    beforeAll(async () => {
      browser = await launchBrowser();
      await Promise.all(SHOPS.map(({ on, options }) => visit(on, options)));
    });

    afterAll(async () => {
      await browser.close();
      await Promise.all([...visits.values()].map(({ sale }) => sale.stop()));
    });

    async function visit(on: string, options: string[]): Promise<void> {
      const sale = await startSale(...options);
      const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, colorScheme: 'light' });
      page.setDefaultTimeout(TIMEOUT);
      const problems: string[] = [];
      const hosts = new Set<string>();
      visits.set(on, { sale, page, problems, hosts });
      page.on('console', (message) => {
        if (['error', 'warning'].includes(message.type())) problems.push(message.text());
      });
      page.on('pageerror', (error) => problems.push(error.message));
      page.on('request', (request) => hosts.add(new URL(request.url()).host));
      await page.goto(sale.url);
      await freezeHolder(page);
      await page.locator('#steps .refused').waitFor();
      await closed(page);
    }

    describe.each(SHOPS)('on $on', ({ on, frozen, reason }) => {
      const visited = () => visits.get(on)!;

      it('prints the result of an earlier sale', () => {
        expect(visited().sale.output).toMatch(/@DistributedLock +sold 100 of 100 +exact/);
      });

      it('shows a sale that oversells without a lock and does not with one', async () => {
        const unguarded = await saleOf(visited().page, 'unguarded');
        expect(unguarded).toMatchObject({
          sold: ORDERS,
          soldOut: 0,
          failed: 0,
          verdict: `Oversold by ${ORDERS - ITEMS}`,
        });
        expect(unguarded.squares).toEqual({ sold: ITEMS, over: ORDERS - ITEMS });

        const { sold, soldOut, failed, left, squares } = await saleOf(visited().page, 'guarded');
        expect(sold + soldOut + failed).toBe(ORDERS);
        expect(failed).toBeGreaterThanOrEqual(1);
        expect(left).toBe(0);
        // On a busy machine, an order may write and then lose its lock before it responds. It counts as failed.
        expect(sold).toBeLessThanOrEqual(ITEMS);
        expect(sold).toBeGreaterThanOrEqual(ITEMS - (failed - 1));
        expect(squares).toEqual({ sold, soldOut, failed });
      });

      it('freezes the holder, lets the next one enter, and rejects the stale write', async () => {
        const { page } = visited();
        const steps = await page.locator('#steps li').allInnerTexts();
        expect(steps[0]).toMatch(frozen);
        expect(steps.join('\n')).toContain(`reason: ${reason}`);
        expect(steps.at(-1)).toMatch(/refuses/);
        const [stale, next] = [steps[0]!, steps[1]!].map(tokenOf);
        expect(next! > stale!).toBe(true);
        // The 2 s lease wasn't shortened.
        expect(Number(/^([\d.]+) s later/.exec(steps[1]!)?.[1])).toBeGreaterThan(1);

        const refused = page.locator('#writes tr', { has: page.locator('.refused') });
        expect((await refused.allInnerTexts()).map(tokenOf)).toContain(stale);
      });

      it('draws a waiting time for each order that got the lock', async () => {
        const { page } = visited();
        expect(await page.locator('#waits rect').count()).toBe(ORDERS);
        expect(await page.locator('#waits rect.sold').count()).toBe(ITEMS);
        expect(await page.locator('#waits rect.refused').count()).toBeGreaterThanOrEqual(1);
        expect(await page.locator('#waits-summary').innerText()).toMatch(
          /^150 orders got the lock\. Median wait [\d.]+ s/,
        );
      });

      it('announces the result, leaves the queue empty, and reports no errors', async () => {
        const { page, problems, hosts, sale } = visited();
        expect(await page.getByRole('status').innerText()).toMatch(/^The sale is over\. Without a lock 150 of 100/);
        await page.locator('#waiting').filter({ hasText: /^0$/ }).waitFor();
        await page.locator('#holder').filter({ hasText: 'nobody' }).waitFor();
        expect(problems).toEqual([]);
        expect([...hosts].filter((host) => host !== '')).toEqual([new URL(sale.url).host]);
      });
    });

    describe.each(['light', 'dark'] as const)('in %s mode', (colorScheme) => {
      const page = () => visits.get(SHOPS[0]!.on)!.page;
      beforeAll(() => page().emulateMedia({ colorScheme }));

      it.each([390, 1280])('fits a width of %i pixels', async (width) => {
        await page().setViewportSize({ width, height: 900 });
        expect(await overflowing(page())).toEqual([]);
      });

      it('has sufficient text contrast', async () => {
        expect(await contrastBelow(page(), 4.5)).toEqual([]);
      });
    });

    it('shows the focus, and respects reduced motion', async () => {
      const { page } = visits.get(SHOPS[0]!.on)!;
      await page.emulateMedia({ reducedMotion: 'reduce' });
      await page.locator('#open').focus();
      await page.keyboard.press('Tab');
      expect(await styleOf(page.locator('#freeze:focus-visible'), 'outline-style')).toBe('solid');
      expect(await styleOf(page.locator('#lease-bar'), 'transition-duration')).toBe('0s');
    });

    it('stops while a process is suspended', async () => {
      const { page, sale } = visits.get(SHOPS[1]!.on)!;
      await freezeHolder(page);
      expect(await sale.stop()).toBe(0);
    });
  },
);

async function saleOf(page: Page, name: string) {
  const panel = page.locator(`[data-sale=${name}]`);
  const field = (field: string) => panel.locator(`[data-field=${field}]`).innerText();
  const [sold, soldOut, failed, left] = (
    await Promise.all([field('sold'), field('soldOut'), field('failed'), field('left')])
  ).map(Number) as [number, number, number, number];
  const squares = await countClasses(panel.locator('.orders i'));
  return { sold, soldOut, failed, left, squares, verdict: await field('verdict') };
}

/** Parses a token, which is shown in groups of three digits. */
function tokenOf(text: string): bigint {
  return BigInt(/\d(?:\u202f\d{3})+/.exec(text)![0].replaceAll('\u202f', ''));
}
