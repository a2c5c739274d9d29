import { join } from 'node:path';
import ts from 'typescript';
import { programOf } from '../compile.js';

const root = join(import.meta.dirname, '../..');

/** Code with a mistake in an option, and the start of the expected compiler message. */
const MISTAKES: readonly (readonly [code: string, message: RegExp])[] = [
  ["class A { @DistributedLock('a', { ttl: 5000 }) async run() {} }", /'ttl' does not exist in type/],
  ["class A { @DistributedLock('a:#{id}', { wait: 0, tll: 1 }) async run(id: number) {} }", /'tll' does not exist/],
  ["class A { @DistributedLock('a', { wait: true }) async run() {} }", /^Type 'true' is not assignable to type 'Dur/],
  ["class A { @DistributedLock('a', { wait: '5 parsecs' }) async run() {} }", /^Type '"5 parsecs"' is not assignable/],
  ["class A { @DistributedLock('a', { onBusy: 'skip', ttl: 1 }) async run() {} }", /'ttl' does not exist in type/],
  ['class A { @DistributedLock(() => "a", { ttl: 1 }) async run() {} }', /'ttl' does not exist in type/],
  [
    "class A { @DistributedLock(['a', 'b'], { lease: '30' }) async run() {} }",
    /^Type '"30"' is not assignable to type/,
  ],
  ['class A { @DistributedLock(42) async run() {} }', /^Argument of type 'number' is not assignable/],
  [
    "class A { @RunOnce('a', { minHold: 'a minute' }) async run() {} }",
    /'minHold' are incompatible\.\n *Type '"a minute"' is not assignable to type 'Duration/,
  ],
  [
    "class A { @RunOnce('a', { minHold: 0, wait: 5 }) async run() {} }",
    /'wait' does not exist in type '\(RunOnceOptions & .* \| \(\(config/,
  ],
  [
    "class A { @RunOnce('a', { minHold: '1m', catchUp: '6h' }) async run() {} }",
    /'catchUp' are incompatible\.\n *Type 'string' is not assignable to type 'undefined'/,
  ],
  ["@LockDefaults({ minHold: '1s' }) class A {}", /'minHold' does not exist in type 'Configurable<ClassLockDefaults>'/],
  ["void locks.withLock('a', () => 1, { ttl: 5000 });", /'ttl' does not exist in type 'LockOptions'/],
  ["void locks.withLock('a', () => 1, { wait: true });", /^Type 'true' is not assignable to type 'Duration/],
  ["void locks.acquire('a', { ttl: 5000 });", /'ttl' does not exist in type 'LockOptions'/],
  ["void locks.acquire('a', { wait: '5 parsecs' });", /^Type '"5 parsecs"' is not assignable to type 'Duration/],
  ["void locks.tryAcquire('a', { lease: true });", /^Type 'true' is not assignable to type 'Duration/],
  ['DistributedLockModule.forRoot({ provder: undefined });', /'provder' does not exist/],
];

const HEAD = `
import {
  DistributedLock, DistributedLockModule, LockDefaults, type LockService, OnlyLeader, RunAsLeader, RunOnce,
} from './lib/index.js';
import { RetryOnConflict } from './lib/providers/typeorm/index.js';
declare const locks: LockService;
`;

it('the compiler names a mistaken option in a single message of at most three lines', () => {
  const found = messagesOf(MISTAKES.map(([code]) => code));
  for (const [index, [code, message]] of MISTAKES.entries()) {
    const messages = found[index] ?? [];
    expect([code, messages]).toEqual([code, [expect.stringMatching(message)]]);
    expect(messages[0]?.split('\n').length).toBeLessThanOrEqual(3);
  }
});

it('the compiler explains a method that cannot be skipped in the last line', () => {
  const found = messagesOf([
    "class A { @DistributedLock('a', { onBusy: 'skip' }) async run() { return 1; } }",
    "class A { @RunOnce('a', { minHold: '1m' }) async run(): Promise<number> { return 1; } }",
    "class A { @OnlyLeader('a') async run() { return 1; } }",
  ]);
  for (const messages of found) {
    expect(messages).toHaveLength(1);
    const lines = messages[0]?.split('\n') ?? [];
    expect(lines.length).toBeLessThanOrEqual(7);
    expect(lines.at(-1)).toMatch(
      /to type '"A skipped call resolves to undefined, so the method must return a Promise of a type that includes undefined"'/,
    );
  }
});

it('the compiler explains a method that cannot be locked in the last line', () => {
  const found = messagesOf([
    "class A { @DistributedLock('a') run() { return 1; } }",
    'class A { @DistributedLock((id: string) => id) run(id: string) { return id; } }',
    "class A { @DistributedLock('a', { onBusy: 'skip' }) run() { return 1; } }",
    "class A { @RunOnce('a', { minHold: '1m' }) run(): void {} }",
    "class A { @DistributedLock('a') static async run() {} }",
    "class A { @RunOnce('a', { minHold: '1m' }) static async run() {} }",
  ]);
  for (const [index, messages] of found.entries()) {
    expect(messages).toHaveLength(1);
    const lines = messages[0]?.split('\n') ?? [];
    expect(lines.length).toBeLessThanOrEqual(7);
    expect(lines.at(-1)).toMatch(
      index < 4
        ? /is not assignable to type '"A locked method must return a Promise, an Observable, or an async generator: make it async"'/
        : /is not assignable to type '"A static method cannot be locked: make it a method of a provider"'/,
    );
    expect(lines.join()).not.toContain("'never'");
  }
});

it('the compiler explains a decorated property in the second of two lines', () => {
  const found = messagesOf(
    [
      "@DistributedLock('a')",
      "@DistributedLock((id: string) => id, { onBusy: 'throw' })",
      "@DistributedLock('a', { onBusy: 'skip' })",
      "@RunOnce('a', { minHold: '1m' })",
      "@RunAsLeader('a')",
      "@OnlyLeader('a')",
      '@RetryOnConflict()',
    ].map((decorator) => `class A { ${decorator} run = async (id: string) => id; }`),
  );
  for (const messages of found) {
    expect(messages).toHaveLength(1);
    const lines = messages[0]?.split('\n') ?? [];
    expect(lines).toHaveLength(2);
    expect(lines[1]).toMatch(
      /Argument of type 'A' .* type '"A property, such as an arrow function, cannot be decorated: write a method"'\./,
    );
  }
});

it('the compiler explains a method that no leader can run without listing unrelated overloads', () => {
  const found = messagesOf([
    "class A { @RunAsLeader('a') run() { return 1; } }",
    "class A { @OnlyLeader('a') run() { return 1; } }",
    'class A { @RetryOnConflict() run() { return 1; } }',
  ]);
  for (const messages of found) {
    expect(messages).toEqual([expect.stringMatching(/The last overload gave.*PromiseLike/s)]);
    expect(messages.join()).not.toMatch(/'never'|A property/);
  }
});

/** Returns the compiler's messages for each piece of code. */
function messagesOf(codes: readonly string[]): string[][] {
  const texts = new Map(codes.map((code, index) => [join(root, `mistake-${index}.ts`), HEAD + code]));
  const program = programOf(texts);
  return [...texts.keys()].map((path) =>
    program
      .getSemanticDiagnostics(program.getSourceFile(path))
      .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n')),
  );
}
