import * as z from 'zod';

/** A port, or nothing, or no word of it. */
const bootstrapPort = z.int().min(1).max(65_535).nullish();
const apiKey = z
  .string()
  .regex(/^[\x21-\x7e]+$/, 'a key is made of visible ASCII characters, without spaces')
  .nullish();
const known = {
  worker_type: z.enum(['regular', 'prefill', 'decode']).nullish(),
  model_id: z.string().nullish(),
  priority: z.int().min(0).nullish(),
  cost: z.number().min(0).nullish(),
  bootstrap_port: bootstrapPort,
  // For this worker, in place of --worker-api-key. Never shown again, so not among the labels.
  api_key: apiKey,
};

/** `POST /workers`, as today's SGLang gateway takes it. Fields that have no effect here are kept and shown again. */
export const newWorker = z.looseObject({
  ...known,
  url: z.string().min(1),
  labels: z.record(z.string(), z.string()).nullish(),
});

/** `PUT` and `PATCH /workers/{id}`: what is not named stays; a label of null is taken away. */
export const changedWorker = z.looseObject({
  ...known,
  url: z.string().nullish(),
  labels: z.record(z.string(), z.string().nullable()).nullish(),
});

/** The labels that fields come to, over those that were there. */
export function labelsFrom(
  fields: Readonly<Record<string, unknown>>,
  labels: Readonly<Record<string, string | null>>,
  before: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  // Without a prototype: the names in it are the caller's.
  const all = Object.create(null) as Record<string, string>;
  Object.assign(all, before);
  const change = (key: string, value: unknown): void => {
    if (value === null) delete all[key];
    else if (value !== undefined) all[key] = typeof value === 'string' ? value : JSON.stringify(value);
  };
  for (const [key, value] of Object.entries(fields)) change(key, value);
  for (const [key, value] of Object.entries(labels)) change(key, value);
  return all;
}
