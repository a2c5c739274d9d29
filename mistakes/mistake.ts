/** What a message must name, as text or a pattern of it; or why it cannot. */
export type Named = string | RegExp | { readonly because: string };

/** How the code of a mistake is run. */
export type How = keyof typeof WRAPPED;

/** One small mistake of a new user, and what the message must name. */
export interface Mistake {
  /** Unique, for messages of the tests and for `npm run mistakes -- <id>`. */
  readonly id: string;
  readonly how: How;
  /** What the user wrote. The compiler or the application gets this text. */
  readonly code: string;
  /** Decorators and class members are called by this, after the boot. */
  readonly call?: string;
  /** What the module of `class`, `call` and `http` gets. Default: locks in memory. */
  readonly module?: string;
  /** Environment variables, which are otherwise not set. */
  readonly env?: Readonly<Record<string, string>>;
  /** The server that must run; its places are variables of the code. Without it, the mistake needs none. */
  readonly server?: string;
  /** Options that the mistake is about, such as `LockOptions.wait`. Each option of the package needs a mistake. */
  readonly of?: readonly string[];
  readonly place: Named;
  readonly value: Named;
  readonly remedy: Named;
}

export interface Group {
  readonly title: string;
  readonly mistakes: readonly Mistake[];
}

type Ways = Readonly<Record<string, (mistake: Mistake) => string>>;

const MEMORY = '{ provider: new MemoryLockProvider() }';

/** The program around what the user wrote. */
export const WRAPPED = {
  /** Options of the module. */
  module: ({ code }) => `await boot(${code})`,
  /** A provider of locks. */
  provider: ({ code }) => `await boot({ provider: ${code} })`,
  /** Members of an injectable class `Orders`. */
  members: ({ code, call = '', module = MEMORY }) =>
    `@Injectable() class Orders { ${code} }\nconst app = await boot(${module}, Orders); const orders = app.get(Orders); ${call}`,
  /** Classes, of which the last is called `Orders`. */
  classes: ({ code, call = '', module = MEMORY }) =>
    `${code}\nconst app = await boot(${module}, Orders); const orders = app.get(Orders); ${call}`,
  /** Statements that have `locks`, a `LockService`, and the application `app`. */
  call: ({ code, module = MEMORY }) => `const app = await boot(${module}); const locks = app.get(LockService); ${code}`,
  /** Statements that boot by themselves, or need no application. */
  script: ({ code }) => code,
  /** The compiler alone reads it. */
  types: ({ code }) => code,
} satisfies Ways;

export type Part = 'place' | 'value' | 'remedy';
export const PARTS: readonly Part[] = ['place', 'value', 'remedy'];

/** The parts that the message does not name. A part that cannot be named by a message needs its reason in the row. */
export function missingIn(message: string, mistake: Mistake): Part[] {
  if (message === '') return [...PARTS];
  return PARTS.filter((part) => !isNamed(message, mistake[part]));
}

function isNamed(message: string, named: Named): boolean {
  if (typeof named === 'string') return message.includes(named);
  return named instanceof RegExp ? named.test(message) : named.because !== '';
}
