import { signal } from '@preact/signals';
import { html } from 'htm/preact';
import { useEffect, useState } from 'preact/hooks';
import { call } from '../feed/connection.ts';
import { UNKNOWN, clock, count, counted, duration, shortUrl } from '../format.ts';
import { type TokenText, exactText, partsOf } from '../parts/token-text.ts';
import { hrefOf } from '../shell/route.ts';
import type { View } from './views.ts';

export const tokens: View = { id: 'tokens', title: 'Tokens', Show, isShown: (about) => about.captures };

interface Name {
  readonly session: string;
  /** The digest of the client's key; '': clients have no keys; null: of any client. */
  readonly tenant: string | null;
}
interface Listed extends Name {
  readonly group: string;
  readonly turns: number;
  readonly tokens: number;
  readonly versions: readonly string[];
  readonly started_at_ms: number;
  readonly reward: number | null;
}
/** A page of the list. */
interface Page {
  readonly trajectories: readonly Listed[];
  readonly next: string | null;
}
interface Turn {
  readonly id: string;
  readonly index: number;
  readonly keeps: number;
  readonly worker: string;
  readonly path: string;
  readonly generation_ms: number;
  readonly finish_reason: string;
  readonly cached_tokens: number;
  readonly versions: readonly { readonly version: string | null; readonly from: number; readonly to: number }[];
  readonly tokens: readonly number[];
  /** Left out: the router has no tokenizer. */
  readonly token_texts?: readonly TokenText[];
  readonly loss_mask: readonly number[];
  readonly rollout_log_probs: readonly (number | null)[];
}
interface Trajectory extends Listed {
  readonly page: readonly Turn[];
  readonly next: string | null;
}

const colourings = ['logprob', 'mask', 'snapshot'] as const;
const colouring = signal<(typeof colourings)[number]>('logprob');
/** Tokens of a turn that are drawn before the button is used: prompts have thousands. */
const FIRST_TOKENS = 1_500;
/** Sampled tokens less likely than these have the next colour. */
const LOGPROBS = [-0.1, -0.5, -1, -2, -4];
const SNAPSHOTS = 6;

/** Asks the router once for each path. */
function useAnswer(path: string): { readonly value: unknown; readonly problem: string } {
  const [answer, setAnswer] = useState<{ path: string; value: unknown; problem: string } | null>(null);
  useEffect(() => {
    call('GET', path).then(
      (value) => setAnswer({ path, value, problem: '' }),
      (error: unknown) => setAnswer({ path, value: null, problem: (error as Error).message }),
    );
  }, [path]);
  return answer?.path === path ? answer : { value: null, problem: '' };
}

/** In addresses, where a part is never empty. */
const NO_TENANT = 'none';
const partsOfName = ({ session, tenant }: Name): string[] => [session, tenant || NO_TENANT];

/** Sessions of several clients may have one name. Links of other views do not know the client. */
function chosenIn(list: readonly Listed[], [session, part]: readonly string[]): Name | undefined {
  if (session === undefined) return list[0];
  const tenant = part === NO_TENANT ? '' : part;
  const found = list.find((each) => each.session === session && (tenant === undefined || each.tenant === tenant));
  return found ?? { session, tenant: tenant ?? null };
}

const LIST = 'trajectories?order=newest&limit=200';

function Show({ rest }: { readonly rest: readonly string[] }) {
  const { value, problem } = useAnswer(LIST);
  if (problem !== '') return html`<p class="empty">${problem}</p>`;
  if (value === null) return html`<p class="empty">Loading the list …</p>`;
  const page = value as Page;
  const chosen = chosenIn(page.trajectories, rest);
  if (chosen === undefined) return html`<p class="empty">No trajectory is recorded yet.</p>`;
  return html`<div class="swaps">
    <nav class="swap-list" aria-label="Trajectories">
      <${Links} page=${page} chosen=${chosen} />
    </nav>
    <${Tokens} key=${partsOfName(chosen).join(' ')} name=${chosen} />
  </div>`;
}

