import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const folder = join(import.meta.dirname, '../../maintainers');

// `npm run docs` checks the links of all other pages.
it('every link on a page for maintainers leads somewhere', () => {
  const pages = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((page) => page.endsWith('.md'));
  const links = pages.flatMap((page) =>
    Array.from(readFileSync(join(folder, page), 'utf8').matchAll(/\]\(([^)\s#]+)/g), ([, link = '']) => ({
      page,
      link,
    })),
  );
  expect(links.length).toBeGreaterThan(10);
  const dead = links.filter(
    ({ page, link }) => !/^[a-z]+:/.test(link) && !existsSync(join(folder, dirname(page), link)),
  );
  expect(dead).toEqual([]);
});
