import { html } from 'htm/preact';
import { connection, state } from '../feed/connection.ts';
import { shownViews } from '../views/views.ts';
import { Confirm, Notice } from './confirm.ts';
import { Header } from './header.ts';
import { KeyHelp } from './keyboard.ts';
import { route } from './route.ts';
import { SignIn } from './sign-in.ts';

/** The page: the header with the totals, and the view that the address names. */
export function App() {
  if (connection.value === 'refused') return html`<${SignIn} />`;
  const views = shownViews();
  const [id, ...rest] = route.value;
  const view = views.find((each) => each.id === id) ?? views[0]!;
  const isReady = state.about.value !== null;
  return html`<${Header} views=${views} current=${view.id} />
    <main id="view" class=${`view view-${view.id}`} aria-label=${view.title} tabindex="-1">
      ${isReady ? html`<${view.Show} key=${view.id} rest=${rest} />` : html`<p class="empty">Waiting for the router …</p>`}
    </main>
    <${Confirm} /><${KeyHelp} /><${Notice} />`;
}
