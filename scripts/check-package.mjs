// Checks what would be published: its metadata (publint), its types in each kind of module resolution
// (Are the types wrong?), the classes in its bundles, and the links of its pages.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, posix } from 'node:path';
import { root, runTool } from './ensure-installed.mjs';
import { packInto } from './tarball.mjs';

const PAGE_OR_PICTURE = /\.(md|svg|png|jpe?g|webp)$/;

const folder = mkdtempSync(join(tmpdir(), 'package-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

const { tarball, files } = packInto(folder);
runTool('publint/src/cli.js', ['run', '--strict', tarball]);
runTool('@arethetypeswrong/cli/dist/index.js', ['--quiet', tarball]);

const problems = [...files.flatMap(renamedClasses), ...files.flatMap(brokenLinks)];
for (const problem of problems) console.error(problem);
process.exit(problems.length === 0 ? 0 : 1);

/** A class that the bundler has renamed, because two of one bundle share a name: messages of Nest would show the new name. */
function renamedClasses(file) {
  if (!/^dist\/(esm|cjs)\/.*js$/.test(file)) return [];
  return [...textOf(file).matchAll(/^class \w+\$\w+/gm)].map(([name]) => `${file}: "${name}" is not its name in lib/`);
}

/** Links to source files of the repository lead nowhere in a tarball; those to pages and pictures must not. */
function brokenLinks(file) {
  if (!file.endsWith('.md')) return [];
  return [...textOf(file).matchAll(/\]\(([^)\s#]+)[^)]*\)/g)]
    .map(([, link]) => link)
    .filter((link) => !/^[a-z]+:/.test(link) && (file === 'README.md' || PAGE_OR_PICTURE.test(link)))
    .filter((link) => !files.includes(posix.join(posix.dirname(file), link)))
    .map((link) => `${file}: ${link} is not in the tarball`);
}

function textOf(file) {
  return readFileSync(join(root, file), 'utf8');
}
