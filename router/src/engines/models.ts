import { MemberFinder, readString, scanItems } from '../kit/json-scan.ts';
import type { Asker } from './ask.ts';

const listFinder = new MemberFinder(['data']);
const modelFinder = new MemberFinder(['id']);
const span = new Int32Array(2);

/** What an engine lists under /v1/models, adapters too: the JSON of each as it wrote it, by name. null: it lists nothing. */
export async function readModels(ask: Asker): Promise<Map<string, string> | null> {
  const reply = await ask('/v1/models').catch(() => null);
  if (reply?.status !== 200) return null;
  const bytes = Buffer.from(reply.text);
  if (listFinder.find(bytes, 0, bytes.length, span) < 0 || span[0]! < 0) return null;
  const models = new Map<string, string>();
  scanItems(bytes, span[0]!, span[1]!, (start, end) => {
    if (modelFinder.find(bytes, start, end, span) < 0 || span[0]! < 0) return;
    const id = readString(bytes, span[0]!, span[1]!);
    if (id !== null && id !== '') models.set(id, bytes.toString('utf8', start, end));
  });
  return models.size === 0 ? null : models;
}
