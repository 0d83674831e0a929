/** Whether one of the routes takes a path in its normal form. A route with a parameter takes every path with its prefix. */
export function pathTest(routes: readonly string[]): (path: string) => boolean {
  const exact = new Set(routes.filter((path) => !path.includes(':')));
  const prefixes = routes.filter((path) => path.includes(':')).map((path) => path.slice(0, path.indexOf(':')));
  return (path) => exact.has(path) || prefixes.some((prefix) => path.startsWith(prefix));
}
