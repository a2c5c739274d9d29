import type { ExceptionFilter, Type } from '@nestjs/common';
import { FILTER_CATCH_EXCEPTIONS } from '@nestjs/common/constants.js';
import type { ModulesContainer } from '@nestjs/core';

/** Whether an exception filter, given by its instance or its class, catches the error: without a type it catches all. */
export function catches(filter: object, error: unknown): boolean {
  const type = typeof filter === 'function' ? filter : filter.constructor;
  const caught = (Reflect.getMetadata(FILTER_CATCH_EXCEPTIONS, type) ?? []) as Type[];
  return caught.length === 0 || caught.some((each) => error instanceof each);
}

/**
 * The filters that the application has registered as `APP_FILTER`. Nest asks global filters from the last to the first,
 * and those of imported modules before those of the root module: without this, ours would hide the application's own.
 */
export function appFilters(modules: ModulesContainer): ExceptionFilter[] {
  return [...modules.values()]
    .flatMap((module) => [...module.providers.values()])
    .filter((wrapper) => wrapper.subtype === 'filter' && wrapper.isDependencyTreeStatic())
    .map(({ instance }) => instance as ExceptionFilter)
    .reverse();
}
