import { signal } from '@preact/signals';
import { html } from 'htm/preact';
import { useEffect, useRef } from 'preact/hooks';
import { call } from '../feed/connection.ts';

interface Question {
  readonly title: string;
  readonly text: string;
  /** The words of the button. */
  readonly action: string;
  readonly isDangerous?: boolean;
}

interface Asked extends Question {
  readonly answer: (isWanted: boolean) => void;
}

const asked = signal<Asked | null>(null);
/** The result of the last action. */
const notice = signal<{ readonly text: string; readonly isError: boolean } | null>(null);
let noticeTimer = 0;

export const confirm = (question: Question): Promise<boolean> =>
  new Promise((answer) => {
    asked.value = { ...question, answer };
  });

/** Asks for a confirmation, calls an endpoint of the router, and shows the result. */
export async function act(question: Question, done: string, ...request: Parameters<typeof call>): Promise<void> {
  if (!(await confirm(question))) return;
  try {
    await call(...request);
    say(done, false);
  } catch (error) {
    say(`${question.action}: ${(error as Error).message}`, true);
  }
}

function say(text: string, isError: boolean): void {
  notice.value = { text, isError };
  clearTimeout(noticeTimer);
  noticeTimer = window.setTimeout(() => (notice.value = null), isError ? 20_000 : 6_000);
}

export function Confirm() {
  const dialog = useRef<HTMLDialogElement>(null);
  const question = asked.value;
  useEffect(() => {
    if (question !== null) dialog.current?.showModal();
  }, [question]);
  if (question === null) return null;
  const close = (isWanted: boolean) => () => {
    dialog.current?.close();
    asked.value = null;
    question.answer(isWanted);
  };
  return html`<dialog ref=${dialog} class="dialog" aria-labelledby="question" onCancel=${close(false)}>
    <h2 id="question">${question.title}</h2>
    <p>${question.text}</p>
    <div class="buttons">
      <button type="button" onClick=${close(false)} autofocus=${question.isDangerous === true}>Cancel</button>
      <button
        type="button"
        class=${question.isDangerous === true ? 'danger' : 'primary'}
        onClick=${close(true)}
        autofocus=${question.isDangerous !== true}
      >
        ${question.action}
      </button>
    </div>
  </dialog>`;
}

export function Notice() {
  const said = notice.value;
  return html`<div class="notices" role="status" aria-live="polite">
    ${
      said &&
      html`<div class=${said.isError ? 'notice is-bad' : 'notice'}>
        <span>${said.text}</span>
        <button type="button" aria-label="Dismiss" onClick=${() => (notice.value = null)}>✕</button>
      </div>`
    }
  </div>`;
}
