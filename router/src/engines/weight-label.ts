/** SGLang and vLLM report this if no other version was set. */
export const UNSET = 'default';

/** The identity of the weights of an engine that the router has not loaded. */
export const identityOf = (version: string | null, base: string): string =>
  version === null || version === UNSET ? base : version;
