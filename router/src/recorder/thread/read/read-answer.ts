import type { ChoicesAnswer } from '../../../engines/dialects/choices.ts';
import type { GenerateDelta } from '../../../engines/dialects/generate.ts';
import type { Dialect } from '../../../generation/dialect.ts';
import { type Answer, Unreadable } from '../../../generation/delta.ts';
import { Json } from '../../../kit/json-members.ts';
import { objectStarts } from '../../../kit/sse.ts';
import type { TokenPieces } from '../tokens/pieces.ts';
import { type EndedChoices, answerAt } from './choice-events.ts';
import { textOf } from './message.ts';
import { type ChatSample, readChat } from './read-chat.ts';
import { readGenerate } from './read-generate.ts';
import type { Sampled } from './sampled.ts';
import { mended } from './truncated-stream.ts';

const LF = 0x0a;
/** The end of a stream. JSON has no line feeds in texts, so it can't occur in an answer. */
const DONE = /(^|\n)data: ?\[DONE\]/;

/** Where the JSON of a response begins; of a stream that of each received event. */
const jsonStarts = (isStream: boolean, bytes: Buffer): number[] => (isStream ? objectStarts(bytes) : [0]);

/** The values of a response, or of the received events of a stream. Throws `Unreadable`. */
export function answerValues(isStream: boolean, bytes: Buffer): object[] {
  return jsonStarts(isStream, bytes).map((start) => {
    const end = isStream ? bytes.indexOf(LF, start) : bytes.length;
    let value: unknown;
    try {
      value = JSON.parse(bytes.toString('utf8', start, end));
    } catch (error) {
      throw new Unreadable((error as Error).message);
    }
    if (typeof value !== 'object' || value === null) throw new Unreadable('it is no object');
    return value;
  });
}

/** The samples in the response of an engine. Throws `Unreadable`. */
export function readAnswer(dialect: Dialect, isStream: boolean, bytes: Buffer): Sampled[] {
  const answers = jsonStarts(isStream, bytes).map((start): Answer | null => {
    const answer = dialect.read(bytes, start);
    // An event of a stream may be of another kind, but not broken.
    if (answer === null && (!isStream || Json.object(bytes, start) === null))
      throw new Unreadable('it is no response of ' + dialect.path);
    return answer;
  });
  if (dialect.name === 'generate') {
    const deltas = answers.flatMap((answer) => (answer?.deltas ?? []) as readonly GenerateDelta[]);
    if (!isStream && deltas.length < samplesIn(bytes)) throw new Unreadable('a sample has no meta_info');
    return readGenerate(deltas, isStream);
  }
  const events = answers.filter((answer) => answer !== null && answer.error === null) as ChoicesAnswer[];
  return samplesOf({ answers: events, others: [] }, dialect);
}

/** The samples of a stream that have ended, while more of it is awaited; not of `/generate`. Throws `Unreadable`. */
export const readEndedSamples = (dialect: Dialect, { answers, others }: EndedChoices): Sampled[] =>
  samplesOf({ answers: answers.filter(({ error }) => error === null), others }, dialect);

function samplesOf({ answers, others }: EndedChoices, dialect: Dialect): Sampled[] {
  if (answers.every(({ deltas }) => deltas.length === 0)) return [];
  return besides(others, (ends) => readChat(answers, ends)).map((one) => sampledOf(one, dialect));
}

function sampledOf(choice: ChatSample, dialect: Dialect): Sampled {
  const { message, promptIds, isTorn: _, logprobs, ...sample } = choice;
  return {
    ...sample,
    text: dialect.request.text === null ? null : Buffer.from(textOf(message.content) ?? ''),
    promptTokens: promptIds?.length ?? null,
    // Not returned if the request does not ask for them.
    logprobs: logprobs?.every(Number.isNaN) === true ? null : logprobs,
  };
}

/** How many samples a whole response of `/generate` has, those that failed too. */
const samplesIn = (bytes: Buffer): number => Json.list(bytes)?.items().length ?? 1;

/** The received events, or the whole response, of a chat. Events about nothing have no choices. Throws `Unreadable`. */
export const chatAnswers = (isStream: boolean, bytes: Buffer): ChoicesAnswer[] =>
  jsonStarts(isStream, bytes).map((start) => answerAt(bytes, start));

/**
 * The sampled tokens of a chat; of a truncated stream those whose ids are known, perhaps none. Throws `Unreadable`.
 * @param isLast false: more of the stream is awaited, and choices that have ended are samples now
 */
export function readChatAnswer(
  isStream: boolean,
  bytes: Buffer,
  pieces: TokenPieces,
  isLast = true,
): readonly ChatSample[] {
  const answers = chatAnswers(isStream, bytes);
  const isWhole = !isStream || (DONE.test(bytes.toString('latin1')) && answers.every(({ error }) => error === null));
  return isWhole ? readChat(answers) : readTruncated({ answers, others: [] }, pieces, !isLast);
}

/** The choices of a stream that have ended, while more of it is awaited. Throws `Unreadable`. */
export const readEndedChoices = (ended: EndedChoices, pieces: TokenPieces): readonly ChatSample[] =>
  readTruncated(ended, pieces, true);

function readTruncated({ answers, others }: EndedChoices, pieces: TokenPieces, mayAssume: boolean): ChatSample[] {
  const { answers: left, ends, finished } = mended(answers, pieces, mayAssume);
  if (left.length === 0 && ends.size === 0) return [];
  const samples = besides(others, (more) => readChat(left, new Map([...ends, ...more])));
  return samples.map((sample) => ({ ...sample, isTorn: !finished.has(sample.index) }));
}

/** What an event says of a single choice is not about one of several, though only one is read. */
function besides(
  others: readonly number[],
  read: (ends: ReadonlyMap<number, string | null>) => readonly ChatSample[],
): readonly ChatSample[] {
  const samples = read(new Map(others.map((index) => [index, 'abort'])));
  return samples.filter(({ index }) => !others.includes(index));
}
