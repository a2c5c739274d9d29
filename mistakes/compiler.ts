import { join } from 'node:path';
import ts from 'typescript';
import { programOf } from '../test/compile.js';
import type { Mistake } from './mistake.js';

const root = join(import.meta.dirname, '..');

// Files in the repository, because the package's own names would resolve to a build.
const HEAD = `
import type { EntityManager } from 'typeorm';
import { DistributedLock, DistributedLockModule, type Lock, type LockAdmin, LockManager, type LockService, MemoryLockProvider, RunOnce } from './lib/index.js';
import { DistributedLockInstrumentation } from './lib/integrations/opentelemetry/index.js';
import { RedisLockProvider } from './lib/providers/redis/index.js';
import { SqlVersionLockProvider } from './lib/providers/sql/index.js';
import { saveFenced } from './lib/providers/typeorm/index.js';
`;

/** The compiler's output for the mistakes that only it sees, by id: the underlined text and the message. */
export function compilerMessages(mistakes: readonly Mistake[]): ReadonlyMap<string, string> {
  const files = new Map(mistakes.map(({ id, code }) => [join(root, `${id}.ts`), `${HEAD}${code}\nexport {};`]));
  const program = programOf(files);
  return new Map(
    mistakes.map(({ id }) => {
      const source = program.getSourceFile(join(root, `${id}.ts`));
      const [first] = program.getSemanticDiagnostics(source);
      return [id, first ? textOf(first) : ''];
    }),
  );
}

function textOf({ file, start = 0, length, messageText }: ts.Diagnostic): string {
  const underlined = file?.text.slice(start, start + (length ?? 0)) ?? '';
  return `${underlined}: ${ts.flattenDiagnosticMessageText(messageText, '\n')}`;
}
