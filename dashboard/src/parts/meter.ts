import { html } from 'htm/preact';
import { UNKNOWN, percent } from '../format.ts';

/** A share as a number with a bar under it. */
export function Meter({ share, isWarning = false }: { readonly share: number | null; readonly isWarning?: boolean }) {
  if (share === null) return html`<span class="unknown">${UNKNOWN}</span>`;
  return html`<span class=${isWarning ? 'meter is-warn' : 'meter'}>
    ${percent(share)}<i style=${{ width: `${Math.min(100, share * 100)}%` }}></i>
  </span>`;
}
