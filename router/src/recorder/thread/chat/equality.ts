import { createHash } from 'node:crypto';
import { type Message, type ToolCall, textOf } from '../read/message.ts';

/**
 * When a message that a client sends back equals the recorded one.
 * `strict`: all members are equal. `loose_tool_call`: arguments of tool calls may be spelled otherwise, text may come in parts,
 * and reasoning may be left out. `role_content_only`: nothing else counts.
 */
export type Equality = 'strict' | 'loose_tool_call' | 'role_content_only';

/** What an agent's library drops, or adds as it sees fit. */
const REASONING = new Set(['reasoning_content', 'reasoning', 'refusal', 'annotations', 'audio', 'function_call']);

const forms: Readonly<Record<Equality, (message: Message) => unknown>> = {
  strict: (message) => message,
  loose_tool_call(message) {
    const { content, tool_calls: calls, ...others } = message;
    const rest = Object.entries(others).filter(([name]) => !REASONING.has(name));
    return {
      ...Object.fromEntries(rest),
      content: textOf(content) ?? content,
      tool_calls: Array.isArray(calls) && calls.length > 0 ? calls.map(looseCall) : null,
    };
  },
  role_content_only: ({ role, content }) => ({ role, content: textOf(content) ?? content }),
};

/** The same for messages that are equal, in the sense of `equality`. */
export function messageKey(message: Message, equality: Equality): string {
  return createHash('sha1')
    .update(canonical(forms[equality](message)))
    .digest('base64');
}

function looseCall({ id, type, function: called, ...others }: ToolCall): unknown {
  const { name, arguments: given, ...rest } = called ?? {};
  const own = { ...rest, name, arguments: argumentsOf(given) };
  // Its place among the calls says nothing (SGLang writes it out, agents leave it out).
  return { ...others, index: null, id, type: type ?? 'function', function: own };
}

/** What JSON in a string says; as it is where it says nothing, or has numbers that would lose digits. */
function argumentsOf(given: unknown): unknown {
  if (typeof given !== 'string' || /\d{16}/.test(given)) return given;
  if (given === '') return {};
  try {
    return JSON.parse(given) as unknown;
  } catch {
    return given;
  }
}

/** JSON in which the order of members, and members that are null, make no difference. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value ?? null);
  const members = Object.entries(value)
    .filter(([, own]) => own !== null && own !== undefined)
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, own]) => `${JSON.stringify(name)}:${canonical(own)}`).join(',')}}`;
}
