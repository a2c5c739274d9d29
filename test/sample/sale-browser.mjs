/* global document, getComputedStyle, Node, SVGElement -- in the page */
// Plain JavaScript, because the screenshot script also uses it. The types are in sale-browser.d.mts.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

/** The path of Chromium on Debian or Chrome on GitHub runners, or undefined. */
export const browserPath = ['/usr/bin/chromium', '/usr/bin/google-chrome'].find((path) => existsSync(path));

// Chromium refuses to run as root with its sandbox. It only opens our own page.
const ARGUMENTS = process.getuid?.() === 0 ? ['--no-sandbox'] : [];

export function launchBrowser() {
  return chromium.launch({ executablePath: browserPath, args: ARGUMENTS });
}

/** Runs `npm start` with these options and returns the URL of its page. */
export async function startSale(...options) {
  const script = join(import.meta.dirname, '../../sample-app/demo/start.mjs');
  const program = spawn(process.execPath, [script, ...options], { stdio: ['ignore', 'pipe', 'inherit'] });
  const gone = once(program, 'exit');
  const stop = async () => {
    program.kill('SIGINT');
    const [code] = await gone;
    return code;
  };
  let output = '';
  for await (const line of createInterface(program.stdout)) {
    output += `${line}\n`;
    const [, url] = /^See it live: (.*)$/.exec(line) ?? [];
    if (url === undefined) continue;
    // Unread output would eventually block the shop.
    program.stdout.resume();
    return { url, output, stop };
  }
  throw new Error(`npm start ended without a page:\n${output}`);
}

/**
 * Opens the sale and freezes the holder, using only the keyboard. On a busy machine, a sale may end before a holder is
 * frozen. Then try again with the next sale.
 */
export async function freezeHolder(page) {
  const step = page.locator('#steps li').first();
  do {
    await page.locator('#open[aria-disabled=false]').press('Enter');
    await page.locator('#open[aria-disabled=true]').waitFor();
    // The sale has started. More orders follow, so one enters when the lease expires.
    await page.locator('#writes tr').first().waitFor();
    await page.locator('#freeze').press('Enter');
    await step.or(page.locator('#open[aria-disabled=false]')).first().waitFor();
  } while (!(await step.isVisible()));
}

export async function closed(page) {
  await page.getByRole('status').filter({ hasText: 'The sale is over.' }).waitFor();
}

/** Counts these elements by class. */
export function countClasses(elements) {
  return elements.evaluateAll((all) => {
    const counts = {};
    for (const { className } of all) counts[className] = (counts[className] ?? 0) + 1;
    return counts;
  });
}

export function styleOf(element, property) {
  return element.evaluate((node, name) => getComputedStyle(node).getPropertyValue(name), property);
}

/** Returns elements wider than the window or their panel. Drawings clip themselves. */
export function overflowing(page) {
  return page.evaluate(() => {
    const right = (node) => node.getBoundingClientRect().right;
    const wide = [...document.querySelectorAll('section :not(svg *)')].filter(
      (node) => right(node) > right(node.closest('section')),
    );
    const root = document.documentElement;
    return [...wide, ...(root.scrollWidth > root.clientWidth ? [root] : [])].map((node) =>
      node.outerHTML.slice(0, 100),
    );
  });
}

/** Returns the page's texts whose contrast with their background is below `least`. */
export function contrastBelow(page, least) {
  return page.evaluate((bound) => {
    const numbers = (color) => color.match(/[\d.]+/g).map(Number);
    const luminance = (color) => {
      const [red, green, blue] = numbers(color)
        .map((value) => value / 255)
        .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const backgroundOf = (node) => {
      const { backgroundColor } = getComputedStyle(node);
      return numbers(backgroundColor)[3] === 0 ? backgroundOf(node.parentElement) : backgroundColor;
    };
    const texts = [...document.body.querySelectorAll('*')].filter((node) =>
      [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim() !== ''),
    );
    return texts.flatMap((node) => {
      const { color, fill } = getComputedStyle(node);
      const levels = [node instanceof SVGElement ? fill : color, backgroundOf(node)].map(luminance);
      const contrast = (Math.max(...levels) + 0.05) / (Math.min(...levels) + 0.05);
      return contrast < bound ? [`${node.tagName} ${node.textContent.trim()}: ${contrast.toFixed(2)}`] : [];
    });
  }, least);
}
