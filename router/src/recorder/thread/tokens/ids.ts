/** How many of their first ids are the same. */
export function commonLength(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let at = 0;
  while (at < a.length && at < b.length && a[at] === b[at]) at++;
  return at;
}

export function joinedIds(a: Int32Array, b: Int32Array): Int32Array {
  const both = new Int32Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}
