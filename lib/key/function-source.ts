import { parseExpressionAt, type ClassExpression, type Expression, type FunctionExpression } from 'acorn';

/** Any function or class. Only its source is read: nobody calls it. */
export interface ReadableFunction {
  readonly name: string;
}

export function sourceOf(fn: ReadableFunction): string {
  return Function.prototype.toString.call(fn);
}

/** `undefined` where the text is no expression, such as the `[native code]` of bound functions and Proxies. */
export function parseSource(source: string): Expression | undefined {
  try {
    return parseExpressionAt(`(${source})`, 0, {
      ecmaVersion: 'latest',
      // A single method is parsed outside of the class, the object and the module which its code refers to.
      allowSuperOutsideMethod: true,
      allowImportExportEverywhere: true,
      checkPrivateFields: false,
    });
  } catch {
    return undefined;
  }
}

/** The method called `name`, or the only one, of a class as it is written; of two with one name, the last is in effect. */
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
