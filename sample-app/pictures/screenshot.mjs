import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { commandLine } from '../../scripts/command-line.mjs';
import { ensureInstalled, root } from '../../scripts/ensure-installed.mjs';
import { ensureServers } from '../../scripts/ensure-servers.mjs';

const USAGE = `usage: npm run screenshot [-- options]

  Runs the sale over four processes on Redis, freezes a holder, and takes a screenshot of the page.

  --file docs/images/sale.png  the output file. Default: the picture in the README
  --scheme dark                default: light
  --width 390                  default: 1280`;

const { values: options } = commandLine(USAGE, {
  options: {
    file: { type: 'string', default: join(root, 'docs/images/sale.png') },
    scheme: { type: 'string', default: 'light' },
    width: { type: 'string', default: '1280' },
  },
});

ensureInstalled();
ensureServers(['chromium', 'redis-server']);
const { closed, freezeHolder, launchBrowser, startSale } = await import('../../test/sample/sale-browser.mjs');

const sale = await startSale('--provider', 'redis', '--instances', '4');
const browser = await launchBrowser();
try {
  const viewport = { width: Number(options.width), height: 900 };
  const page = await browser.newPage({ viewport, colorScheme: options.scheme });
  await page.goto(sale.url);
  await freezeHolder(page);
  await closed(page);
  mkdirSync(join(root, 'docs/images'), { recursive: true });
  await page.locator(':focus').blur();
  // Exclude the footer.
  const { y, height } = await page.locator('.lock').boundingBox();
  const clip = { x: 0, y: 0, width: viewport.width, height: y + height + 24 };
  await page.screenshot({ path: options.file, fullPage: true, clip });
} finally {
  await browser.close();
  await sale.stop();
}
