import { LockKeyError } from '../api/errors.js';
import type { ExpressionSyntax, PropertyStep } from './expression-syntax.js';
import type { ParameterNames } from './parameter-names.js';

/** Where a key template was written. */
export interface KeySite {
  /** The decorated method's name in messages, such as `OrderService.pay`. */
  readonly method: string;
  /**
   * The value of `#{class}`: the name of the class that declares the method, even if the method is called on a
   * subclass. Bundlers may change it.
   */
  readonly className: string;
  /** The value of `#{method}`. */
  readonly methodName: string;
  /** The result of `parameterNamesOf`. */
  readonly parameters: ParameterNames | null;
}

/** The values that a key template can read from a call. */
export interface KeyScope {
  /** The method's `this`. */
  readonly self: unknown;
  readonly args: ArrayLike<unknown>;
  /** The request, if the method is called as its handler; otherwise `undefined`. */
  readonly request?: unknown;
  /** Returns the value of `#{ctx.name}`. */
  readonly context?: ((name: string) => unknown) | undefined;
}

/** What an expression's first name refers to. */
export interface Root {
  readonly kind: 'constant' | 'parameter' | 'request' | 'context';
  readonly read: (scope: KeyScope) => unknown;
  /** The rest of the expression's path. */
  readonly path: readonly PropertyStep[];
  /** The name after `ctx`. */
  readonly contextName?: string;
}

const POSITION = /^p(0|[1-9]\d?)$/;
const NEEDS_PROPERTY: ReadonlySet<string> = new Set(['this', 'args', 'request', 'ctx']);

/**
 * Resolves an expression's first name.
 *
 * An ambiguous name is an error, because precedence would depend on the build: if a minifier renames the parameter
 * `request`, then `request.id` would silently read the transport's request.
 */
export function resolveRoot(
  { root, path, itemPath }: ExpressionSyntax,
  site: KeySite,
  error: (problem: string) => LockKeyError,
): Root {
  const builtIn = builtInRoot(root, path, site);
  // If two parameters have the same name, JavaScript uses the last.
  const index = site.parameters?.lastIndexOf(root) ?? -1;
  if (index !== -1) {
    if (builtIn === undefined || root === `p${index}`) return parameter(index, path);
    throw error(`'${root}' is both a parameter and a built-in name, so write p${index} for the parameter`);
  }
  if (builtIn === undefined) throw error(unknownName(root, site.parameters));
  if (NEEDS_PROPERTY.has(root) && path.length === 0 && (root !== 'args' || itemPath === null)) {
    throw error(`'${root}' needs a property or an index after it`);
  }
  if (builtIn.kind === 'constant' && (path.length > 0 || itemPath !== null)) {
    throw error(`'${root}' is a string, so nothing can follow it`);
  }
  return builtIn;
}

function builtInRoot(root: string, path: readonly PropertyStep[], site: KeySite): Root | undefined {
  switch (root) {
    case 'class':
      return { kind: 'constant', read: () => site.className, path };
    case 'method':
      return { kind: 'constant', read: () => site.methodName, path };
    case 'this':
      return { kind: 'parameter', read: ({ self }) => self, path };
    case 'args':
      return { kind: 'parameter', read: ({ args }): unknown => (Array.isArray(args) ? args : Array.from(args)), path };
    case 'request':
      return { kind: 'request', read: (scope) => requestOf(scope, site), path };
    case 'ctx': {
      const name = String(path[0]?.name);
      return { kind: 'context', read: ({ context }) => context?.(name), path: path.slice(1), contextName: name };
    }
    default: {
      const position = POSITION.exec(root)?.[1];
      return position === undefined ? undefined : parameter(Number(position), path);
    }
  }
}

function parameter(index: number, path: readonly PropertyStep[]): Root {
  return { kind: 'parameter', read: ({ args }) => args[index], path };
}

function requestOf({ request }: KeyScope, { method }: KeySite): unknown {
  if (request !== undefined && request !== null) return request;
  throw new LockKeyError(
    `The lock key of ${method} reads the request, but LockRequestInterceptor did not run here: make sure that Nest calls the method as a handler. ` +
      'Nest 11 gateways, and controllers in a hybrid application without inheritAppConfig, need @UseInterceptors(LockRequestInterceptor).',
  );
}

function unknownName(root: string, parameters: ParameterNames | null): string {
  const rest = parameters?.indexOf(`...${root}`) ?? -1;
  if (rest !== -1) return `'${root}' is a rest parameter: write #{args[${rest}]} for its first item`;
  const names = parameters?.map((name) => name ?? '(no name)').join(', ');
  const known = names === undefined ? 'its parameter names cannot be read' : `its parameters are: ${names || 'none'}`;
  return `the method has no parameter '${root}' (${known}); use a position (#{p0} or #{args[0]}) or a key function`;
}
