import { readObject } from '../../kit/json-object.ts';
import type { Message } from '../thread/read/message.ts';

/** A request to `/v1/chat/completions`, as far as its tokens are concerned. */
export interface ChatRequest {
  readonly body: Buffer;
  readonly messages: readonly Message[];
  readonly tools: readonly unknown[] | null;
  /** What the template is given beside messages and tools. */
  readonly more: Readonly<Record<string, unknown>>;
  readonly isStream: boolean;
  readonly model: string;
  /** The engine has to render it: there is more than text in it, or it asks for a rendering of its own. */
  readonly isForeign: boolean;
  /** Its client's own requested. */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** What changes the prompt in a way that is the engine's own. */
const RENDERING = [
  'continue_final_message',
  'chat_template',
  'documents',
  'input_ids',
  'prompt_embeds',
  'mm_processor_kwargs',
];

/** @returns what is wrong with it, in words for its client */
export function readChatRequest(body: Buffer): ChatRequest | string {
  const text = body.toString('utf8');
  const fields = readObject(text);
  if (typeof fields === 'string') return fields;
  const { messages, tools, model, stream, chat_template_kwargs: kwargs } = fields;
  if (!Array.isArray(messages) || messages.length === 0) return '"messages" has to be a list that is not empty.';
  for (const message of messages as readonly unknown[]) {
    if (typeof (message as { role?: unknown } | null)?.role !== 'string') return 'Each message has to have a "role".';
  }
  const isForeign =
    RENDERING.some((name) => fields[name] !== undefined && fields[name] !== null && fields[name] !== false) ||
    fields.add_generation_prompt === false ||
    (messages as Message[]).some(({ content }) => !isOneText(content)) ||
    losesDigits(messages as Message[], tools, text);
  return {
    body,
    messages: messages as Message[],
    tools: Array.isArray(tools) ? rendered(tools, fields.tool_choice) : null,
    more: {
      ...(typeof kwargs === 'object' && kwargs !== null ? (kwargs as Record<string, unknown>) : {}),
      ...(typeof fields.reasoning_effort === 'string' ? { reasoning_effort: fields.reasoning_effort } : {}),
    },
    isStream: stream === true,
    model: typeof model === 'string' ? model : '',
    isForeign,
    fields,
  };
}

/** Those that SGLang 0.5.23 puts into the prompt: of a named one just that. (vLLM renders requests with tools itself.) */
function rendered(tools: readonly unknown[], choice: unknown): readonly unknown[] | null {
  const { name } = (choice as { function?: { name?: unknown } } | null | undefined)?.function ?? {};
  const chosen = name === undefined ? tools : tools.filter((tool) => nameOf(tool) === name);
  return chosen.length === 0 || choice === 'none' ? null : chosen;
}

const nameOf = (tool: unknown): unknown => (tool as { function?: { name?: unknown } } | null)?.function?.name;

/** Several parts are joined by each engine in its own way. */
function isOneText(content: unknown): boolean {
  if (content === undefined || content === null || typeof content === 'string') return true;
  if (!Array.isArray(content) || content.length !== 1) return false;
  const part = content[0] as { type?: unknown; text?: unknown } | null;
  return part?.type === 'text' && typeof part.text === 'string';
}

/** Numbers that JavaScript has no room for would be rendered as others. */
function losesDigits(messages: readonly Message[], tools: unknown, text: string): boolean {
  if (!/\d{16}/.test(text)) return false;
  const calls = messages.flatMap(({ tool_calls: own }) => own ?? []);
  return /[-:\s,[]\d{16}/.test(JSON.stringify([tools ?? null, calls.map((call) => call.function?.arguments ?? null)]));
}
