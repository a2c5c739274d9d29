import { register } from 'node:module';
import { pathToFileURL } from 'node:url';
import { join } from 'node:path';

const LIBRARIES = ['ioredis', 'redis', 'pg', 'mysql2', 'memcache'];

/**
 * Makes Node look for missing client libraries in the working directory too. They belong to the application, so this
 * package can't find them if npx installed it in a separate folder.
 */
export function lookInWorkingDirectory(): void {
  const parentURL = pathToFileURL(join(process.cwd(), 'package.json')).href;
  const hook = `
    export async function resolve(specifier, context, next) {
      try {
        return await next(specifier, context);
      } catch (error) {
        if (!${JSON.stringify(LIBRARIES)}.includes(specifier)) throw error;
        return next(specifier, { ...context, parentURL: ${JSON.stringify(parentURL)} });
      }
    }`;
  register(`data:text/javascript,${encodeURIComponent(hook)}`);
}
