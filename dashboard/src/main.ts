import { html } from 'htm/preact';
import { render } from 'preact';
import { connect } from './feed/connection.ts';
import { App } from './shell/app.ts';
import { listenToKeys } from './shell/keyboard.ts';
import { shownViews } from './views/views.ts';

listenToKeys(() => shownViews().map(({ id }) => id));
render(html`<${App} />`, document.getElementById('app')!);
void connect();
