import type { Pattern } from 'acorn';
import { methodIn, parseSource, type ReadableFunction, sourceOf } from './function-source.js';

/** The names of a method's parameters by position: `...ids` for a rest parameter, `null` for one without a name of its own. */
export type ParameterNames = readonly (string | null)[];

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
  // A method of a class is written `pay(order) {}`, which is no expression. A function whose source is an expression was made elsewhere.
  const expression = parseSource(source);
  const isFunction = expression !== undefined && 'params' in expression;
  const own = isFunction ? expression.params : methodIn(parseSource(`class { ${source} }`))?.params;
  const isWrapper = isFunction || own === undefined || own[0]?.type === 'RestElement';
  const written = isWrapper && ownerClass ? methodIn(parseSource(sourceOf(ownerClass)), methodName)?.params : own;
  return (written ?? own)?.map(nameOf) ?? null;
}

function nameOf(parameter: Pattern): string | null {
  if (parameter.type === 'RestElement') return `...${nameOf(parameter.argument) ?? ''}`;
  const target = parameter.type === 'AssignmentPattern' ? parameter.left : parameter;
  return target.type === 'Identifier' ? target.name : null;
}
