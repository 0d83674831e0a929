/** SGLang 0.5.23's own `POST /generate`. */

import { randomUUID } from 'node:crypto';
import type { HttpCall } from './http-call.ts';
import {
  Problem,
  SchemaProblem,
  readPrompts,
  readSampling,
  type Fields,
  type SamplingRequest,
} from './read-request.ts';
import { rankProblem, refuse, unknownAdapter } from './refusal.ts';
import { routedExperts } from './routed-experts.ts';
import { Sequence } from '../model/sequence.ts';
import { metaInfo, wasWaiting, type MetaInfoOptions } from './sglang-meta.ts';
import { StreamOut } from './stream-out.ts';
import { WholeOut } from './whole-out.ts';

const names = { maxTokens: ['max_new_tokens'], minTokens: 'min_new_tokens', seed: 'sampling_seed' };
const defaultMaxTokens = 128;

export function generate(call: HttpCall): void {
  const { given: body, core } = call;
  if (body instanceof SchemaProblem) return refuse(call, 400, body);
  const request = rankProblem(call) ?? read(call, body);
  if (request instanceof Problem) return refuseGeneration(call, request, body.stream === true);
  const { sequences, isList, show } = request;
  const job = { id: request.id, sequences };
  call.tie(job);
  const isWanted = body.return_routed_experts === true && core.options.experts > 0;
  const firstRow = typeof body.routed_experts_start_len === 'number' ? body.routed_experts_start_len : 0;
  const experts = (sequence: Sequence): object =>
    isWanted && sequence.finish !== null ? { routed_experts: routedExperts(core, sequence, firstRow) } : {};
  const answerOf = (sequence: Sequence, from: number, textStart: number): object => ({
    text: sequence.text().slice(textStart),
    output_ids: sequence.output.slice(from),
    meta_info: { ...metaInfo(core, sequence, show, from), ...experts(sequence) },
  });

  if (body.stream === true) {
    const isIncremental = core.options.incrementalStreamingOutput;
    const out = new StreamOut(
      call.openStream(),
      sequences,
      ({ sequence, index, from, textStart }) => {
        // Then all text and logprobs, and the last id, come in an incremental stream too.
        const isQueueAbort = wasWaiting(sequence);
        const isWhole = isQueueAbort || !isIncremental;
        const answer = answerOf(sequence, isWhole ? 0 : from, isWhole ? 0 : textStart);
        const ids = isQueueAbort && isIncremental ? { output_ids: sequence.output.slice(-1) } : {};
        return [{ ...answer, ...ids, ...(isList ? { index } : {}) }];
      },
      () => [],
    );
    core.start(job, out);
    return;
  }
  const out = new WholeOut(sequences.length, () => {
    const answers = sequences.map((sequence) => answerOf(sequence, 0, 0));
    call.json(200, isList ? answers : answers[0]);
  });
  core.start(job, out);
}

/** The fields of sampling_params are checked separately, with other messages. */
class ContractProblem extends Problem {}

/** A stream has begun before the request as a whole is checked. */
function refuseGeneration(call: HttpCall, problem: Problem, isStream: boolean): void {
  const { message } = problem;
  if (problem instanceof SchemaProblem) return refuse(call, 400, problem);
  if (problem instanceof ContractProblem) return call.json(400, { error: message });
  if (!isStream) return call.json(400, { error: { message } });
  const stream = call.openStream();
  stream.event({ error: { message, type: 'invalid_request_error', code: 400, retryable: false } });
  stream.done();
}

interface GenerateRequest {
  id: string;
  sequences: Sequence[];
  isList: boolean;
  show: MetaInfoOptions;
}

function read(call: HttpCall, body: Fields): GenerateRequest | Problem {
  const hasText = body.text !== undefined && body.text !== null;
  const hasIds = body.input_ids !== undefined && body.input_ids !== null;
  if (hasText === hasIds) return new Problem('Either text, input_ids or input_embeds should be provided.');
  const read = hasText ? readPrompts(body.text, 'text', ['text']) : readPrompts(body.input_ids, 'input_ids', ['ids']);
  if (read instanceof Problem) return read;
  const { prompts, isBatch } = read;

  const samplings: SamplingRequest[] = [];
  for (let i = 0; i < prompts.length; i += 1) {
    const given = Array.isArray(body.sampling_params) ? (body.sampling_params as unknown[])[i] : body.sampling_params;
    if (given !== undefined && given !== null && typeof given !== 'object') {
      return new SchemaProblem('sampling_params must be an object', 'body.sampling_params');
    }
    const sampling = readSampling((given ?? {}) as Fields, names, call.core.nextUnseeded());
    if (sampling instanceof SchemaProblem) return new ContractProblem(sampling.message);
    if (sampling instanceof Problem) return sampling;
    samplings.push(sampling);
  }

  const id = typeof body.rid === 'string' ? body.rid : randomId();
  const samplesPerPrompt = samplings[0]!.samples;
  const isList = isBatch || samplesPerPrompt > 1;
  const sequences: Sequence[] = [];
  for (const [p, prompt] of prompts.entries()) {
    const { maxTokens = defaultMaxTokens, sample } = samplings[p]!;
    const lora = textOf(Array.isArray(body.lora_path) ? body.lora_path[p] : body.lora_path);
    const adapter = lora === '' ? null : call.core.adapterSampler(lora);
    if (lora !== '' && adapter === null) return unknownAdapter(lora);
    const namespace = `${textOf(body.cache_salt)}\n${textOf(body.extra_key)}\n${lora}`;
    const limit = call.core.scheduler.maxSequenceTokens;
    if (maxTokens < 0) return new Problem('max_new_tokens must be at least 0');
    if (prompt.length + maxTokens > limit) {
      return new Problem(
        `Requested token count exceeds the model's maximum context length of ${limit} tokens. ` +
          `You requested a total of ${prompt.length + maxTokens} tokens: ${prompt.length} tokens from the input ` +
          `messages and ${maxTokens} tokens for the completion.`,
      );
    }
    for (let s = 0; s < samplesPerPrompt; s += 1) {
      const rids = body.rid as readonly unknown[] | string | undefined;
      const rid = Array.isArray(rids) ? rids[sequences.length] : undefined;
      const sequenceId = typeof rid === 'string' ? rid : isList ? randomId() : id;
      const sequence = new Sequence(sequenceId, prompt, sample(s, maxTokens), namespace);
      sequence.sampler = adapter;
      sequence.adapter = lora;
      sequences.push(sequence);
    }
  }
  return {
    id,
    sequences,
    isList,
    show: {
      logprobs: body.return_logprob === true,
      startLen: typeof body.logprob_start_len === 'number' ? body.logprob_start_len : -1,
      top: typeof body.top_logprobs_num === 'number' ? body.top_logprobs_num : 0,
      text: body.return_text_in_logprobs === true,
    },
  };
}

function randomId(): string {
  return randomUUID().replaceAll('-', '');
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
