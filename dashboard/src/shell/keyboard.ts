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
    if (target.matches('input, textarea, select')) {
      if (event.key === 'Escape') target.blur();
      return;
    }
    const view = viewIds()[Number(event.key) - 1];
    if (view !== undefined) go(view);
    else if (event.key === '/') focus('[data-filter]');
    else if (event.key === '?') isHelpShown.value = true;
    else if (event.key === 't') switchTheme();
    else if (event.key === 'ArrowDown' && !target.matches('[role=grid]')) focus('[role=grid]');
    else return;
    event.preventDefault();
  });
}

const focus = (selector: string): void => document.querySelector<HTMLElement>(selector)?.focus();

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
