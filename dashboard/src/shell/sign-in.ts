import { html } from 'htm/preact';
import { connect, key, refusal } from '../feed/connection.ts';

/** Asks for an admin key. */
export function SignIn() {
  const submit = (event: Event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement).get('key');
    key.value = typeof given === 'string' ? given.trim() : '';
    void connect();
  };
  return html`<main class="sign-in">
    <form onSubmit=${submit}>
      <h1>Sign in to turnout</h1>
      <p>
        This router asks for an admin key (<code>--admin-api-key-file</code>, or <code>--api-key-file</code> without
        it).
      </p>
      <label for="key">Admin key</label>
      <input id="key" name="key" type="password" autocomplete="off" spellcheck=${false} required autofocus />
      <p class="problem" role="alert">${refusal.value === '' ? '' : `Not authorised: ${refusal.value}`}</p>
      <button type="submit" class="primary">Sign in</button>
      <p class="hint">
        The key stays in the memory of this page, and is forgotten when the page is closed or reloaded.
      </p>
    </form>
  </main>`;
}
