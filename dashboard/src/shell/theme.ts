import { effect, signal } from '@preact/signals';

const prefersDark = matchMedia('(prefers-color-scheme: dark)');

/** What the system wants, until the switch is used. */
export const theme = signal<'light' | 'dark'>(prefersDark.matches ? 'dark' : 'light');

let isChosen = false;

prefersDark.addEventListener('change', () => {
  if (!isChosen) theme.value = prefersDark.matches ? 'dark' : 'light';
});

export function switchTheme(): void {
  isChosen = true;
  theme.value = theme.value === 'dark' ? 'light' : 'dark';
}

effect(() => {
  document.documentElement.dataset['theme'] = theme.value;
});
