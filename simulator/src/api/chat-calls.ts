/** What `/v1/messages` and `/v1/responses` have in common. */

import { type ChatMessage, readMessages, renderChat } from '../tokens/chat-template.ts';
import type { HttpCall } from './http-call.ts';
import { Problem, SchemaProblem, readSampling, type Fields } from './read-request.ts';
import { rankProblem, refuse, unknownModel } from './refusal.ts';
import { Sequence } from '../model/sequence.ts';
import { type Delta, StreamOut } from './stream-out.ts';
import { encode } from '../tokens/tokenizer.ts';
import { WholeOut } from './whole-out.ts';

/** One such API and how it writes its responses. */
export interface ChatApi {
  /** The prefix of response ids. */
  readonly prefix: string;
  /** The field that limits the tokens. */
  readonly maxTokens: string;
  /** The conversation, system prompt first; a text says what is wrong with it. */
  messages(body: Fields): ChatMessage[] | string;
  answer(call: HttpCall, made: MadeChat): object;
  events(call: HttpCall, made: MadeChat, delta: Delta): object[];
}

export interface MadeChat {
  readonly id: string;
  readonly body: Fields;
  readonly model: string;
  readonly sequence: Sequence;
  readonly created: number;
}

/** Content in these APIs: a text, or a list of blocks, of which those with text count. */
export function contentText(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content
    .map((block) => {
      const { text, content: inner } = block as { text?: unknown; content?: unknown };
      return typeof text === 'string' ? text : contentText(inner);
    })
    .join('');
}

export const serveChat =
  (api: ChatApi) =>
  (call: HttpCall): void => {
    const { given: body, core } = call;
    if (body instanceof SchemaProblem) return refuse(call, 400, body);
    const unknown = core.options.kind === 'vllm' ? unknownModel(core, body) : null;
    if (unknown !== null) return refuse(call, 404, unknown);
    const sequence = rankProblem(call) ?? read(call, api, body);
    if (sequence instanceof Problem) return refuse(call, 400, sequence);
    const model = typeof body.model === 'string' ? body.model : core.options.model;
    const created = Math.floor(Date.now() / 1000);
    const made: MadeChat = { id: sequence.id, body, model, sequence, created };
    const job = { id: sequence.id, sequences: [sequence] };
    call.tie(job);
    if (body.stream !== true) {
      core.start(job, new WholeOut(1, () => call.json(200, api.answer(call, made))));
      return;
    }
    const stream = call.openStream({ isNamed: true });
    core.start(
      job,
      new StreamOut(
        stream,
        [sequence],
        (delta) => api.events(call, made, delta),
        () => [],
        () => stream.end(), // Without the [DONE] of chats.
      ),
    );
  };

function read(call: HttpCall, api: ChatApi, body: Fields): Sequence | Problem {
  const { core } = call;
  const given = api.messages(body);
  const messages = typeof given === 'string' ? given : readMessages(given);
  if (typeof messages === 'string') return new SchemaProblem(messages, 'body.messages');
  const prompt = encode(renderChat(messages, { addGenerationPrompt: true, continueFinalMessage: false }));
  const names = { maxTokens: [api.maxTokens], minTokens: 'min_tokens', seed: 'seed' };
  const sampling = readSampling({ ...body, stop: body.stop_sequences }, names, core.nextUnseeded());
  if (sampling instanceof Problem) return sampling;
  const limit = core.scheduler.maxSequenceTokens - prompt.length;
  const { maxTokens = limit } = sampling;
  if (maxTokens < 1 || maxTokens > limit) return new Problem(`${api.maxTokens} must be between 1 and ${limit}.`);
  const id = `${api.prefix}${call.header('x-request-id') ?? crypto.randomUUID().replaceAll('-', '')}`;
  const { model } = body;
  const isAdapter = core.options.kind === 'vllm' && typeof model === 'string' && model !== core.options.model;
  const sequence = new Sequence(id, prompt, sampling.sample(0, maxTokens), isAdapter ? model : '');
  if (isAdapter) sequence.sampler = core.adapterSampler(model);
  return sequence;
}
