import { JsonCursor } from '../../kit/json-cursor.ts';
import { KeyTable } from '../../kit/json-keys.ts';

const QUESTION = new KeyTable([
  'input_ids',
  'sampling_params',
  'model',
  'lora_path',
  'text',
  'image_data',
  'video_data',
  'audio_data',
  'input_embeds',
]);
/** Of these, those that may be an empty list, as clients write that there are none. */
const isMedium = (which: number): boolean => which >= 5 && which <= 7;
const PARAMS = new KeyTable(['n']);

/** One prompt of ids. */
export interface ScannedQuestion {
  /** Good until the next thing is read. */
  readonly ids: Int32Array;
  readonly samples: number;
  /** What its client calls the model, and the adapter. */
  readonly model: string;
}

/**
 * The usual request of SGLang's `/generate`, read in one go. null: it is another kind of request, or not quite as it should be;
 * `read-request.ts` knows them all.
 */
export function scanQuestion(bytes: Buffer): ScannedQuestion | null {
  const json = new JsonCursor(bytes, 0, bytes.length);
  let ids: Int32Array | null = null;
  let samples = 1;
  let model = '';
  let adapter = '';
  json.members(QUESTION, (which) => {
    if (which === 0) ids = json.idsInPlace();
    else if (json.isNull()) return;
    else if (which === 1) {
      json.members(PARAMS, () => {
        samples = json.id();
      });
    } else if (which === 2) model = json.word();
    else if (which === 3) adapter = json.word();
    else if (!isMedium(which) || json.idsInPlace().length > 0) json.hasFailed = true;
  });
  const isWhole = !json.hasFailed && json.isAtEnd && samples > 0;
  if (!isWhole || ids === null || (ids as Int32Array).length === 0) return null;
  return { ids, samples, model: `${model}\n${adapter}`.trim() };
}
