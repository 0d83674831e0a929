/** Strings by name that a policy gets back after a restart. */
export interface StateMap {
  readonly size: number;
  get(name: string): string | undefined;
  set(name: string, value: string): void;
  delete(name: string): void;
  entries(): Iterable<[string, string]>;
}

/** Where policies keep their state. */
export interface StateStore {
  /** The map of that name, as it was saved. */
  open(name: string): StateMap;
  /** Resolves when all changes are saved so that they outlive the process, or can't be saved now: then that is tried again later. */
  flush(): Promise<void>;
  /** Saves what could not be saved, if that is possible now. */
  close(): Promise<void>;
}

/** State that is lost when the process ends. */
export function memoryStore(): StateStore {
  const maps = new Map<string, Map<string, string>>();
  return {
    open(name) {
      let map = maps.get(name);
      if (map === undefined) maps.set(name, (map = new Map()));
      return map;
    },
    flush: () => Promise.resolve(),
    close: () => Promise.resolve(),
  };
}