/** The trajectories of a page, and a button for the next page. */
function Links({ page, chosen }: { readonly page: Page; readonly chosen: Name }) {
  const [isFollowed, follow] = useState(false);
  return html`${page.trajectories.map(
    (each) =>
      html`<a
        key=${partsOfName(each).join(' ')}
        href=${hrefOf('tokens', ...partsOfName(each))}
        aria-current=${each.session === chosen.session && each.tenant === chosen.tenant ? 'true' : undefined}
      >
        <b>${each.session}</b> <span class="muted">${clock(each.started_at_ms)}</span>
        <span class="muted">${counted(each.turns, 'turn')}, ${counted(each.tokens, 'token')}</span>
        ${each.reward !== null && html`<span>reward ${each.reward}</span>`}
      </a>`,
  )}
  ${
    page.next !== null &&
    (isFollowed
      ? html`<${EarlierLinks} after=${page.next} chosen=${chosen} />`
      : html`<button type="button" onClick=${() => follow(true)}>Earlier trajectories</button>`)
  }`;
}

function EarlierLinks({ after, chosen }: { readonly after: string; readonly chosen: Name }) {
  const { value, problem } = useAnswer(`${LIST}&after=${encodeURIComponent(after)}`);
  if (value === null) return html`<p class="muted">${problem || 'Loading the list …'}</p>`;
  return html`<${Links} page=${value as Page} chosen=${chosen} />`;
}

function Tokens({ name: { session, tenant } }: { readonly name: Name }) {
  const query = new URLSearchParams({ texts: 'true', session, ...(tenant === null ? {} : { tenant }) });
  const { value: answer, problem } = useAnswer(`trajectory?${query}`);
  if (problem !== '') return html`<p class="empty">${problem}</p>`;
  if (answer === null) return html`<p class="empty">Loading the trajectory …</p>`;
  const value = answer as Trajectory;
  const versions = [...new Set(value.page.flatMap((turn) => turn.versions.map(({ version }) => version)))];
  return html`<section class="list" aria-label=${`Tokens of ${session}`}>
    <div class="swap-head">
      <h2>${session}</h2>
      <p class="muted">
        ${`${counted(value.turns, 'turn')}, ${counted(value.tokens, 'token')}${value.group === '' ? '' : `, group ${value.group}`}`}
      </p>
      <p><a href=${hrefOf('sessions', session)}>Which worker served each turn, and why</a></p>
      ${
        value.page.some((turn) => turn.tokens.length > 0 && turn.token_texts === undefined) &&
        html`<p class="muted">
          Tokens are shown as ids, because this router has no tokenizer. Start it with${' '}
          <code>--tokenizer-path</code> to see their text.
        </p>`
      }
      <div class="buttons" role="group" aria-label="Colour by">
        ${colourings.map(
          (each) =>
            html`<button
              type="button"
              class="chip"
              aria-pressed=${colouring.value === each}
              onClick=${() => (colouring.value = each)}
            >
              ${each}
            </button>`,
        )}
      </div>
      <${Legend} versions=${versions} />
    </div>
    <div class="token-turns" tabindex="0" role="group" aria-label="Turns">
      ${value.page.map((turn) => html`<${TurnTokens} key=${turn.id} turn=${turn} versions=${versions} />`)}
      ${value.next !== null && html`<p class="muted">Only the first turns are shown.</p>`}
    </div>
  </section>`;
}

function Legend({ versions }: { readonly versions: readonly (string | null)[] }) {
  const entries: (readonly [className: string, text: string])[] =
    colouring.value === 'mask'
      ? [
          ['mask-0', 'prompt (loss mask 0)'],
          ['mask-1', 'sampled (loss mask 1)'],
        ]
      : colouring.value === 'snapshot'
        ? [
            ['mask-0', 'prompt'],
            ...versions.map((version, i) => [`snapshot-${i % SNAPSHOTS}`, version ?? 'unknown'] as const),
          ]
        : [
            ['mask-0', 'prompt'],
            ...[...LOGPROBS, -Infinity].map(
              (least, i) =>
                [`logprob-${i}`, Number.isFinite(least) ? `above ${least}` : `below ${LOGPROBS.at(-1)}`] as const,
            ),
            ['logprob-unknown', 'unknown'],
          ];
  return html`<ul class="legend" aria-label="Colours">
    ${entries.map(([name, text]) => html`<li><i class=${`token ${name}`}></i>${text}</li>`)}
  </ul>`;
}

