import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

// node scripts/check-site.mjs <folder>: fails if a built site has dead links, or if its pages or style sheets load
// anything from another host.
const [, , folder] = process.argv;
const files = readdirSync(folder, { recursive: true }).filter((file) => /\.(?:html|css)$/.test(file));
const texts = new Map(files.map((file) => [file, readFileSync(join(folder, file), 'utf8')]));
const anchors = new Map([...texts].map(([file, text]) => [file, new Set(attributes(text, /\sid="([^"]*)"/g))]));

const problems = [...texts].flatMap(([file, text]) => [
  ...loadedBy(file, text).flatMap((url) => {
    const { host } = resolve(url, file);
    if (host !== 'site' && host !== '') return [`${file} loads ${url} from another host.`]; // a data URL has no host
    return missing(url, file) ? [`${file} loads ${url}, which does not exist.`] : [];
  }),
  ...attributes(text, /<a\s[^>]*?href="([^"]*)"/g)
    .filter((href) => missing(href, file))
    .map((href) => `${file} links to ${href}, which does not exist.`),
]);
if (problems.length > 0) console.error([...new Set(problems)].join('\n'));
process.exit(problems.length > 0 ? 1 : 0);

/** What a browser loads to display it. */
function loadedBy(file, text) {
  return file.endsWith('.css')
    ? attributes(text, /(?:@import\s+|url\()["']?([^"')\s;]+)/g)
    : attributes(text, /<(?!a\s)\w[^>]*?\s(?:src|srcset|href|data|poster)="([^"]*)"/g);
}

function attributes(text, pattern) {
  return Array.from(text.matchAll(pattern), ([, value]) => value.replaceAll('&quot;', '"').replaceAll('&amp;', '&'));
}

function resolve(url, file) {
  return new URL(url, `http://site/${file}`);
}

function missing(url, file) {
  const { host, pathname, hash } = resolve(url, file);
  if (host !== 'site') return false;
  const target = decodeURI(pathname.replace(/\/$/, '/index.html')).slice(1);
  const anchor = decodeURIComponent(hash.slice(1));
  return !existsSync(join(folder, target)) || (anchor !== '' && !anchors.get(target)?.has(anchor));
}
