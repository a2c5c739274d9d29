import { join } from 'node:path';
import ts from 'typescript';

const root = join(import.meta.dirname, '..');

/** Returns this repository's compiler options. */
export function compilerOptions(): ts.CompilerOptions {
  const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), (path) => ts.sys.readFile(path)) as {
    config: object;
  };
  return ts.parseJsonConfigFileContent(config, ts.sys, root).options;
}

/** Compiles in-memory files, keyed by path. They may import files of this repository. */
export function programOf(texts: ReadonlyMap<string, string>): ts.Program {
  const options = compilerOptions();
  const host = ts.createCompilerHost(options);
  const { readFile, fileExists, getSourceFile } = host;
  host.readFile = (path) => texts.get(path) ?? readFile.call(host, path);
  host.fileExists = (path) => texts.has(path) || fileExists.call(host, path);
  host.getSourceFile = (path, languageVersion, ...rest) => {
    const text = texts.get(path);
    if (text === undefined) return getSourceFile.call(host, path, languageVersion, ...rest);
    return ts.createSourceFile(path, text, languageVersion);
  };
  return ts.createProgram([...texts.keys()], options, host);
}
