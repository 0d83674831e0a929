/** A message of a chat in JSON. */
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
  /** `arguments`: JSON, or a string with JSON as in OpenAI's API. */
  readonly function?: { readonly name?: string; readonly arguments?: unknown } | null;
}

/** The text of a content; null: it has other parts than text. */
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

/** The estimated memory of a JSON value, in bytes. */
export function weightOf(value: unknown): number {
  if (typeof value === 'string') return 24 + value.length;
  if (typeof value !== 'object' || value === null) return 8;
  let bytes = 64;
  for (const each of value instanceof Map ? value.values() : Object.values(value)) bytes += weightOf(each);
  return bytes;
}
