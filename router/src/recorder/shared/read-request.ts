import { Asked, type GivenPrompt } from '../../generation/asked.ts';
import type { Dialect } from '../../generation/dialect.ts';
import { truthOf } from '../../kit/truth.ts';

/** What a request asks to be generated, as far as its tokens are concerned. */
export interface GivenRequest {
  readonly asked: Asked;
  readonly prompts: readonly GivenPrompt[];
  /** Samples of each; responses have them prompt by prompt. */
  readonly samples: number;
  /** What its client calls the model, and the adapter: one for each prompt. */
  readonly models: readonly string[];
  readonly addSpecial: boolean;
  readonly isStream: boolean;
}

/** @returns null: a request whose tokens can't be known, or a wrong one, which the engine refuses */
export function readRequest(dialect: Dialect, body: Buffer): GivenRequest | null {
  const asked = Asked.read(dialect, body);
  if (asked === null || truthOf(asked.get('echo')) === true || (asked.get('best_of') ?? 1) !== 1) return null;
  const prompts = asked.prompts();
  const { samples, isStream } = asked;
  if (prompts === null || samples === null) return null;
  const addSpecial = truthOf(asked.get('add_special_tokens')) !== false;
  return { asked, prompts, samples, models: asked.models(prompts.length), addSpecial, isStream };
}

/** Larger requests are read by the thread at once: what waits for a response is in the tree, where prompts share their beginning. */
const MAX_BYTES = 65_536;

/** Whether a request asks for one sample of one prompt of ids: its engine gets it unchanged, so the thread need not read it before. */
export function isPlainRequest(dialect: Dialect, body: Buffer): boolean {
  if (dialect.request.asksForIds !== null || body.length > MAX_BYTES) return false;
  const asked = Asked.read(dialect, body);
  if (asked?.isOneOfIds !== true || asked.hasMedia) return false;
  // A list has parameters for each prompt.
  return !Array.isArray(asked.get(dialect.request.params!)) && asked.param('n') === undefined;
}

/** The request with ids in place of its texts, and a request for ids in its response. @param ids of each prompt */
export function withIds({ asked }: GivenRequest, ids: readonly Int32Array[]): Buffer {
  const edit = asked.edit().replacePrompts(ids.map((list) => `[${list.join(',')}]`));
  return (asked.asksForIds ? edit : edit.set(asked.dialect.request.asksForIds!)).result();
}

/** The request, asking for ids in its response. */
export const askingForIds = ({ asked }: GivenRequest): Buffer =>
  asked.asksForIds ? asked.body : asked.with(asked.dialect.request.asksForIds!);
