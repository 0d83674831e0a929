import { html } from 'htm/preact';

export type Fact = readonly [term: string, value: string];

/** Terms with their values. */
export function Facts({ facts }: { readonly facts: readonly Fact[] }) {
  return html`<dl class="facts">
    ${facts.map(
      ([term, value]) =>
        html`<dt>${term}</dt>
          <dd>${value}</dd>`,
    )}
  </dl>`;
}
