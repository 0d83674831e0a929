import type { Signal } from '@preact/signals';
import { html } from 'htm/preact';
import { count } from '../format.ts';

interface Chip {
  readonly word: string;
  readonly count: number;
}

interface FilterProps {
  readonly filter: Signal<string>;
  readonly label: string;
  readonly shown: number;
  readonly all: number;
  readonly chips?: readonly Chip[];
}

/** A field for words that rows must have, and words to choose. The key `/` goes there. */
export function Filter({ filter, label, shown, all, chips = [] }: FilterProps) {
  const choose = (word: string) => () => {
    filter.value = filter.value === word ? '' : word;
  };
  return html`<div class="filter" role="search">
    <input
      type="search"
      data-filter
      aria-label=${label}
      placeholder=${`${label}  ( / )`}
      value=${filter.value}
      onInput=${(event: Event) => (filter.value = (event.currentTarget as HTMLInputElement).value)}
      onKeyDown=${(event: KeyboardEvent) => event.key === 'Escape' && (filter.value = '')}
    />
    ${chips.map(
      ({ word, count: number }) =>
        html`<button type="button" class="chip" aria-pressed=${filter.value === word} onClick=${choose(word)}>
          ${word} <b>${count(number)}</b>
        </button>`,
    )}
    <output class="muted">${shown === all ? '' : `${count(shown)} of ${count(all)}`}</output>
  </div>`;
}