const summaryOf = (turn: Turn, sampled: number): string =>
  [
    shortUrl(turn.worker),
    counted(turn.tokens.length - sampled, 'new prompt token'),
    `${turn.cached_tokens < 0 ? UNKNOWN : count(turn.cached_tokens)} cached`,
    `${count(sampled)} sampled in ${duration(turn.generation_ms / 1000)}`,
    turn.finish_reason || UNKNOWN,
  ].join(' · ');

const TokenParts = ({ text, id }: { readonly text: TokenText; readonly id: number }) =>
  partsOf(text, id).map((part) => (part.isSign ? html`<span class="sign">${part.text}</span>` : part.text));

function TurnTokens({ turn, versions }: { readonly turn: Turn; readonly versions: readonly (string | null)[] }) {
  const [isWhole, showWhole] = useState(false);
  const [at, setAt] = useState(-1);
  const texts = turn.token_texts;
  const sampled = turn.loss_mask.filter((bit) => bit === 1).length;
  // The sampled tokens come last.
  const from = isWhole ? 0 : Math.max(0, turn.tokens.length - FIRST_TOKENS);
  const versionAt = (i: number): string | null =>
    turn.versions.find((span) => turn.keeps + i >= span.from && turn.keeps + i < span.to)?.version ?? null;
  const classOf = (i: number): string => {
    if (turn.loss_mask[i] !== 1) return 'mask-0';
    if (colouring.value === 'mask') return 'mask-1';
    if (colouring.value === 'snapshot') return `snapshot-${Math.max(0, versions.indexOf(versionAt(i))) % SNAPSHOTS}`;
    const logprob = turn.rollout_log_probs[i];
    if (logprob == null) return 'logprob-unknown';
    const step = LOGPROBS.findIndex((least) => logprob > least);
    return `logprob-${step < 0 ? LOGPROBS.length : step}`;
  };
  const show = (event: Event) => {
    const index = (event.target as HTMLElement).closest<HTMLElement>('[data-i]')?.dataset['i'];
    if (index !== undefined) setAt(Number(index));
  };
  return html`<article class="token-turn" aria-label=${`Turn ${turn.index + 1}`}>
    <h3>${`Turn ${turn.index + 1} `}<span class="muted">${summaryOf(turn, sampled)}</span></h3>
    ${from > 0 && html`<button type="button" onClick=${() => showWhole(true)}>${count(from)} earlier tokens</button>`}
    <div class=${texts === undefined ? 'tokens' : 'tokens is-text'} onMouseOver=${show} onClick=${show}>
      ${turn.tokens
        .slice(from)
        .map(
          (id, i) =>
            html`<i class=${`token ${classOf(from + i)}`} data-i=${from + i} title=${`id ${id}`}
              >${texts === undefined ? id : html`<${TokenParts} text=${texts[from + i] ?? null} id=${id} />`}</i
            >`,
        )}
    </div>
    <p class="muted token-facts" aria-live="off">
      ${
        at < 0 || at >= turn.tokens.length
          ? 'Point at a token to see its id, logprob and snapshot.'
          : `Token ${turn.keeps + at}: ${texts === undefined ? '' : `${exactText(texts[at] ?? null)}, `}id ${turn.tokens[at]}, ${
              turn.loss_mask[at] === 1
                ? `sampled, logprob ${turn.rollout_log_probs[at]?.toFixed(4) ?? 'unknown'}, snapshot ${versionAt(at) ?? 'unknown'}`
                : 'prompt'
            }`
      }
    </p>
  </article>`;
}
