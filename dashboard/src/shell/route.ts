import { signal } from '@preact/signals';

/** The parts of `#/fleet/<worker>`, decoded. */
export const route = signal<readonly string[]>(parts());

function parts(): string[] {
  return location.hash
    .replace(/^#\/?/, '')
    .split('/')
    .filter((part) => part !== '')
    .map(decoded);
}

/** A part that was written by hand may be no encoded text, for example `%`. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A name that a client gave may have half a surrogate pair, which can't be encoded. */
export const hrefOf = (...to: readonly string[]): string =>
  `#/${to.map((part) => encodeURIComponent(part.toWellFormed())).join('/')}`;

export function go(...to: readonly string[]): void {
  location.hash = hrefOf(...to);
}

addEventListener('hashchange', () => {
  route.value = parts();
});
