/** What a message must name, as text or a pattern; or why it can't. */
export type Named = string | RegExp | { readonly because: string };

/** How the code of a mistake is run. */
export type How = keyof typeof WRAPPED;

/** A small mistake of a new user, and what the message must name. */
export interface Mistake {
  /** Unique, for messages of the tests and for `npm run mistakes -- <id>`. */
  readonly id: string;
  readonly how: How;
  /** What the user wrote. The compiler or the application receives this text. */
  readonly code: string;
  /** What calls the decorated methods and class members after the boot. */
  readonly call?: string;
  /** The module options for `members`, `classes`, and `call`. Default: locks in memory. */
  readonly module?: string;
  /** The only environment variables that are set. */
  readonly env?: Readonly<Record<string, string>>;
  /** The server that must run. Its places are variables of the code. Default: none. */
  readonly server?: string;
  /** The options that the mistake covers, such as `LockOptions.wait`. Each option of the package needs a mistake. */
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

/** The program around the user's code. */
export const WRAPPED = {
  /** Module options. */
  module: ({ code }) => `await boot(${code})`,
  /** A lock provider. */
  provider: ({ code }) => `await boot({ provider: ${code} })`,
  /** Members of an injectable class `Orders`. */
  members: ({ code, call = '', module = MEMORY }) =>
    `@Injectable() class Orders { ${code} }\nconst app = await boot(${module}, Orders); const orders = app.get(Orders); ${call}`,
  /** Classes, the last of which is called `Orders`. */
  classes: ({ code, call = '', module = MEMORY }) =>
    `${code}\nconst app = await boot(${module}, Orders); const orders = app.get(Orders); ${call}`,
  /** Statements that can use `locks`, a `LockService`, and the application `app`. */
  call: ({ code, module = MEMORY }) => `const app = await boot(${module}); const locks = app.get(LockService); ${code}`,
  /** Statements that boot an application themselves, or need none. */
  script: ({ code }) => code,
  /** Code that only the compiler reads. */
  types: ({ code }) => code,
} satisfies Ways;

export type Part = 'place' | 'value' | 'remedy';
export const PARTS: readonly Part[] = ['place', 'value', 'remedy'];

/** The parts that the message doesn't name. If a message can't name a part, its row must say why. */
export function missingIn(message: string, mistake: Mistake): Part[] {
  if (message === '') return [...PARTS];
  return PARTS.filter((part) => !isNamed(message, mistake[part]));
}

function isNamed(message: string, named: Named): boolean {
  if (typeof named === 'string') return message.includes(named);
  return named instanceof RegExp ? named.test(message) : named.because !== '';
}
