/**
 * 32 bits of a short key: FNV-1a over its UTF-16 units, mixed at the end (murmur3's finaliser) so that keys that differ
 * in their last letter only lie far apart. The same in every process, so that replicas agree.
 */
export function hash32(key: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
