import { dataOf } from '../kit/sse.ts';
import { type AnswerPlan, contentOf, finished, lengthOf, rawOutputOf } from './choice.ts';
import { chatEntries, listedEntries } from './entries.ts';
import {
  type RawObject,
  isNull,
  readIds,
  readList,
  readObject,
  readText,
  toJson,
  writeList,
  writeObject,
} from './raw-json.ts';
import { NotReturned } from './routing-rows.ts';
import { type PerfMetrics, countsOf } from './whole-answer.ts';

/** A choice of a stream, as far as it has come. */
interface Growing {
  promptIds: readonly number[];
  readonly ids: number[];
  readonly content: RawObject[];
  text: string;
  /** The texts of its tokens; null: of one it is not known. */
  tokensText: string | null;
  /** Parsers took something out of the content. */
  isParsed: boolean;
}

/** Changes the events of an engine's stream: each has all that its tokens need. */
export class StreamEvents {
  readonly #plan: AnswerPlan;
  readonly #choices = new Map<string, Growing>();
  #promptIds: readonly number[] = [];
  #hasPerf = false;
  /** The present event has the end of a choice. */
  #hasEnded = false;
  /** The chunk with the end of a choice: the last one gets `usage`, which engines send after it. */
  #held: RawObject | null = null;

  constructor(plan: AnswerPlan) {
    this.#plan = plan;
  }

  /** @param perf what the router knows now; null: it is not wanted */
  event(event: Buffer, perf: () => PerfMetrics | null): Buffer {
    const [start, end] = dataOf(event);
    if (start < 0) return event;
    const data = event.subarray(start, end);
    if (data.toString('latin1').trim() === '[DONE]') return this.#afterHeld(this.#withPerf(event, perf()));
    const top = readObject(data);
    const choices = readList(top?.get('choices'));
    if (top === null || choices === null) return event;
    this.#promptIds = readIds(top.get('prompt_token_ids')) ?? this.#promptIds;
    const { fields } = this.#plan;
    this.#hasEnded = false;
    if (choices.length > 0) top.set('choices', writeList(choices.map((json) => this.#choice(json))));
    if (!fields.returnTokenIds) top.delete('prompt_token_ids');
    const usage = top.get('usage');
    if (choices.length === 0 && !isNull(usage)) {
      const known = perf();
      const last = this.#held;
      if (last !== null) {
        this.#held = null;
        last.set('usage', usage!);
        if (known === null) return eventOf(last);
        this.#hasPerf = true;
        return eventOf(last.set('perf_metrics', toJson({ ...countsOf(usage), ...known })));
      }
      if (known !== null) {
        this.#hasPerf = true;
        top.set('perf_metrics', toJson({ ...countsOf(usage), ...known }));
        if (!fields.includesUsage) top.delete('usage');
      }
    }
    if (!fields.hasUsageInLast || !this.#hasEnded) return this.#afterHeld(eventOf(top));
    const before = this.#afterHeld(NOTHING);
    this.#held = top;
    return before;
  }

  #afterHeld(event: Buffer): Buffer {
    const held = this.#held;
    this.#held = null;
    return held === null ? event : Buffer.concat([eventOf(held), event]);
  }

  #choice(json: Buffer): Buffer {
    const { fields } = this.#plan;
    const members = readObject(json)!;
    const key = members.get('index')?.toString() ?? '0';
    const choice: Growing = this.#choices.get(key) ?? {
      promptIds: [],
      ids: [],
      content: [],
      text: '',
      tokensText: '',
      isParsed: false,
    };
    this.#choices.set(key, choice);
    choice.promptIds = readIds(members.get('prompt_token_ids')) ?? choice.promptIds;
    if (choice.promptIds.length === 0) choice.promptIds = this.#promptIds;
    const delta = readObject(members.get('delta') ?? members.get('text')!);
    choice.text += readText(delta === null ? members.get('text') : delta.get('content')) ?? '';
    choice.isParsed ||= ['tool_calls', 'reasoning_content', 'reasoning'].some((name) => !isNull(delta?.get(name)));
    this.#tokens(members, choice);
    this.#hasEnded ||= !isNull(members.get('finish_reason'));
    if (fields.rawOutput && !isNull(members.get('finish_reason'))) {
      const completion = choice.isParsed && choice.tokensText !== null ? choice.tokensText : choice.text;
      const content = fields.hasContent ? choice.content : null;
      members.set('raw_output', rawOutputOf(completion, choice.promptIds, choice.ids, fields, content));
    }
    if (!fields.returnTokenIds) {
      members.delete('token_ids');
      members.delete('prompt_token_ids');
    }
    return writeObject(members);
  }

  #tokens(members: RawObject, choice: Growing): void {
    const { fields } = this.#plan;
    const ids = readIds(members.get('token_ids')) ?? [];
    const logprobs = readObject(members.get('logprobs') ?? members.get('index')!);
    const entries = chatEntries(logprobs) ?? listedEntries(logprobs, fields.topLogprobs);
    const first = choice.promptIds.length + choice.ids.length;
    choice.ids.push(...ids);
    if (!fields.hasContent || entries === null || entries.length === 0) return;
    if (entries.length !== ids.length) {
      throw new NotReturned(`The engine returned ${entries.length} logprobs for ${ids.length} tokens.`);
    }
    const factsOf = (i: number) => ({ position: first + i, isSampled: true, matrix: null, alternatives: null });
    const made = finished(entries, ids, this.#plan, factsOf, lengthOf(choice.tokensText));
    for (const { text } of entries)
      choice.tokensText = text === null || choice.tokensText === null ? null : choice.tokensText + text;
    if (fields.rawOutput) choice.content.push(...made);
    const { lists } = { lists: fields.hasLists ? [...(logprobs ?? [])] : [] };
    members.set('logprobs', writeObject([...lists, ...readObject(contentOf(made))!]));
  }

  /** Engines that report no usage have no event for it. */
  #withPerf(done: Buffer, perf: PerfMetrics | null): Buffer {
    if (perf === null || this.#hasPerf) return done;
    return Buffer.concat([
      eventOf(
        new Map([
          ['choices', writeList([])],
          ['perf_metrics', toJson(perf)],
        ]),
      ),
      done,
    ]);
  }
}

const NOTHING = Buffer.alloc(0);

const eventOf = (top: RawObject): Buffer =>
  Buffer.concat([Buffer.from('data: '), writeObject(top), Buffer.from('\n\n')]);
