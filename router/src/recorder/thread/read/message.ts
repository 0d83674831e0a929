/** One message of a chat, as JSON has it. */
export interface Message {
  readonly role: string;
  readonly content?: unknown;
  readonly tool_calls?: readonly ToolCall[] | null;
  readonly [member: string]: unknown;
}

export interface ToolCall {
  readonly id?: string | null;
  readonly type?: string | null;
  readonly index?: number;
  /** `arguments`: JSON, in a string as OpenAI's API has it, or as such. */
  readonly function?: { readonly name?: string; readonly arguments?: unknown } | null;
}

/** The text of a content that is nothing else; null: there is more to it than text. */
export function textOf(content: unknown): string | null {
  if (content === undefined || content === null) return '';
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return null;
  let text = '';
  for (const part of content as readonly unknown[]) {
    const own = typeof part === 'string' ? part : (part as { text?: unknown } | null)?.text;
    if (typeof own !== 'string') return null;
    text += own;
  }
  return text;
}

/** About what a value of JSON takes in memory, in bytes. */
export function weightOf(value: unknown): number {
  if (typeof value === 'string') return 24 + value.length;
  if (typeof value !== 'object' || value === null) return 8;
  let bytes = 64;
  for (const each of Object.values(value)) bytes += weightOf(each);
  return bytes;
}
