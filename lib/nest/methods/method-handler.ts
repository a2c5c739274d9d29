import { LockConfigError } from '../../api/errors.js';
import type { LossPolicy } from '../../api/lock-options.js';

/** The options that take a handler, and the words that they take as well. */
const WORDS = {
  onBusy: ['throw', 'skip'],
  onLost: ['throw', 'throw-early', 'ignore'] satisfies LossPolicy[],
} as const;

type HandlerOption = keyof typeof WORDS;

/** A handler that gets a `C`, for the instance of a call. @throws LockConfigError for an instance without the method that is named */
export type MethodHandler<C> = (self: unknown) => (context: C) => unknown;

/** The handler that an option gives, or names; undefined for one of the words. */
export function handlerOf<C>(option: HandlerOption, given: unknown, method: string): MethodHandler<C> | undefined {
  if (!isHandler(option, given)) return undefined;
  return (self) => {
    const handler: unknown = typeof given === 'string' ? (self as Record<string, unknown> | undefined)?.[given] : given;
    if (typeof handler !== 'function') throw new LockConfigError(`${method}: ${noHandler(option, given)}`);
    return (context) => handler.call(self, context) as unknown;
  };
}

/** Whether an option is a handler, or names one. */
export function isHandler(option: HandlerOption, given: unknown): boolean {
  const words: readonly string[] = WORDS[option];
  return typeof given === 'function' || (typeof given === 'string' && !words.includes(given));
}

export function noHandler(option: HandlerOption, given: unknown): string {
  return `option "${option}" is '${String(given)}', but the class has no method of that name: it must be ${handlersInWords(option)}`;
}

export function handlersInWords(option: HandlerOption): string {
  return `${WORDS[option].map((word) => `'${word}'`).join(', ')}, a function, or the name of a method`;
}
