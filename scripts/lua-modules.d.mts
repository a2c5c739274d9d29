/** Writes the module of each `.lua` file in `from` to the same place in `to`. */
export function writeLuaModules(from: string, to: string): void;
