// Checks what would be published: its metadata (publint), its types under each module resolution (Are the types
// wrong?), the classes in its bundles, and the links on its pages. Prints its size.
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, posix } from 'node:path';
import { root, runTool } from './ensure-installed.mjs';
import { packInto } from './tarball.mjs';

const MOST_BYTES = 3_300_000;
const PAGE_OR_PICTURE = /\.(md|svg|png|jpe?g|webp)$/;
// The package excludes some pages and all pictures, which are on the site. Pages in the package may link to them.
const EXCLUDED = JSON.parse(textOf('package.json')).files.flatMap((path) => (path[0] === '!' ? [path.slice(1)] : []));
const SITE_ONLY = [...EXCLUDED, 'docs/images', 'CONTRIBUTING.md'];

const folder = mkdtempSync(join(tmpdir(), 'package-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

const { tarball, files, size, unpackedSize } = packInto(folder);
runTool('publint/src/cli.js', ['run', '--strict', tarball]);
runTool('@arethetypeswrong/cli/dist/index.js', ['--quiet', tarball]);

const problems = [...files.flatMap(renamedClasses), ...files.flatMap(brokenLinks), ...SITE_ONLY.flatMap(misplaced)];
if (unpackedSize > MOST_BYTES)
  problems.push(`The unpacked size is ${inKb(unpackedSize)}, and the limit is ${inKb(MOST_BYTES)}.`);
for (const problem of problems) console.error(problem);
console.log(`The package has ${files.length} files: ${inKb(size)} packed, ${inKb(unpackedSize)} unpacked.`);
process.exit(problems.length === 0 ? 0 : 1);

/**
 * Classes that the bundler renamed because two classes in one bundle share a name: Nest's messages would show the new
 * name.
 */
function renamedClasses(file) {
  if (!/^dist\/(esm|cjs)\/.*js$/.test(file)) return [];
  return [...textOf(file).matchAll(/^class \w+\$\w+/gm)].map(
    ([name]) => `${file}: the bundler renamed the class "${name}"`,
  );
}

/** In a tarball, links to the repository's source files may be dead. Links to pages and pictures must not be. */
function brokenLinks(file) {
  if (!file.endsWith('.md')) return [];
  return [...textOf(file).matchAll(/\]\(([^)\s#]+)[^)]*\)/g)]
    .map(([, link]) => link)
    .filter((link) => !/^[a-z]+:/.test(link) && (file === 'README.md' || PAGE_OR_PICTURE.test(link)))
    .filter((link) => {
      const target = posix.join(posix.dirname(file), link);
      return !files.includes(target) && !(isSiteOnly(target) && existsSync(join(root, target)));
    })
    .map((link) => `${file}: ${link} is not in the tarball`);
}

function isSiteOnly(file) {
  return SITE_ONLY.some((path) => isIn(path, file));
}

function isIn(path, file) {
  return file === path || file.startsWith(`${path}/`);
}

/** A page or folder that package.json excludes, but that doesn't exist or is packed anyway. */
function misplaced(path) {
  if (!existsSync(join(root, path))) return [`package.json excludes ${path}, which does not exist`];
  return files.some((file) => isIn(path, file)) ? [`${path} is in the tarball, although package.json excludes it`] : [];
}

function inKb(bytes) {
  return `${Math.round(bytes / 1_000).toLocaleString('en')} kB`;
}

function textOf(file) {
  return readFileSync(join(root, file), 'utf8');
}
