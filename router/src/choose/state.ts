/** Strings by name that a policy wants back after a restart. */
export interface StateMap {
  readonly size: number;
  get(name: string): string | undefined;
  set(name: string, value: string): void;
  delete(name: string): void;
  entries(): Iterable<[string, string]>;
}

/** Where state lives. */
export interface StateStore {
  /** The map of that name, as it was left. */
  open(name: string): StateMap;
  /** Resolves when all that was set is where it outlives the process. */
  flush(): Promise<void>;
}

/** State for as long as the process lives. */
export function memoryStore(): StateStore {
  const maps = new Map<string, Map<string, string>>();
  return {
    open(name) {
      let map = maps.get(name);
      if (map === undefined) maps.set(name, (map = new Map()));
      return map;
    },
    flush: () => Promise.resolve(),
  };
}
