import { JsonEdit } from '../../kit/json-edit.ts';
import { scanItems } from '../../kit/json-scan.ts';
import type { RequestedFields } from './chat.ts';

const OPENING_BRACE = 0x7b;
const CLOSING_BRACE = 0x7d;
const OPENING_BRACKET = 0x5b;

/** Members about the prompt: a completion has them in its choices, a chat beside them. */
const PROMPT = ['prompt_token_ids', 'prompt_logprobs'] as const;
type PromptMembers = Partial<Record<(typeof PROMPT)[number], Buffer>>;

/** The members that follow the content in vLLM's chat (0.32). */
const REST_OF_MESSAGE = ',"refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null';

interface CompletionLogprobs {
  readonly tokens: readonly string[];
  readonly token_logprobs: readonly (number | null)[];
  readonly top_logprobs: readonly (Readonly<Record<string, number>> | null)[] | null;
}

/** Makes a chat's answer of that of vLLM's `/v1/completions` (0.32): names change, values keep their bytes. */
export class FromCompletion {
  /** Ids of sampled tokens were seen. */
  hasIds = false;
  readonly #requested: RequestedFields;
  /** Choices of a stream that have begun. */
  readonly #begun: Set<string>;

  /** @param begun choices of a stream that have begun elsewhere */
  constructor(requested: RequestedFields, begun: readonly string[] = []) {
    this.#requested = requested;
    this.#begun = new Set(begun);
  }

  get begun(): readonly string[] {
    return [...this.#begun];
  }

  /** A whole answer. */
  body(bytes: Buffer): Buffer {
    const prompt: PromptMembers = {};
    const edit = this.#change(bytes, 'message', prompt);
    if (Object.keys(prompt).length > 0) edit.append(bytes.lastIndexOf(CLOSING_BRACE), prompt);
    return edit.result();
  }

  /** An event of a stream; the first of a choice gets one before it that says whose the answer is, as a chat's has. */
  event(bytes: Buffer): Buffer {
    const start = bytes.indexOf(OPENING_BRACE);
    if (start < 0) return bytes;
    const firsts: string[] = [];
    const prompt: PromptMembers = {};
    const made = this.#change(bytes, 'delta', prompt, (index) => {
      if (this.#begun.has(index)) return;
      this.#begun.add(index);
      firsts.push(index);
    }).result();
    if (firsts.length === 0) return made;
    const { id, created, model } = JSON.parse(made.toString('utf8', start)) as Record<string, unknown>;
    const head = JSON.stringify({ id, object: 'chat.completion.chunk', created, model }).slice(0, -1);
    const choice = '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null';
    const ids = Object.entries(prompt).map(([name, value]) => `,"${name}":${value.toString('latin1')}`);
    const events = firsts.map((index) => `data: ${head},"choices":[{"index":${index},${choice}}]${ids.join('')}}\n\n`);
    return Buffer.concat([Buffer.from(events.join('')), made]);
  }

  /** @param prompt gets what a choice of a completion says of the prompt, and a chat at its top */
  #change(
    bytes: Buffer,
    name: 'message' | 'delta',
    prompt: PromptMembers,
    onChoice: (index: string) => void = () => {},
  ): JsonEdit {
    const edit = new JsonEdit(bytes);
    const start = bytes.indexOf(OPENING_BRACE);
    if (start < 0) return edit;
    edit.members(start, bytes.length, (is, { valueStart, to }) => {
      if (is('object'))
        edit.replace(valueStart, to, name === 'delta' ? '"chat.completion.chunk"' : '"chat.completion"');
      else if (is('id') && bytes.toString('latin1', valueStart, valueStart + 6) === '"cmpl-') {
        edit.replace(valueStart, valueStart + 6, '"chatcmpl-');
      } else if (is('choices')) {
        scanItems(bytes, valueStart, to, (from, end) => this.#choice(edit, name, prompt, from, end, onChoice));
      }
      return true;
    });
    return edit;
  }

  #choice(
    edit: JsonEdit,
    name: string,
    prompt: PromptMembers,
    start: number,
    end: number,
    onChoice: (index: string) => void,
  ): void {
    const { bytes } = edit;
    const requested = this.#requested;
    edit.members(start, end, (is, { from, valueStart, to }) => {
      if (is('index')) onChoice(bytes.toString('latin1', valueStart, to));
      else if (is('text')) {
        const text = bytes.subarray(valueStart, to);
        const parts =
          name === 'message'
            ? ['"message":{"role":"assistant","content":', `${REST_OF_MESSAGE}}`]
            : ['"delta":{"content":', '}'];
        edit.replace(from, to, Buffer.concat([Buffer.from(parts[0]!), text, Buffer.from(parts[1]!)]));
      } else if (is('logprobs')) edit.replace(valueStart, to, this.#logprobs(bytes.toString('utf8', valueStart, to)));
      else if (is('token_ids')) {
        this.hasIds ||= bytes[valueStart] === OPENING_BRACKET;
        if (requested.return_token_ids !== true) edit.replace(valueStart, to, 'null');
      } else {
        const moved = PROMPT.find(is);
        if (moved === undefined) return true;
        const isRequested =
          moved === 'prompt_token_ids' ? requested.return_token_ids === true : typeof requested[moved] === 'number';
        if (isRequested && bytes[valueStart] === OPENING_BRACKET) prompt[moved] ??= bytes.subarray(valueStart, to);
        return false;
      }
      return true;
    });
  }

  #logprobs(json: string): string {
    if (this.#requested.logprobs !== true || json === 'null') return 'null';
    const { tokens, token_logprobs: logprobs, top_logprobs: tops } = JSON.parse(json) as CompletionLogprobs;
    const count = typeof this.#requested.top_logprobs === 'number' ? this.#requested.top_logprobs : 0;
    const scored = (token: string, logprob: number | null) => ({ token, logprob, bytes: [...Buffer.from(token)] });
    const content = tokens.map((token, i) => ({
      ...scored(token, logprobs[i] ?? null),
      top_logprobs: Object.entries(tops?.[i] ?? {})
        .toSorted(([, a], [, b]) => b - a)
        .slice(0, count)
        .map(([other, logprob]) => scored(other, logprob)),
    }));
    return JSON.stringify({ content });
  }
}
