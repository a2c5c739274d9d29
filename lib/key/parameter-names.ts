import type { Pattern } from 'acorn';
import { methodIn, parseSource, type ReadableFunction, sourceOf } from './function-source.js';

/** The names of a method's parameters, by position: `...ids` for a rest parameter, `null` for a destructured one. */
export type ParameterNames = readonly (string | null)[];

/**
 * Reads a method's parameter names from its source. Returns `null` if the source can't be read.
 *
 * Another decorator may have replaced the method with a wrapper. The class's source still contains the original method,
 * so a wrapper's names count only if the class has no method with that name.
 *
 * A destructured parameter has no name. A rest parameter keeps its dots, because its name stands for all remaining
 * arguments, not just the one at its position.
 */
export function parameterNamesOf(
  method: ReadableFunction,
  ownerClass?: ReadableFunction,
  methodName: string | symbol = method.name,
): ParameterNames | null {
  const source = sourceOf(method);
  // A method's source, `pay(order) {}`, is not an expression. If the source is an expression, the function is not the
  // original method.
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
