import { parseExpressionAt, type ClassExpression, type Expression, type Pattern } from 'acorn';

/** The names of a method's parameters by position: `...ids` for a rest parameter, `null` for one without a name of its own. */
export type ParameterNames = readonly (string | null)[];

/** Any function or class. It is never called: only its source is read. */
interface ReadableFunction {
  readonly name: string;
}

/**
 * Reads the parameter names of a method from its source.
 *
 * A decorator further down may have put a wrapper in the method's place. The class still shows the method as it was
 * written, so a wrapper's own names count only where the class has no method of that name.
 *
 * Nothing is guessed: a destructured parameter has no name, and `null` is the answer where no source can be read. A rest parameter
 * keeps its dots, because its name means the whole rest and not the argument at its position.
 */
export function parameterNamesOf(
  method: ReadableFunction,
  ownerClass?: ReadableFunction,
  methodName: string | symbol = method.name,
): ParameterNames | null {
  const source = sourceOf(method);
  // A method of a class is written `pay(order) {}`, which is no expression. What is one was made elsewhere.
  const expression = parse(source);
  const isFunction = expression !== undefined && 'params' in expression;
  const own = isFunction ? expression.params : methodIn(parse(`class { ${source} }`));
  const isWrapper = isFunction || own === undefined || own[0]?.type === 'RestElement';
  const written = isWrapper && ownerClass ? methodIn(parse(sourceOf(ownerClass)), methodName) : own;
  return (written ?? own)?.map(nameOf) ?? null;
}

function sourceOf(fn: ReadableFunction): string {
  return Function.prototype.toString.call(fn);
}

/** `undefined` where the text is no expression, such as the `[native code]` of bound functions and Proxies. */
function parse(source: string): Expression | undefined {
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

/** The parameters of the method called `name`, or of the only method; of two with one name, the last is in effect. */
function methodIn(node: Expression | undefined, name?: string | symbol): Pattern[] | undefined {
  if (node?.type !== 'ClassExpression') return undefined;
  return node.body.body
    .filter((member) => member.type === 'MethodDefinition')
    .findLast((member) => name === undefined || (!member.static && keyOf(member) === name))?.value.params;
}

type Member = Extract<ClassExpression['body']['body'][number], { type: 'MethodDefinition' }>;

function keyOf({ key, computed }: Member): string | undefined {
  if (key.type === 'Literal') return String(key.value);
  return key.type === 'Identifier' && !computed ? key.name : undefined;
}

function nameOf(parameter: Pattern): string | null {
  if (parameter.type === 'RestElement') return `...${nameOf(parameter.argument) ?? ''}`;
  const target = parameter.type === 'AssignmentPattern' ? parameter.left : parameter;
  return target.type === 'Identifier' ? target.name : null;
}
