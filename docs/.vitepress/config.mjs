import { existsSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { defineConfig } from 'vitepress';
import { root } from '../../scripts/ensure-installed.mjs';
import { packageEntries } from '../../scripts/package-entries.mjs';

// `npm run docs` collects the pages there: those of the repository, in the same folders, and the generated API reference.
const work = join(root, '.cache/docs');
const pages = join(work, 'pages');
const { name, description, repository } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
// Undefined until the owner has filled it in: scripts/check-release.mjs.
const home = repository?.url.replace(/^git\+|\.git$/g, '');

// The browser refuses what another host would serve.
const POLICY =
  "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:";

export default defineConfig({
  srcDir: pages,
  outDir: join(work, 'site'),
  cacheDir: join(work, 'vite'),
  vite: { build: { chunkSizeWarningLimit: 5000 } }, // the search index is one file, loaded with the first search
  title: name,
  description,
  head: [
    ['meta', { 'http-equiv': 'Content-Security-Policy', content: POLICY }],
    ['link', { rel: 'icon', href: 'data:,' }],
  ],
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      { text: 'Documentation', link: '/docs/' },
      { text: 'API', link: '/docs/api/' },
    ],
    sidebar: [...sidebar(), { text: 'API', collapsed: true, items: packageEntries().map(apiPage) }],
    socialLinks: home === undefined ? [] : [{ icon: 'github', link: home }],
  },
  markdown: {
    anchor: { slugify: githubAnchor },
    attrs: { disable: true }, // braces are text, as on GitHub
    config(md) {
      md.disable('emoji', true); // `:key:` is text
      md.core.ruler.push('repository-links', (state) => {
        const page = posix.relative(pages, state.env.path);
        for (const { children } of state.tokens)
          children?.forEach((token, index) => {
            if (token.type === 'link_open') rewriteLink(token, page, children.slice(index));
          });
      });
    },
  },
});

/** The groups of docs/README.md, with its links in their order. */
function sidebar() {
  const [, ...groups] = readFileSync(join(root, 'docs/README.md'), 'utf8').split(/^## /m);
  return groups.map((group) => ({
    text: group.split('\n', 1)[0],
    items: Array.from(group.matchAll(/\]\((?!\.\.)([^)#:]+)\.md[)#]/g), ([, page]) => ({
      text: titleOf(`docs/${page}.md`),
      link: `/docs/${page.replace(/README$/, '')}`,
    })),
  }));
}

function titleOf(page) {
  const [, title] = /^# (.*)$/m.exec(readFileSync(join(root, page), 'utf8')) ?? [];
  return title.replaceAll('`', '');
}

function apiPage(entry) {
  return entry.name === 'index'
    ? { text: name, link: '/docs/api/' }
    : { text: `${name}/${entry.name}`, link: `/docs/api/${entry.name}` };
}

/**
 * Links of pages are written for GitHub: relative, to Markdown or to any other file of the repository. Without an address of the
 * repository, a link to such a file becomes text.
 */
function rewriteLink(token, page, following) {
  const href = token.attrGet('href');
  const [, path, anchor] = /^([^#]*)(.*)$/.exec(href);
  if (path === '' || /^[a-z]+:/.test(path)) return;
  const target = posix.join(posix.dirname(page), decodeURI(path));
  const onSite = target
    .replace(/(^|\/)README\.md$/, '$1index.md')
    .replace(/^api-report\/(.+)\.api\.md$/, 'docs/api/$1.md'); // GitHub shows the report instead of the reference
  if (onSite.endsWith('.md') && existsSync(join(pages, onSite))) token.attrSet('href', `/${onSite}${anchor}`);
  else if (!existsSync(join(root, target))) throw new Error(`${page} links to ${href}, which does not exist.`);
  else if (home !== undefined) token.attrSet('href', `${home}/blob/main/${target}`);
  else {
    following.find(({ type }) => type === 'link_close').tag = token.tag = 'span';
    token.attrs = null;
  }
}

/** GitHub's anchors, so that a link with `#…` works in both places. */
function githubAnchor(heading) {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, '')
    .replaceAll(' ', '-');
}
