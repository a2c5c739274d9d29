/** Writes a module for each `.lua` file in `from` to the same path in `to`. */
export function writeLuaModules(from: string, to: string): void;
