import assert from 'node:assert/strict';
import type { ChatMessage } from '../harness/chat-scene.ts';

/** What a client got of an answer, however far it came. */
export interface Got {
  readonly message: ChatMessage;
  /** '' where it broke off. */
  readonly finishReason: string;
  /** null: they were not asked for. */
  readonly logprobs: readonly number[] | null;
  /** The bytes as they came. */
  readonly text: string;
  readonly isWhole: boolean;
  readonly isStream: boolean;
}

interface Choice {
  readonly message?: ChatMessage;
  readonly delta?: { readonly content?: string | null };
  readonly logprobs: { readonly content: readonly { readonly logprob: number }[] } | null;
  readonly finish_reason: string | null;
}

/** Sends a chat. @param onBegun told at the first bytes. @returns null: no answer began, or it was an error */
export async function askChat(
  url: string,
  body: object,
  headers: Readonly<Record<string, string>>,
  onBegun: () => void,
  signal: AbortSignal,
): Promise<Got | null> {
  const parts: Buffer[] = [];
  let isStream = false;
  let isWhole = false;
  try {
    const response = await fetch(url, { method: 'POST', body: JSON.stringify(body), headers, signal });
    if (response.status !== 200) {
      const problem = await response.text();
      assert.ok(response.status >= 500, problem);
      return null;
    }
    isStream = response.headers.get('content-type')!.startsWith('text/event-stream');
    for await (const part of response.body!) {
      if (parts.length === 0) onBegun();
      parts.push(Buffer.from(part as Uint8Array));
    }
    isWhole = true;
  } catch (error) {
    if (error instanceof assert.AssertionError) throw error;
    // It broke off: its engine died, or its client left.
  }
  const text = Buffer.concat(parts).toString();
  const jsons = isStream ? eventsOf(text) : isWhole ? [text] : [];
  return jsons.length === 0 ? null : { ...readChoices(jsons), text, isWhole, isStream };
}

/** Those that came whole. */
function eventsOf(text: string): string[] {
  return text
    .slice(0, text.lastIndexOf('\n\n') + 1)
    .split('\n\n')
    .map((event) => event.replace(/^data: /, ''))
    .filter((data) => data.startsWith('{') && !data.startsWith('{"error"'));
}

function readChoices(jsons: readonly string[]): Pick<Got, 'message' | 'finishReason' | 'logprobs'> {
  let content = '';
  let finishReason = '';
  let logprobs: number[] | null = null;
  for (const json of jsons) {
    const { choices } = JSON.parse(json) as { choices: readonly Choice[] };
    for (const choice of choices) {
      content += choice.message?.content ?? choice.delta?.content ?? '';
      finishReason = choice.finish_reason ?? finishReason;
      if (choice.logprobs !== null)
        logprobs = [...(logprobs ?? []), ...choice.logprobs.content.map((one) => one.logprob)];
    }
  }
  return { message: { role: 'assistant', content }, finishReason, logprobs };
}
