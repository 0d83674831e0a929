import type { Tap } from '../real/tap.ts';
import type { Step } from './trainer.ts';

/** A sequence that an engine sampled. */
export interface Sampled {
  /** The name by which the engine knows the weights. */
  readonly model: string;
  readonly prompt: readonly number[];
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
}

/** All that engines sampled for clients, as their own responses have it. */
export function sampledAt(taps: readonly Tap[]): Sampled[] {
  return taps.flatMap((tap) =>
    tap.all('/v1/completions').flatMap(({ asked, answered }) => {
      const { model, prompt } = JSON.parse(asked) as { model: string; prompt: number[] };
      const { choices } = JSON.parse(answered) as {
        choices: { token_ids: number[]; logprobs: { token_logprobs: number[] } }[];
      };
      return choices.map(({ token_ids: tokens, logprobs }) => ({
        model,
        prompt,
        tokens,
        logprobs: logprobs.token_logprobs,
      }));
    }),
  );
}

/** One sequence of a training step. */
export interface Trained {
  /** Prompt and sampled tokens. */
  readonly ids: readonly number[];
  /** Of the sampled tokens, as the trainer got them. */
  readonly sampled: readonly number[];
  /** Of the same tokens, as the trainer's forward pass has them. */
  readonly forward: readonly number[];
}

/** A training step with the checkpoint that was the newest when it began. */
export interface TrainingStep {
  readonly checkpoint: string;
  readonly sequences: readonly Trained[];
}

interface Tensor {
  readonly data: readonly number[];
}

interface Datum {
  readonly model_input: { readonly chunks: readonly { readonly tokens: readonly number[] }[] };
  readonly loss_fn_inputs: Readonly<Record<'target_tokens' | 'logprobs', Tensor>>;
}

/** The training steps in order; the parts of one step are together. */
export function trainingIn(steps: readonly Step[]): TrainingStep[] {
  const found: { checkpoint: string; sequences: Trained[] }[] = [];
  let checkpoint = '';
  let isNew = true;
  for (const { type, asked, result } of steps) {
    if (type === 'save_weights_for_sampler') checkpoint = String(asked['path']);
    if (type === 'optim_step') isNew = true;
    if (type !== 'forward_backward') continue;
    if (isNew) found.push({ checkpoint, sequences: [] });
    isNew = false;
    const outputs = result['loss_fn_outputs'] as { logprobs: Tensor }[];
    for (const [i, datum] of (asked['data'] as Datum[]).entries()) {
      const { target_tokens: targets, logprobs } = datum.loss_fn_inputs;
      const [first = -1] = datum.model_input.chunks.flatMap(({ tokens }) => tokens);
      // tinker-cookbook gives the tokens of the prompt the logprob 0.
      const isSampled = (_: unknown, at: number): boolean => logprobs.data[at] !== 0;
      found.at(-1)!.sequences.push({
        ids: [first, ...targets.data],
        sampled: logprobs.data.filter(isSampled),
        forward: outputs[i]!.logprobs.data.filter(isSampled),
      });
    }
  }
  return found;
}
