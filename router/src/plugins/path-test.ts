/**
 * Whether a path is among those of these routes, decided on its normal form. What begins as a route with a parameter is: its
 * routes answer it, if only by saying that there is no such thing.
 */
export function pathTest(routes: readonly string[]): (path: string) => boolean {
  const exact = new Set(routes.filter((path) => !path.includes(':')));
  const prefixes = routes.filter((path) => path.includes(':')).map((path) => path.slice(0, path.indexOf(':')));
  return (path) => exact.has(path) || prefixes.some((prefix) => path.startsWith(prefix));
}
