// Unpacks servers from other Debian suites into a folder, without installing anything.
import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
// Java comes from this machine, and translations aren't needed.
const LEFT_OUT = /-locale|^openjdk-|^default-jre/;

/** The archive can't be used on this machine. */
export class ArchiveError extends Error {}

/**
 * Unpacks a suite's packages and their dependencies into `root`, and makes these programs (paths relative to `root`,
 * where * matches within one folder name) runnable on this machine. Keeps what was unpacked earlier for the same
 * packages, unless `isCurrent` returns false.
 */
export async function unpacked(root, { suite, packages, programs }, isCurrent) {
  const note = join(root, '.unpacked');
  const wanted = JSON.stringify({ suite, packages, programs });
  const isThere = existsSync(note) && (await readFile(note, 'utf8')) === wanted;
  if (isThere && (await isCurrent())) return;
  await rm(root, { recursive: true, force: true });
  await mkdir(root, { recursive: true });
  await download(root, suite, packages);
  const files = (await Promise.all(programs.map((pattern) => matching(root, pattern)))).flat();
  if (files.length > 0) {
    const system = await systemOf(root);
    for (const program of files) await wrap(root, program, system);
  }
  await writeFile(note, wanted);
}

async function download(root, suite, packages) {
  const apt = await mkdtemp(join(tmpdir(), 'lock-apt-'));
  try {
    const archive = await archiveOfThisMachine();
    const lists = join(apt, 'sources');
    const cache = join(apt, 'cache');
    for (const folder of [lists, join(apt, 'lists/partial'), join(cache, 'archives/partial')]) {
      await mkdir(folder, { recursive: true });
    }
    await writeFile(join(apt, 'status'), '');
    await writeFile(
      join(lists, 'suite.sources'),
      `Types: deb\nURIs: ${archive}\nSuites: ${suite}\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n`,
    );
    const settings = {
      'Dir::Etc::sourcelist': '/dev/null',
      'Dir::Etc::sourceparts': lists,
      'Dir::State::lists': join(apt, 'lists'),
      // Pretend nothing is installed, so that all dependencies, including the C library, are downloaded.
      'Dir::State::status': join(apt, 'status'),
      'Dir::Cache': cache,
      'APT::Sandbox::User': 'root',
    };
    const options = ['-qq', ...Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`])];
    await aptGet([...options, 'update']);
    await aptGet([...options, 'install', '--yes', '--download-only', '--no-install-recommends', ...packages]);
    for (const name of await readdir(join(cache, 'archives'))) {
      if (name.endsWith('.deb') && !LEFT_OUT.test(name)) await run('dpkg', ['-x', join(cache, 'archives', name), root]);
    }
  } finally {
    await rm(apt, { recursive: true, force: true });
  }
}

async function archiveOfThisMachine() {
  const targets = await aptGet(['indextargets', '--format', '$(REPO_URI)']);
  const [archive] = targets.split('\n').filter((uri) => uri !== '' && !uri.includes('security'));
  if (archive === undefined) throw new ArchiveError('apt has no Debian archive configured on this machine.');
  return archive;
}

async function aptGet(args) {
  try {
    const { stdout, stderr } = await run('apt-get', args, { maxBuffer: 2 ** 26 });
    // apt only warns about an archive that doesn't respond.
    if (stderr.includes('Failed to fetch')) throw new Error(stderr);
    return stdout;
  } catch (cause) {
    const reason = cause.code === 'ENOENT' ? 'there is no apt-get' : String(cause.stderr || cause.message).trim();
    throw new ArchiveError(`Debian's archive cannot be used: ${reason}`, { cause });
  }
}

/** Wraps a program, because it needs its own suite's loader and C library. */
async function wrap(root, program, { loader, folders, takesName }) {
  const path = join(root, program);
  // The program stays next to its wrapper under another name: a server looks for others in its own folder, and finds
  // their wrappers.
  await rename(path, `${path}.program`);
  const name = takesName ? ` --argv0 '${path}'` : '';
  await writeFile(
    path,
    `#!/bin/sh\nexec '${loader}' --library-path '${folders.join(':')}'${name} '${path}.program' "$@"\n`,
  );
  await chmod(path, 0o755);
}

async function systemOf(root) {
  const places = ['lib/*-linux-gnu', 'usr/lib/*-linux-gnu', 'usr/lib/mysql/private'];
  const folders = (await Promise.all(places.map((place) => matching(root, place)))).flat();
  for (const folder of folders) {
    // Up to Debian 11, the loader's file name contains its version, and the other name is an absolute link.
    const names = await readdir(join(root, folder));
    const name =
      names.find((each) => /^ld-2\.\d+\.so$/.test(each)) ?? names.find((each) => /^ld-linux.*\.so\.\d$/.test(each));
    if (name === undefined) continue;
    const loader = join(root, folder, name);
    const { stdout } = await run(loader, ['--help']).catch(() => ({ stdout: '' }));
    return { loader, folders: folders.map((each) => join(root, each)), takesName: stdout.includes('--argv0') };
  }
  throw new Error(`${root} has no loader.`);
}

/** Returns the paths relative to `root` that match this pattern with `*`. */
async function matching(root, pattern) {
  let found = [''];
  for (const part of pattern.split('/')) {
    const expression = new RegExp(`^${part.replaceAll('.', '\\.').replaceAll('*', '.*')}$`);
    const next = await Promise.all(
      found.map(async (folder) => {
        const names = await readdir(join(root, folder)).catch(() => []);
        return names.filter((name) => expression.test(name)).map((name) => join(folder, name));
      }),
    );
    found = next.flat();
  }
  return found;
}
