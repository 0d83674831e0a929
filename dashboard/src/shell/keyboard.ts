import { signal } from '@preact/signals';
import { html } from 'htm/preact';
import { useEffect, useRef } from 'preact/hooks';
import { go } from './route.ts';
import { switchTheme } from './theme.ts';

const isHelpShown = signal(false);

const rows: readonly (readonly [keys: string, effect: string])[] = [
  ['1 … 9', 'open a view'],
  ['/', 'go to the filter'],
  ['↑ ↓  PgUp PgDn  Home End', 'select a row'],
  ['Enter', 'show the details of the row'],
  ['Esc', 'close the details, or clear the filter'],
  ['t', 'change between light and dark'],
  ['?', 'show these keys'],
];

/** Keys that work everywhere but in a text field. Views handle their own at the element that has the focus. */
export function listenToKeys(viewIds: () => readonly string[]): void {
  addEventListener('keydown', (event) => {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]') !== null) return;
    const isArrow = event.key === 'ArrowDown' || event.key === 'ArrowUp';
    if (target.matches('input, textarea, select')) {
      if (event.key === 'Escape') target.blur();
      // From the filter to the rows that are left.
      if (!isArrow || !target.matches('[data-filter]')) return;
    }
    const view = viewIds()[Number(event.key) - 1];
    if (view !== undefined) go(view);
    else if (event.key === '/') focus('[data-filter]');
    else if (event.key === '?') isHelpShown.value = true;
    else if (event.key === 't') switchTheme();
    else if (!isArrow || target.matches('[role=grid]') || !enterList(target, event.key)) return;
    event.preventDefault();
  });
}

const focus = (selector: string): void => document.querySelector<HTMLElement>(selector)?.focus();

/** Moves in a list of links, or enters a table: its first row is selected. @returns whether there is one */
function enterList(target: HTMLElement, key: string): boolean {
  const grid = document.querySelector<HTMLElement>('[role=grid]');
  const list = target.closest('nav.swap-list') ?? (grid === null ? document.querySelector('nav.swap-list') : null);
  if (list !== null) {
    const links = [...list.querySelectorAll('a')];
    const at = links.indexOf(target as HTMLAnchorElement);
    const next =
      at < 0 ? links.find((link) => link.ariaCurrent === 'true') : links[at + (key === 'ArrowDown' ? 1 : -1)];
    next?.focus();
    return true;
  }
  grid?.focus();
  if (grid !== null && !grid.contains(target)) grid.dispatchEvent(new KeyboardEvent('keydown', { key }));
  return grid !== null;
}

export const showKeys = (): void => {
  isHelpShown.value = true;
};

export function KeyHelp() {
  const dialog = useRef<HTMLDialogElement>(null);
  const isShown = isHelpShown.value;
  useEffect(() => {
    if (isShown) dialog.current?.showModal();
  }, [isShown]);
  if (!isShown) return null;
  const close = () => {
    dialog.current?.close();
    isHelpShown.value = false;
  };
  return html`<dialog ref=${dialog} class="dialog" aria-labelledby="keys" onCancel=${close}>
    <h2 id="keys">Keys</h2>
    <dl class="keys">
      ${rows.map(
        ([keys, effect]) =>
          html`<dt><kbd>${keys}</kbd></dt>
            <dd>${effect}</dd>`,
      )}
    </dl>
    <div class="buttons"><button type="button" class="primary" onClick=${close} autofocus>Close</button></div>
  </dialog>`;
}
