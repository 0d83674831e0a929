import { scanMembers } from '../../../kit/json-scan.ts';
import { bufferOf } from '../../../kit/bytes.ts';
import { readCall } from '../../../engines/dialects/calls.ts';
import { answerValues } from '../read/read-answer.ts';
import type { Turn } from '../../shared/turn.ts';

/** A call whose tokens are not known, as text. */
export interface CallText {
  /** The members of the request that make the prompt, as the client wrote them: a JSON object. */
  readonly prompt: string;
  /** The response of the model as text. */
  readonly response: string;
}

const PROMPT: ReadonlySet<string> = new Set([
  'instructions',
  'system',
  'tools',
  'input',
  'messages',
  'previous_response_id',
]);

/** null: its tokens are known. */
export function callText({
  isExact,
  path,
  request,
  answer,
}: Pick<Turn, 'isExact' | 'path' | 'request' | 'answer'>): CallText | null {
  if (isExact !== false) return null;
  return { prompt: promptOf(request), response: responseOf(path, answer) };
}

/** Keeps all digits of numbers. */
function promptOf(request: Uint8Array | null): string {
  if (request === null) return '{}';
  const bytes = bufferOf(request);
  const members: string[] = [];
  scanMembers(bytes, 0, bytes.length, (keyStart, keyEnd, valueStart, valueEnd) => {
    const name = bytes.toString('utf8', keyStart, keyEnd);
    if (PROMPT.has(name)) members.push(`"${name}":${bytes.toString('utf8', valueStart, valueEnd)}`);
  });
  return `{${members.join(',')}}`;
}

function responseOf(path: string, answer: Uint8Array | null): string {
  if (answer === null) return '';
  const bytes = bufferOf(answer);
  // A body is one JSON object, a stream is lines.
  const isStream = bytes[bytes.findIndex((byte) => byte > 0x20)] !== 0x7b;
  return readCall(path, answerValues(isStream, bytes)).text;
}
