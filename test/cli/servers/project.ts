import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packInto } from '../../../scripts/tarball.mjs';

const ROOT = join(import.meta.dirname, '../../..');
/** The package's own dependencies, apart from the application's libraries. */
const DEPENDENCIES = ['acorn', 'ms'];

/** A command's exit code and output. */
export interface Outcome {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The environment of a command. */
export interface Surroundings {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

/** The packed package, installed in separate projects. */
export class PackedPackage {
  private constructor(
    private readonly folder: string,
    private readonly tarballs: readonly string[],
  ) {}

  static async pack(): Promise<PackedPackage> {
    const folder = await mkdtemp(join(tmpdir(), 'lock-cli-'));
    const { tarball } = packInto(folder);
    // Packed as well, so that npm needs no registry.
    const others = DEPENDENCIES.map((name) => {
      const args = ['pack', join(ROOT, 'node_modules', name), '--ignore-scripts', '--json', '--loglevel=error'];
      const [packed] = Object.values(JSON.parse(npm(folder, args)) as Record<string, { readonly filename: string }>);
      return join(folder, packed?.filename ?? '');
    });
    return new PackedPackage(folder, [tarball, ...others]);
  }

  /** @param libraries The application's libraries, which are linked. */
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

  /** Also ends commands that are still running. */
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

  /** The file that npx executes. */
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

  /** Starts the command in a pseudoterminal, whose output arrives as `stdout`. */
  startInTerminal(args: readonly string[], { env = {}, cwd = this.folder }: Surroundings = {}): Running {
    const words = [process.execPath, this.command, ...args].map((word) => `'${word}'`).join(' ');
    // A shell that waits for the command also receives Ctrl-C, and some shells then exit with 130 regardless of the
    // command.
    const command = `exec ${words}`;
    const options = { cwd, env: { ...environment(), TERM: 'xterm', ...env } };
    return new Running(spawn('script', ['--quiet', '--return', '--flush', '--command', command, '/dev/null'], options));
  }
}

/** Commands still running, for example those of a failed test. */
const running = new Set<Running>();

/** A running command. */
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

  /** Waits until the output matches the pattern. Throws if the command ends first. */
  async writes(pattern: RegExp): Promise<void> {
    const end = this.ended.then(() => 'end');
    while (!pattern.test(this.stdout)) {
      if ((await Promise.race([once(this.child.stdout, 'data'), end])) === 'end' && !pattern.test(this.stdout)) {
        throw new Error(`The command ended without ${String(pattern)}:\n${this.stdout}${this.stderr}`);
      }
    }
  }

  type(text: string): void {
    this.child.stdin.write(text);
  }
}

/** The environment without this user's terminal settings. Node also prints no colors if `CI` is set. */
function environment(): NodeJS.ProcessEnv {
  const own = ['LOCK_URL', 'CI', 'NO_COLOR', 'NODE_DISABLE_COLORS', 'FORCE_COLOR'];
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !own.includes(name)));
}

function npm(cwd: string, args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync('npm', args, { cwd, encoding: 'utf8' });
  if (status !== 0) throw new Error(`npm ${args.join(' ')} failed: ${stderr}`);
  return stdout;
}
