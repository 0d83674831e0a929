import type { ExpertsFiles } from '../capture/experts-files.ts';
import { keptTensors } from '../read/tensors.ts';
import { filesOf } from '../store/store.ts';
import type { TurnWriter } from '../store/writer.ts';
import type { TokenPieces } from '../tokens/pieces.ts';
import { knownSpans } from '../../../weights/known-versions.ts';
import { readChatAnswer, readEndedChoices } from '../read/read-answer.ts';
import type { ChatSample } from '../read/read-chat.ts';
import type { EndedResponse } from '../captures.ts';
import type { ChatCaptures } from './chat-captures.ts';
import type { OpenChat } from './open-chat.ts';

/** What an answer's turns are made with. */
interface AnswerParts {
  readonly pieces: TokenPieces;
  readonly writer: TurnWriter;
  readonly files: ExpertsFiles | null;
  readonly stats: ChatCaptures['stats'];
}

const isCut = ({ isTorn, finishReason }: ChatSample): boolean => isTorn && finishReason !== null;

/** Makes turns of an answer, or of what came of it: choices that have ended. Throws `Unreadable`. */
export async function keepAnswer(
  { isStream, isLast, facts, expertsKey }: EndedResponse,
  known: OpenChat,
  answer: Buffer,
  { pieces, writer, files, stats }: AnswerParts,
): Promise<void> {
  const { chat, turn, isExact, call, key } = known;
  await chat.removal;
  if (chat.isRemoved) return;
  const tensorsOf = (sample: ChatSample, tokens: number) => keptTensors(files, expertsKey, sample, tokens);
  // At the end all choices are read: what came after their ends belongs to them too.
  const read = isLast
    ? readChatAnswer(isStream, answer, pieces)
    : readEndedChoices(
        known.events.ended(answer, (index) => known.turns.has(index)),
        pieces,
      );
  const samples = read.map((sample) => ({
    ...sample,
    known: knownSpans(sample, isStream, answer, facts.asked.changes),
  }));
  const isSample = ({ isTorn, ids }: ChatSample): boolean => !isTorn || (isLast && ids.length > 0);
  const fresh = samples.filter((sample) => !known.turns.has(sample.index) && isSample(sample));
  // All of its text has come, though perhaps not all ids.
  const isWhole =
    (isLast || known.turns.size + samples.length >= known.choices) && samples.every((sample) => !isCut(sample));
  // Values that were cut out are not in the copy, nor is what other plugins make of a response that they asked for, and a truncated response
  // is not kept: a repeated call is sent to an engine again.
  const callKey = expertsKey === null && isWhole && known.isAsAsked ? key : '';
  const kept = { answer, callKey };
  const made = await chat.answered(turn, isExact, fresh, facts, kept, tensorsOf);
  // In the meantime.
  await chat.removal;
  if (chat.isRemoved) {
    for (const own of made.flatMap(filesOf)) files?.remove(own);
    return;
  }
  if (isLast) {
    for (const sample of samples) {
      const before = known.turns.get(sample.index);
      // It has all of the response: choices that end later are in it too, and a repeated call gets it.
      if (before === undefined || (!sample.isTorn && before.answer!.length === answer.length)) continue;
      const later = tensorsOf(sample, before.promptTokens! + sample.ids.length);
      const indexer = before.indexer ?? later.indexer;
      const tensors = {
        experts: before.experts ?? later.experts,
        ...(indexer === undefined ? {} : { indexer }),
      };
      const whole = await chat.completed(before, turn, isExact, sample, facts, { ...kept, ...tensors });
      writer.put(whole, before);
      writer.expectVersions(whole, facts.asked.ticket);
    }
  }
  for (const [i, one] of made.entries()) {
    const { index, isTorn } = fresh[i]!;
    known.turns.set(index, one);
    writer.put(one);
    writer.expectVersions(one, facts.asked.ticket);
    stats.turns++;
    if (one.drift !== null) stats.drifted++;
    if (!isExact) stats.observed++;
    if (isTorn) stats.torn++;
  }
  const [first] = known.turns.values();
  if (isLast && first !== undefined) chat.repeats.begin(callKey, { ...call, turn: first.id });
}
