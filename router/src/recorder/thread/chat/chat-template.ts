import { readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fromPlain, readJson } from '../jinja/json.ts';
import { Template } from '../jinja/template.ts';
import { type Named, type Value, isDict } from '../jinja/values.ts';
import { type Message, type ToolCall, textOf } from '../read/message.ts';

/** The variables of a template beside the messages, with the numbers and the order of the request. */
export interface Rendering {
  readonly tools: readonly Value[] | null;
  /** `chat_template_kwargs` of a request. */
  readonly more: Named;
}

/** The fields of a tokenizer_config.json that are read. */
interface TokenizerConfig {
  readonly chat_template?: string | readonly { readonly name: string; readonly template: string }[];
  readonly [member: string]: unknown;
}

/** A model's chat template, which renders messages as text. */
export class ChatTemplate {
  readonly #plain: Template;
  readonly #withTools: Template;
  readonly #specials: Named;

  constructor(plain: string, withTools: string, specials: Named) {
    this.#plain = new Template(plain);
    this.#withTools = withTools === plain ? this.#plain : new Template(withTools);
    this.#specials = specials;
  }

  /**
   * Throws what the template itself throws: it may refuse messages. As SGLang does, tools that it refuses are given to it a second time without
   * their wrapper `{"type": "function", "function": …}` (0.5.23, `_apply_jinja_template`: for templates of Mistral).
   */
  render(messages: readonly Message[], rendering: Rendering, asksForAnswer: boolean): string {
    const { tools } = rendering;
    try {
      return this.#render(messages, rendering, asksForAnswer);
    } catch (error) {
      if (tools === null) throw error;
      return this.#render(messages, { ...rendering, tools: tools.map(withoutWrapper) }, asksForAnswer);
    }
  }

  #render(messages: readonly Message[], { tools, more }: Rendering, asksForAnswer: boolean): string {
    const template = tools === null ? this.#plain : this.#withTools;
    return template.render(
      new Map<string, Value>([
        ...this.#specials,
        ['tools', tools],
        ['documents', null],
        ...more,
        ['messages', messages.map(asTemplatesWantIt)],
        ['add_generation_prompt', asksForAnswer],
      ]),
    );
  }
}

const withoutWrapper = (tool: Value): Value => (isDict(tool) ? (tool.get('function') ?? tool) : tool);

/**
 * As both engines pass messages to templates (SGLang 0.5.23 `process_content_for_template_format`, vLLM 0.32 `_postprocess_messages`): content is
 * text, members that are null are left out, as is an empty list of tool calls, whose arguments are objects. Templates ask whether a
 * message has tool calls by the name alone.
 */
function asTemplatesWantIt(message: Message): Value {
  const { content, tool_calls: calls } = message;
  const members = {
    ...message,
    content: textOf(content) ?? content,
    // vLLM names it `reasoning` in answers.
    reasoning_content: message['reasoning_content'] ?? message['reasoning'],
    tool_calls: Array.isArray(calls) && calls.length > 0 ? calls.map(withParsedArguments) : null,
  };
  return fromPlain(Object.fromEntries(Object.entries(members).filter(([, value]) => (value ?? null) !== null)));
}

function withParsedArguments(call: ToolCall): unknown {
  const given = (call as ToolCall | null)?.function?.arguments;
  if (typeof given !== 'string') return call;
  try {
    return { ...call, function: { ...call.function, arguments: readJson(given === '' ? '{}' : given) } };
  } catch {
    return call;
  }
}

/** Reads the chat template next to a tokenizer.json. Throws with a message for the user if there is none. */
export function loadChatTemplate(tokenizerPath: string): ChatTemplate {
  const folder = statSync(tokenizerPath).isDirectory() ? tokenizerPath : dirname(tokenizerPath);
  const config = (jsonFile(join(folder, 'tokenizer_config.json')) ?? {}) as TokenizerConfig;
  const named =
    readText(join(folder, 'chat_template.jinja')) ??
    (jsonFile(join(folder, 'chat_template.json')) as TokenizerConfig | null)?.chat_template ??
    config.chat_template;
  const byName = (name: string): string | undefined =>
    typeof named === 'string' ? named : named?.find((each) => each.name === name)?.template;
  const plain = byName('default');
  if (plain === undefined) {
    throw new Error(
      `${folder} has no chat template: no chat_template.jinja, and none in tokenizer_config.json. Save the model's tokenizer there.`,
    );
  }
  try {
    return new ChatTemplate(plain, byName('tool_use') ?? plain, specialsOf(config));
  } catch (error) {
    throw new Error(`The chat template of ${folder} can't be read: ${(error as Error).message}`, { cause: error });
  }
}

/** `bos_token` and the like: a text, or an object with one. */
function specialsOf(config: TokenizerConfig): Named {
  const specials = new Map<string, Value>();
  for (const [name, value] of Object.entries(config)) {
    const text = typeof value === 'string' ? value : (value as { content?: unknown } | null)?.content;
    if (name.endsWith('_token') && typeof text === 'string') specials.set(name, text);
  }
  return specials;
}

function readText(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

function jsonFile(file: string): unknown {
  const text = readText(file);
  if (text === undefined) return null;
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new Error(`${file} is no JSON: ${(error as Error).message}`, { cause: error });
  }
}
