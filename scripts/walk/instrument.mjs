import { parse } from 'acorn';
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Copies a build's modules to `to`, where each function reports to `globalThis.walked` when it is entered. */
export function instrument(from, to) {
  rmSync(to, { recursive: true, force: true });
  cpSync(from, to, { recursive: true, filter: (path) => !/\/dist\/(cjs|esm)(\/|$)/.test(path) });
  for (const path of readdirSync(to, { recursive: true })) {
    if (!path.endsWith('.js')) continue;
    const file = join(to, path);
    writeFileSync(file, withReports(readFileSync(file, 'utf8'), path));
  }
}

function withReports(source, path) {
  const reports = [];
  visit(parse(source, { ecmaVersion: 'latest', sourceType: 'module' }), '(module)', (body, name) => {
    reports.push([body.start + 1, `globalThis.walked?.(${JSON.stringify(path)}, ${JSON.stringify(name)});`]);
  });
  let result = source;
  for (const [at, report] of reports.toSorted(([one], [other]) => other - one)) {
    result = result.slice(0, at) + report + result.slice(at);
  }
  return result;
}

/**
 * Calls `onFunction` with the body of each function that is neither an accessor nor a single-expression arrow function.
 */
function visit(node, name, onFunction) {
  const isFunction = /Function/.test(node.type);
  if (isFunction && node.body.type === 'BlockStatement' && name !== undefined)
    onFunction(node.body, node.id?.name ?? name);
  for (const [property, value] of Object.entries(node)) {
    for (const child of [value].flat()) {
      if (typeof child?.type === 'string') visit(child, nameOf(node, property), onFunction);
    }
  }
}

/** The name of a function that is the value of this property of a node; `undefined` for an accessor. */
function nameOf({ type, kind, key, id, value }, property) {
  if (type === 'MethodDefinition' || type === 'Property') {
    if (kind === 'get' || kind === 'set') return undefined;
    return value && property === 'value' ? `${key.type === 'PrivateIdentifier' ? '#' : ''}${key.name}` : '(arrow)';
  }
  if (type === 'PropertyDefinition' && property === 'value') return key.name;
  if (type === 'VariableDeclarator' && property === 'init') return id.name;
  return '(arrow)';
}
