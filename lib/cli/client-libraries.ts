import { register } from 'node:module';
import { pathToFileURL } from 'node:url';
import { join } from 'node:path';

const LIBRARIES = ['ioredis', 'redis', 'pg', 'mysql2', 'memcache'];

/**
 * The client libraries belong to the application, so this package cannot find them if npx has put it into a folder of its own. From now on,
 * those that it cannot find are looked for in the working directory as well.
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
