/**
 * A 32-bit hash of a short key: FNV-1a over its UTF-16 units, with murmur3's finaliser, which separates keys that differ only in the last
 * letter. It is the same in every process, so that replicas agree.
 */
export function hash32(key: string): number {
  return hashFrom(hashBegun(key), '');
}

/** The state of the hash after `beginning`, for several keys with the same prefix. */
export function hashBegun(beginning: string, state = 0x811c9dc5): number {
  let hash = state;
  for (let i = 0; i < beginning.length; i++) hash = Math.imul(hash ^ beginning.charCodeAt(i), 0x01000193);
  return hash;
}

/** The hash of the text of `begun` followed by `rest`. */
export function hashFrom(begun: number, rest: string): number {
  let hash = hashBegun(rest, begun);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
