import { hideIds } from '../engines/dialects/asking.ts';
import { type ChoiceDelta, type ChoicesAnswer, readChoices } from '../engines/dialects/choices.ts';
import { dataOf } from '../kit/sse.ts';
import { type AnswerPlan, Choice, logprobsOf } from './choice.ts';
import { type RawObject, membersOf, toJson, writeList, writeObject } from './raw-json.ts';
import { type PerfMetrics, countsOf } from './whole-answer.ts';

/** Changes the events of an engine's stream: each has all that its tokens need. */
export class StreamEvents {
  readonly #plan: AnswerPlan;
  /** By their index, as it is written. */
  readonly #choices = new Map<string, Choice>();
  #promptIds: readonly number[] = [];
  #hasPerf = false;
  /** The chunk with the end of a choice: the last one gets `usage`, which engines send after it. */
  #held: RawObject | null = null;

  constructor(plan: AnswerPlan) {
    this.#plan = plan;
  }

  /** @param perf what the router knows now; null: it is not wanted */
  event(event: Buffer, perf: () => PerfMetrics | null): Buffer {
    const [start, end] = dataOf(event);
    if (start < 0) return event;
    if (event.toString('latin1', start, end).trim() === '[DONE]') return this.#afterHeld(this.#withPerf(event, perf()));
    const answer = readChoices(event, start);
    if (answer === null || !answer.hasChoices) return event;
    this.#promptIds = answer.promptIds() ?? this.#promptIds;
    const { fields } = this.#plan;
    const { deltas } = answer;
    const top = membersOf(answer.json);
    if (deltas.length > 0) top.set('choices', writeList(deltas.map((delta) => this.#choice(delta, answer))));
    if (!fields.returnTokenIds) hideIds(top);
    const usage = answer.json.get('usage');
    if (deltas.length === 0 && usage !== null) {
      const known = perf();
      const last = this.#held ?? top;
      if (this.#held !== null) last.set('usage', usage.raw());
      else if (known !== null && !fields.includesUsage) last.delete('usage');
      if (known !== null) last.set('perf_metrics', toJson({ ...countsOf(usage), ...known }));
      this.#hasPerf ||= known !== null;
      this.#held = null;
      return eventOf(last);
    }
    if (!fields.hasUsageInLast || !deltas.some(isEnd)) return this.#afterHeld(eventOf(top));
    const before = this.#afterHeld(NOTHING);
    this.#held = top;
    return before;
  }

  #afterHeld(event: Buffer): Buffer {
    const held = this.#held;
    this.#held = null;
    return held === null ? event : Buffer.concat([eventOf(held), event]);
  }

  #choice(delta: ChoiceDelta, answer: ChoicesAnswer): Buffer {
    const { fields } = this.#plan;
    const members = membersOf(delta.json);
    const key = members.get('index')?.toString() ?? '0';
    const choice = this.#choices.get(key) ?? new Choice(this.#plan);
    this.#choices.set(key, choice);
    const part = choice.add(delta, answer, this.#promptIds);
    if (part.content !== null) members.set('logprobs', logprobsOf(delta.json.get('logprobs'), part, fields));
    if (fields.rawOutput && isEnd(delta)) members.set('raw_output', choice.rawOutput());
    if (!fields.returnTokenIds) hideIds(members);
    return writeObject(members);
  }

  /** Engines that report no usage have no event for it. */
  #withPerf(done: Buffer, perf: PerfMetrics | null): Buffer {
    if (perf === null || this.#hasPerf) return done;
    const members: RawObject = new Map([
      ['choices', writeList([])],
      ['perf_metrics', toJson(perf)],
    ]);
    return Buffer.concat([eventOf(members), done]);
  }
}

/** A reason without text ends a choice too. */
const isEnd = ({ json }: ChoiceDelta): boolean => json.get('finish_reason') !== null;

const NOTHING = Buffer.alloc(0);

const eventOf = (top: RawObject): Buffer =>
  Buffer.concat([Buffer.from('data: '), writeObject(top), Buffer.from('\n\n')]);
