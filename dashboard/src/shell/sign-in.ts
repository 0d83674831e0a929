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
        This router requires an admin key: one of <code>--admin-api-key-file</code>, or of
        <code>--api-key-file</code> if the router has no admin keys.
      </p>
      <label for="key">Admin key</label>
      <input id="key" name="key" type="password" autocomplete="off" spellcheck=${false} required autofocus />
      <p class="problem" role="alert">${refusal.value === '' ? '' : `Not authorized: ${refusal.value}`}</p>
      <button type="submit" class="primary">Sign in</button>
      <p class="hint">The key is kept in the memory of this page only. After a reload you sign in again.</p>
    </form>
  </main>`;
}
