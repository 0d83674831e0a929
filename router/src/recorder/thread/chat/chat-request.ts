import { Json } from '../../../kit/json-members.ts';
import { isObject, readObject } from '../../../kit/json-object.ts';
import { truthOf } from '../../../kit/truth.ts';
import { readJson } from '../jinja/json.ts';
import { type Named, type Value, isDict, isList } from '../jinja/values.ts';
import type { Message } from '../read/message.ts';

/** A request to `/v1/chat/completions`, as far as its tokens are concerned. */
export interface ChatRequest {
  readonly body: Buffer;
  readonly messages: readonly Message[];
  readonly tools: readonly Value[] | null;
  /** What the template is given beside messages and tools. */
  readonly more: Named;
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
    truthOf(fields.add_generation_prompt) === false ||
    (messages as Message[]).some(({ content }) => !isOneText(content)) ||
    isReadInSeveralWays(messages as Message[], tools, text);
  const exactly = (name: string): Value => readJson(Json.object(body)!.get(name)!.raw().toString());
  return {
    body,
    messages: messages as Message[],
    tools: Array.isArray(tools) ? rendered(exactly('tools'), fields.tool_choice) : null,
    more: reasoningOf(fields, isObject(kwargs) ? (exactly('chat_template_kwargs') as Named) : new Map()),
    isStream: truthOf(stream) === true,
    model: typeof model === 'string' ? model : '',
    isForeign,
    fields,
  };
}

/**
 * With the names that templates have for reasoning, unless the request gives them itself (SGLang 0.5.23, `normalize_reasoning_inputs`; vLLM 0.32
 * gives `enable_thinking`).
 */
function reasoningOf(fields: Readonly<Record<string, unknown>>, given: Named): Named {
  const reasoning = isObject(fields['reasoning']) ? fields['reasoning'] : {};
  const effort = reasoning['effort'] ?? reasoning['reasoning_effort'] ?? fields['reasoning_effort'] ?? null;
  if (effort === null && reasoning['enabled'] !== true) return given;
  const thinks = effort !== 'none';
  const names = new Map<string, Value>([['thinking', thinks], ['enable_thinking', thinks], ...given]);
  return typeof effort === 'string' ? names.set('reasoning_effort', effort) : names;
}

/** Those that SGLang 0.5.23 puts into the prompt: of a named one just that. (vLLM renders requests with tools itself.) */
function rendered(tools: Value, choice: unknown): readonly Value[] | null {
  const all = isList(tools) ? tools : [];
  const { name } = (choice as { function?: { name?: unknown } } | null | undefined)?.function ?? {};
  const chosen = name === undefined ? all : all.filter((tool) => nameOf(tool) === name);
  return chosen.length === 0 || choice === 'none' ? null : chosen;
}

function nameOf(tool: Value): unknown {
  const called = isDict(tool) ? tool.get('function') : undefined;
  return called !== undefined && isDict(called) ? called.get('name') : undefined;
}

/** Several parts are joined by each engine in its own way. */
function isOneText(content: unknown): boolean {
  if (content === undefined || content === null || typeof content === 'string') return true;
  if (!Array.isArray(content) || content.length !== 1) return false;
  const part = content[0] as { type?: unknown; text?: unknown } | null;
  return part?.type === 'text' && typeof part.text === 'string';
}

/**
 * Integers of 19 digits and more: SGLang reads those of more than 64 bits as floats in arguments of tool calls. And arguments that are an object
 * instead of a text, if they have digits: JSON.parse keeps neither the difference between `1` and `1.0` nor the order of members whose names are numbers.
 */
function isReadInSeveralWays(messages: readonly Message[], tools: unknown, text: string): boolean {
  const given = messages.flatMap(({ tool_calls: own }) => own ?? []).map((call) => call?.function?.arguments ?? null);
  if (given.some((own) => typeof own === 'object' && own !== null && /\d/.test(JSON.stringify(own)))) return true;
  return /\d{19}/.test(text) && /[-:\s,[]\d{19}/.test(JSON.stringify([tools ?? null, given]));
}
