/**
 * The one normal form of a path. It decides both where a request goes and who may send it, so that no spelling bypasses
 * a rule. Percent-encoded unreserved characters are decoded, empty and dot segments resolved (RFC 3986 section 6.2.2),
 * a backslash counts as a slash, as in URL parsers of browsers and Node, and the query is left out. The engine gets the
 * client's own spelling.
 */
export function normalPath(target: string): string {
  const query = target.indexOf('?');
  const path = query < 0 ? target : target.slice(0, query);
  if (path.includes('\\')) return normalPath(path.replaceAll('\\', '/'));
  if (!path.includes('%') && !path.includes('//') && !path.includes('/.') && !path.endsWith('/')) return path;
  const decoded = path.replace(/%([0-9a-f]{2})/gi, (escape, hex: string) => {
    const char = String.fromCharCode(Number.parseInt(hex, 16));
    // The slash is reserved, but uvicorn, the engines' server, decodes it before routing.
    return /[\w.~/-]/.test(char) ? char : escape.toUpperCase();
  });
  const segments: string[] = [];
  for (const segment of decoded.split('/')) {
    if (segment === '..') segments.pop();
    else if (segment !== '' && segment !== '.') segments.push(segment);
  }
  return `/${segments.join('/')}`;
}
