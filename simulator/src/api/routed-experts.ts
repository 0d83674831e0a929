/** Routed experts as engines write them: a row for each token but the last, with all layers. */

import type { Core } from '../model/core.ts';
import { expertsOf } from '../model/experts.ts';
import type { Sequence } from '../model/sequence.ts';
import { promptViews } from './prompt-scores.ts';

/** The value of `routed_experts` from row `start` on; null if the model has no experts. */
export function routedExperts(core: Core, sequence: Sequence, start: number): string | null {
  const { options } = core;
  if (options.experts === 0) return null;
  const prompt = Array.from(promptViews(core, sequence, 0), ([, view]) => view);
  // The row of input position r is that of the forward which made token r + 1.
  const rows = [...prompt.slice(1), ...sequence.views].map((view) => expertsOf(view, options));
  // SGLang's decode engines return whatever their memory has for the prompt.
  if (options.disaggregationMode === 'decode') for (const row of rows.slice(0, prompt.length)) row.fill(0);
  const kept = rows.slice(start);
  const numbers = kept.flat();
  const shape = [kept.length, options.layers, options.expertsPerToken];
  if (options.kind === 'sglang') return Buffer.from(Int32Array.from(numbers).buffer).toString('base64');
  return npy(numbers, shape, options.experts > 256).toString('base64');
}

/** NEP 1, version 1.0: the header ends at a multiple of 64 bytes. vLLM takes the smallest type that holds all experts. */
function npy(numbers: readonly number[], shape: readonly number[], isWide: boolean): Buffer {
  const descr = isWide ? '<u2' : '|u1';
  const header = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape.join(', ')}), }`;
  const padded = `${header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11)}\n`;
  const length = Buffer.alloc(2);
  length.writeUInt16LE(padded.length);
  const data = isWide ? Uint16Array.from(numbers) : Uint8Array.from(numbers);
  return Buffer.concat([
    Buffer.from('\x93NUMPY\x01\x00', 'latin1'),
    length,
    Buffer.from(padded, 'latin1'),
    Buffer.from(data.buffer),
  ]);
}
