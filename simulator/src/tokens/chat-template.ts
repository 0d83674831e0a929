/** ChatML, the chat template of Qwen models. */

export interface ChatMessage {
  role: string;
  content: string;
}

export interface TemplateOptions {
  addGenerationPrompt: boolean;
  /** Leave the last message open, so that the model continues it. */
  continueFinalMessage: boolean;
}

export function renderChat(messages: readonly ChatMessage[], options: TemplateOptions): string {
  let text = '';
  for (const { role, content } of messages) text += `<|im_start|>${role}\n${content}<|im_end|>\n`;
  if (options.continueFinalMessage) return text.slice(0, -'<|im_end|>\n'.length);
  return options.addGenerationPrompt ? `${text}<|im_start|>assistant\n` : text;
}

/** Reads messages of the OpenAI API. @returns a text if they are not valid */
export function readMessages(value: unknown): ChatMessage[] | string {
  if (!Array.isArray(value) || value.length === 0) return 'messages must be a non-empty list';
  const messages: ChatMessage[] = [];
  for (const item of value as unknown[]) {
    if (typeof item !== 'object' || item === null) return 'each message must be an object';
    const { role, content, tool_calls: toolCalls } = item as Record<string, unknown>;
    if (typeof role !== 'string') return 'each message needs a role';
    let text = readContent(content);
    if (text === null) return 'message content must be text or a list of text parts';
    if (Array.isArray(toolCalls)) {
      for (const call of toolCalls) text += `\n<tool_call>\n${JSON.stringify(call)}\n</tool_call>`;
    }
    messages.push({ role, content: text });
  }
  return messages;
}

function readContent(content: unknown): string | null {
  if (content === undefined || content === null) return '';
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return null;
  let text = '';
  for (const part of content as unknown[]) {
    const value = (part as { text?: unknown } | null)?.text;
    if (typeof value !== 'string') return null;
    text += value;
  }
  return text;
}
