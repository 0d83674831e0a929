/** Endpoints that both engines have, and the simulation's own. */

import { readMessages, renderChat } from '../tokens/chat-template.ts';
import type { HttpCall } from './http-call.ts';
import { metricsText } from './sim-metrics.ts';
import { messages } from './messages.ts';
import { chatCompletions, completions } from './openai.ts';
import { responses } from './responses.ts';
import { SchemaProblem } from './read-request.ts';
import { refuse } from './refusal.ts';
import type { Routes } from './server.ts';
import { decode, encode } from '../tokens/tokenizer.ts';

export const commonRoutes: Routes = {
  'POST /v1/completions': completions,
  'POST /v1/chat/completions': chatCompletions,
  'POST /v1/messages': messages,
  'POST /v1/responses': responses,
  'GET /v1/models': models,
  'POST /tokenize': tokenize,
  'POST /detokenize': detokenize,
  'GET /metrics': (call) => call.send(200, 'text/plain; version=0.0.4; charset=utf-8', metricsText(call.core)),
  'GET /sim/stats': (call) => call.json(200, call.core.stats()),
};

function models(call: HttpCall): void {
  const { core } = call;
  const { kind, model, maxModelTokens } = core.options;
  const created = Math.floor(Date.now() / 1000);
  const data = [...core.modelNames].map(([name, root]) => ({
    id: name === model ? core.servedName : name,
    object: 'model',
    created,
    owned_by: kind,
    root,
    parent: name === model ? null : core.servedName,
    max_model_len: maxModelTokens,
  }));
  call.json(200, { object: 'list', data });
}

function tokenize(call: HttpCall): void {
  const { prompt, messages, add_generation_prompt: addGenerationPrompt } = call.body;
  let text: string;
  if (typeof prompt === 'string') text = prompt;
  else {
    const read = readMessages(messages);
    if (typeof read === 'string') return refuse(call, 400, new SchemaProblem(read, 'body.messages'));
    text = renderChat(read, { addGenerationPrompt: addGenerationPrompt !== false, continueFinalMessage: false });
  }
  const tokens = encode(text);
  const { kind, maxModelTokens } = call.core.options;
  call.json(200, {
    count: tokens.length,
    max_model_len: maxModelTokens,
    tokens,
    ...(kind === 'vllm' ? { token_strs: null } : {}),
  });
}

function detokenize(call: HttpCall): void {
  const { tokens } = call.body;
  if (!Array.isArray(tokens))
    return refuse(call, 400, new SchemaProblem('tokens must be a list of ids', 'body.tokens'));
  const text = decode(tokens as number[]);
  call.json(200, call.core.options.kind === 'vllm' ? { prompt: text } : { text });
}
