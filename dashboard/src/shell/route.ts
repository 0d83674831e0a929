import { signal } from '@preact/signals';

/** The parts of `#/fleet/<worker>`, decoded. */
export const route = signal<readonly string[]>(parts());

function parts(): string[] {
  return location.hash
    .replace(/^#\/?/, '')
    .split('/')
    .filter((part) => part !== '')
    .map((part) => decodeURIComponent(part));
}

export const hrefOf = (...to: readonly string[]): string => `#/${to.map(encodeURIComponent).join('/')}`;

export function go(...to: readonly string[]): void {
  location.hash = hrefOf(...to);
}

addEventListener('hashchange', () => {
  route.value = parts();
});
