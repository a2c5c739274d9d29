import { parseExpressionAt, type ClassExpression, type Expression, type FunctionExpression } from 'acorn';

/** A function or class whose source is read. It is never called. */
export interface ReadableFunction {
  readonly name: string;
}

export function sourceOf(fn: ReadableFunction): string {
  return Function.prototype.toString.call(fn);
}

/** `undefined` if the source is not an expression, as with the `[native code]` of bound functions and Proxies. */
export function parseSource(source: string): Expression | undefined {
  try {
    return parseExpressionAt(`(${source})`, 0, {
      ecmaVersion: 'latest',
      // A method is parsed without the class, object, or module that its code refers to.
      allowSuperOutsideMethod: true,
      allowImportExportEverywhere: true,
      checkPrivateFields: false,
    });
  } catch {
    return undefined;
  }
}

/**
 * The method called `name` in a class's source, or the last method if no name is given. If two have the same name,
 * JavaScript uses the last.
 */
export function methodIn(node: Expression | undefined, name?: string | symbol): FunctionExpression | undefined {
  if (node?.type !== 'ClassExpression') return undefined;
  return node.body.body
    .filter((member) => member.type === 'MethodDefinition')
    .findLast((member) => name === undefined || (!member.static && keyOf(member) === name))?.value;
}

type Member = Extract<ClassExpression['body']['body'][number], { type: 'MethodDefinition' }>;

function keyOf({ key, computed }: Member): string | undefined {
  if (key.type === 'Literal') return String(key.value);
  return key.type === 'Identifier' && !computed ? key.name : undefined;
}
