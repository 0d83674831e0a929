import { html } from 'htm/preact';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

interface DetailsProps {
  /** What the details are of, for screen readers. */
  readonly label: string;
  readonly title: string;
  readonly isWide?: boolean;
  readonly onClose: () => void;
  readonly children?: ComponentChildren;
}

/** Details beside a list. The button and Escape close them; then the focus returns to the element that had it when they opened. */
export function Details({ label, title, isWide = false, onClose, children }: DetailsProps) {
  const isClosed = useRef(false);
  useLayoutEffect(() => {
    const opener = document.activeElement;
    return () => {
      // Another view was chosen, or a key has gone to the filter since: the focus is where it belongs.
      if (!isClosed.current || document.activeElement?.matches('[data-filter]') === true) return;
      const isGone = opener === document.body || opener?.isConnected !== true;
      (isGone ? document.querySelector<HTMLElement>('[role=grid]') : (opener as HTMLElement))?.focus();
    };
  }, []);
  const close = () => {
    isClosed.current = true;
    onClose();
  };
  useLayoutEffect(() => {
    const listener = (event: KeyboardEvent) => {
      // In a filter Escape clears the filter.
      const isElsewhere =
        (event.target as HTMLElement).matches('input') || document.querySelector('dialog[open]') !== null;
      if (event.key === 'Escape' && !isElsewhere) close();
    };
    addEventListener('keydown', listener);
    return () => removeEventListener('keydown', listener);
  });
  return html`<aside class=${isWide ? 'details is-wide' : 'details'} aria-label=${label}>
    <header>
      <h2>${title}</h2>
      <button type="button" aria-label="Close the details" onClick=${close}>✕</button>
    </header>
    ${children}
  </aside>`;
}
