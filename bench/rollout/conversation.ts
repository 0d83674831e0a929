// A session's turns as chat messages, with exactly the tokens that the trace says.
import { encode } from '../../simulator/src/tokens/tokenizer.ts';
import { words } from '../../simulator/src/tokens/words.ts';
import type { Segment, Turn } from '../policies/workload.ts';

const tokensOf = (text: string): number => encode(text).length;
const open = { system: '<|im_start|>system\n', user: '<|im_start|>user\n', assistant: '<|im_start|>assistant\n' };
const openTokens = { system: tokensOf(open.system), user: tokensOf(open.user), assistant: tokensOf(open.assistant) };
const closeTokens = tokensOf('<|im_end|>\n');

/** A text of this many tokens, always the same for the same segment: a word after a space is a token. */
function textOf({ hash, name }: Segment, tokens: number): string {
  if (tokens < 1) throw new Error(`the segment ${name} is too short for a chat message`);
  let state = hash;
  let text = '';
  for (let i = 0; i < tokens; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    text += ` ${words[(state >>> 8) % words.length]}`;
  }
  return text;
}

/** What a client says in a session. Words need no JSON escapes. */
export class Conversation {
  #messages = '';
  /** Of the trace that are said: prompts and answers. */
  #segments = 0;

  /** The JSON list of messages of this turn. */
  ask({ prompt }: Turn): string {
    const added = prompt.slice(this.#segments);
    // The chat template closes the last answer and opens the next one with the tokens of what the client adds.
    let template = this.#segments > 0 ? closeTokens : 0;
    for (const [i, segment] of added.entries()) {
      const isLast = i === added.length - 1;
      const role = isLast || this.#segments > 0 ? 'user' : 'system';
      template += openTokens[role] + closeTokens + (isLast ? openTokens.assistant : 0);
      this.#add(role, textOf(segment, segment.tokens - template));
      template = 0;
    }
    this.#segments = prompt.length;
    return `[${this.#messages}]`;
  }

  answered(text: string): void {
    this.#add('assistant', text);
    this.#segments += 1;
  }

  #add(role: string, content: string): void {
    this.#messages += `${this.#messages === '' ? '' : ','}{"role":"${role}","content":"${content}"}`;
  }
}
