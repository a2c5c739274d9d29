// A Nest application around one package: its module, and controllers whose methods it locks.

/** Starts an application. `nest` holds the exports of @nestjs/common and @nestjs/core that the package itself uses. */
export async function startApplication(nest, imports, classes) {
  class App {}
  nest.Module({ imports, controllers: classes })(App);
  const app = await nest.NestFactory.create(App, { logger: false, abortOnError: false });
  await app.init();
  return app;
}

/** Listens on a free port, and resolves to the address. */
export async function listen(app) {
  await app.listen(0, '127.0.0.1');
  return app.getUrl();
}

/** A controller with one method, `GET /pay/:id`, that has these decorators, top to bottom. */
export function payController({ Controller, Param }, pay, decorators, type = class {}) {
  Object.defineProperty(type.prototype, 'pay', { value: pay, writable: true, configurable: true });
  decorateMethod(type, 'pay', decorators);
  Param('id')(type.prototype, 'pay', 0);
  Controller()(type);
  return type;
}

/** Decorates a method as TypeScript does: the lowest decorator first. */
export function decorateMethod(type, method, decorators) {
  Reflect.defineMetadata('design:paramtypes', [String], type.prototype, method);
  Reflect.defineMetadata('design:returntype', Promise, type.prototype, method);
  const before = Object.getOwnPropertyDescriptor(type.prototype, method);
  const after = Reflect.decorate(decorators, type.prototype, method, before);
  Object.defineProperty(type.prototype, method, after);
}
