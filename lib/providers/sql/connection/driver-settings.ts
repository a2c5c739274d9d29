/**
 * A configuration as its driver reads it, with `ours` above and `defaults` below what it says. A copy would leave out the getters of a class,
 * and an object derived from it would call them without the private fields that they read.
 */
export function driverSettings(given: object, defaults: object, ours: object): object {
  // Drivers copy the properties that they find, and mysql2 adds those of an address.
  return new Proxy(
    { ...given, ...ours },
    {
      get: (own, name): unknown => Reflect.get(own, name) ?? Reflect.get(given, name) ?? Reflect.get(defaults, name),
    },
  );
}
