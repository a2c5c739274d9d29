import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packInto } from '../../../scripts/tarball.mjs';

const ROOT = join(import.meta.dirname, '../../..');
/** What the package needs besides the libraries of the application. */
const DEPENDENCIES = ['acorn', 'ms'];

/** How a command ended, and what it wrote. */
export interface Outcome {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Where a command runs. */
export interface Surroundings {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

/** The packed package, installed in projects of their own. */
export class PackedPackage {
  private constructor(
    private readonly folder: string,
    private readonly tarballs: readonly string[],
  ) {}

  static async pack(): Promise<PackedPackage> {
    const folder = await mkdtemp(join(tmpdir(), 'lock-cli-'));
    const { tarball } = packInto(folder);
    // Packed as well, because nothing here asks a registry.
    const others = DEPENDENCIES.map((name) => {
      const args = ['pack', join(ROOT, 'node_modules', name), '--ignore-scripts', '--json', '--loglevel=error'];
      const [packed] = Object.values(JSON.parse(npm(folder, args)) as Record<string, { readonly filename: string }>);
      return join(folder, packed?.filename ?? '');
    });
    return new PackedPackage(folder, [tarball, ...others]);
  }

  /** @param libraries those of the application, which are linked */
  async install(name: string, libraries: readonly string[]): Promise<Project> {
    const folder = join(this.folder, name);
    await mkdir(folder);
    await writeFile(join(folder, 'package.json'), '{ "type": "module", "private": true }');
    npm(folder, ['install', '--offline', '--legacy-peer-deps', '--no-audit', '--no-fund', ...this.tarballs]);
    for (const library of libraries) {
      await symlink(join(ROOT, 'node_modules', library), join(folder, 'node_modules', library));
    }
    return new Project(folder);
  }

  /** Also ends what still runs. */
  async remove(): Promise<void> {
    await Promise.all(
      Array.from(running, ({ child, ended }) => {
        child.kill();
        return ended;
      }),
    );
    await rm(this.folder, { recursive: true, force: true });
  }
}

export class Project {
  constructor(readonly folder: string) {}

  /** The file that npx runs. */
  get command(): string {
    return join(this.folder, 'node_modules/.bin/nestjs-distributed-lock');
  }

  async run(args: readonly string[], surroundings: Surroundings = {}): Promise<Outcome> {
    return this.start(args, surroundings).ended;
  }

  start(args: readonly string[], { env = {}, cwd = this.folder }: Surroundings = {}): Running {
    const child = spawn(process.execPath, [this.command, ...args], { cwd, env: { ...environment(), ...env } });
    return new Running(child);
  }

  /** In a pseudo terminal, whose answers come as `stdout`. */
  startInTerminal(args: readonly string[], { env = {}, cwd = this.folder }: Surroundings = {}): Running {
    const words = [process.execPath, this.command, ...args].map((word) => `'${word}'`).join(' ');
    // A shell that waits for the command gets Ctrl-C as well, and some shells then answer 130 whatever the command answers.
    const command = `exec ${words}`;
    const options = { cwd, env: { ...environment(), TERM: 'xterm', ...env } };
    return new Running(spawn('script', ['--quiet', '--return', '--flush', '--command', command, '/dev/null'], options));
  }
}

/** Commands that have not ended: those of a test that has failed. */
const running = new Set<Running>();

/** A command at work. */
export class Running {
  stdout = '';
  stderr = '';
  readonly ended: Promise<Outcome>;

  constructor(readonly child: ChildProcessWithoutNullStreams) {
    child.stdout.setEncoding('utf8').on('data', (text: string) => (this.stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (this.stderr += text));
    running.add(this);
    this.ended = once(child, 'close').then(([status]) => {
      running.delete(this);
      return { status: status as number | null, stdout: this.stdout, stderr: this.stderr };
    });
  }

  /** Waits until it has written this; fails if it ends before. */
  async writes(pattern: RegExp): Promise<void> {
    const end = this.ended.then(() => 'end');
    while (!pattern.test(this.stdout)) {
      if ((await Promise.race([once(this.child.stdout, 'data'), end])) === 'end' && !pattern.test(this.stdout)) {
        throw new Error(`It ended without ${String(pattern)}:\n${this.stdout}${this.stderr}`);
      }
    }
  }

  type(text: string): void {
    this.child.stdin.write(text);
  }
}

/** Without what the terminal and the user of this machine have set. Node shows no color where `CI` is set either. */
function environment(): NodeJS.ProcessEnv {
  const own = ['LOCK_URL', 'CI', 'NO_COLOR', 'NODE_DISABLE_COLORS', 'FORCE_COLOR'];
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !own.includes(name)));
}

function npm(cwd: string, args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync('npm', args, { cwd, encoding: 'utf8' });
  if (status !== 0) throw new Error(`npm ${args.join(' ')} failed: ${stderr}`);
  return stdout;
}
