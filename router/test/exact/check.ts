import type { Call, Generated, Journal, Row, RowTurn } from './journal.ts';
import { causeOf, continuesBroken } from './causes.ts';
import { shown, tokensOf } from './hard-text.ts';
import { type Part, partsOf } from './parts.ts';

/** A turn of an export and what it says of its tokens, from whichever row. */
interface Told {
  readonly turn: RowTurn;
  readonly row: Row;
  readonly part: Part;
  generated: Generated | null;
}

const SHOWN = 20;
/** What follows the text of the last message in the JSON of a chat. */
const END_OF_TEXT = '"}]';

/** Compares an export with what engines did. @returns what is wrong, in words */
export function problemsOf(journal: Journal, rows: readonly Row[]): string[] {
  const problems: string[] = [];
  // Clients ask again: what no killed engine or router explains would go unnoticed.
  const hasKills = journal.routerDeaths.length > 0 || journal.generated.some(({ isTorn }) => isTorn);
  for (const { name, ending } of journal.calls.values())
    if (!hasKills && (ending === 'refused' || ending === 'broken')) problems.push(`${name}: its response is ${ending}`);
  const bySession = Map.groupBy(journal.generated, ({ call }) => journal.calls.get(call)!.session);
  // Without a session's name a trajectory has one of its own.
  const rowsBySession = Map.groupBy(rows, ({ session }) => (bySession.has(session) ? session : ''));
  const hasUnnamed = bySession.has('');
  if (!hasUnnamed)
    for (const { session } of rowsBySession.get('') ?? []) problems.push(`nobody has the session ${session}`);
  for (const [session, calls] of Map.groupBy(journal.calls.values(), (call) => call.session)) {
    const check = new SessionCheck(journal, calls, bySession.get(session) ?? [], rowsBySession.get(session) ?? []);
    problems.push(...check.problems());
  }
  if (problems.length <= SHOWN) return problems;
  return [...problems.slice(0, SHOWN), `and ${problems.length - SHOWN} more`];
}

/** Its client did not get the end of the answer. */
const isCut = ({ finish }: Call): boolean => finish === '';

/** Nor what comes after the finish reason. */
const isOpen = (call: Call): boolean => isCut(call) || call.ending === 'raced' || call.ending === 'left';

/** Of a stream whose end did not come its client has the beginning of this answer to the same messages. */
const isPartOf = (stream: Call | null, answer: Call | undefined): boolean =>
  stream !== null && isOpen(stream) && answer?.text.startsWith(stream.text.slice(0, -END_OF_TEXT.length)) === true;

/** The rows of a session; those of all clients that named none are one. */
class SessionCheck {
  readonly #journal: Journal;
  readonly #generated: readonly Generated[];
  readonly #rows: readonly Row[];
  readonly #calls: readonly Call[];
  readonly #told = new Map<string, Told>();
  readonly #problems: string[] = [];

  constructor(journal: Journal, calls: readonly Call[], generated: readonly Generated[], rows: readonly Row[]) {
    this.#journal = journal;
    this.#calls = calls;
    this.#generated = generated;
    this.#rows = rows;
  }

  problems(): readonly string[] {
    for (const row of this.#rows) this.#read(row);
    this.#match();
    this.#findMissing();
    for (const row of this.#rows) this.#compare(row);
    this.#findRepeated();
    return this.#problems;
  }

  #says(row: Row, problem: string): void {
    this.#problems.push(`session ${row.session}, row ${row.id}: ${problem}`);
  }

  #callOf({ call }: Generated): Call {
    return this.#journal.calls.get(call)!;
  }

  #read(row: Row): void {
    const { tokens, loss_mask: mask, rollout_log_probs: logprobs } = row;
    if (mask.length !== tokens.length || logprobs.length !== tokens.length)
      this.#says(row, `${tokens.length} tokens, ${mask.length} in the mask, ${logprobs.length} logprobs`);
    const last = row.turns.at(-1)!;
    if (last.id !== row.id || last.keeps + last.tokens !== tokens.length)
      this.#says(row, 'does not end where its last turn does');
    for (const part of partsOf(row)) {
      const { turn } = part;
      if (turn.parent !== (row.turns[turn.index - 1]?.id ?? null) || row.turns[turn.index] !== turn)
        this.#says(row, `turn ${turn.id} is out of order`);
      const known = this.#told.get(turn.id);
      // The row that has most of it tells most of it.
      if (known === undefined || part.to - part.from > known.part.to - known.part.from)
        this.#told.set(turn.id, { turn, row, part, generated: known?.generated ?? null });
    }
  }

  /** Finds what an engine did for each turn: no generation is that of two turns. */
  #match(): void {
    const left = new Set(this.#generated);
    const waiting = Array.from(this.#told.values(), (told) => {
      return { told, candidates: this.#generated.filter((one) => this.#isOf(told, one)) };
    });
    waiting.sort((a, b) => a.candidates.length - b.candidates.length);
    for (const { told, candidates } of waiting) {
      const free = candidates.filter((one) => left.has(one));
      // What broke off may be the beginning of what did not.
      const isEnded = ({ finish }: Generated): boolean => finish === told.turn.finish_reason;
      told.generated = free.find(isEnded) ?? free[0] ?? null;
      if (told.generated !== null) left.delete(told.generated);
      else if (candidates.length > 0) this.#says(told.row, `turn ${told.turn.id} is there twice`);
      else this.#says(told.row, `turn ${told.turn.id} is of no generation: ${this.#nearest(told)}`);
    }
  }

  #isOf({ turn, row, part }: Told, { inputIds, outputIds, logprobs, engineUrl }: Generated): boolean {
    const { from, to } = part;
    return (
      turn.worker === engineUrl &&
      inputIds.length === from &&
      turn.sampled.length <= outputIds.length &&
      turn.sampled.every((id, i) => id === outputIds[i]) &&
      inputIds.every((id, i) => id === row.tokens[i]) &&
      row.rollout_log_probs.slice(from, to).every((logprob, i) => logprob === null || logprob === logprobs[i])
    );
  }

  /** For the report: what a turn that fits nowhere is closest to. */
  #nearest({ turn, row, part: { from, to } }: Told): string {
    const near = this.#generated.find(
      ({ inputIds }) => inputIds.length === from && inputIds.every((id, i) => id === row.tokens[i]),
    );
    if (near === undefined) return `no engine read its ${from} tokens in this session`;
    const { outputIds, logprobs, call, engineUrl } = near;
    const at = turn.sampled.findIndex((id, i) => id !== outputIds[i]);
    if (at >= 0) return `${call} sampled ${outputIds[at]} at ${at}, not ${turn.sampled[at]}`;
    const off = row.rollout_log_probs.slice(from, to).findIndex((one, i) => one !== null && one !== logprobs[i]);
    if (off >= 0)
      return `the logprob at ${off} of ${call} is ${logprobs[off]}, not ${row.rollout_log_probs[from + off]}`;
    return `${call} ran at ${engineUrl}, not ${turn.worker}`;
  }

  /** What a client got of a turn is there, once. */
  #findMissing(): void {
    const found = new Map(Array.from(this.#told.values(), (told) => [told.generated, told]));
    for (const [name, own] of Map.groupBy(this.#generated, ({ call }) => call)) {
      const call = this.#journal.calls.get(name)!;
      if (call.got === 0) continue;
      const kept = own.filter((one) => found.has(one));
      const countOf = (one: Generated): number => found.get(one)?.turn.output_tokens ?? 0;
      const most = Math.max(0, ...kept.map(countOf));
      if (most >= call.got || causeOf.loss(this.#journal, call) !== null) continue;
      if (isOpen(call) && own.some((one) => causeOf.cut(call, one, countOf(one)) !== null)) continue;
      const what = most === 0 ? 'is missing' : `has ${most} tokens`;
      this.#problems.push(`session ${call.session}: ${name} ${what}, its client got ${call.got}`);
    }
    for (const { turn, row, generated } of this.#told.values()) {
      if (generated === null) continue;
      const call = this.#callOf(generated);
      const isShort = turn.output_tokens < generated.outputIds.length;
      if (isShort && isOpen(call) && causeOf.cut(call, generated, turn.output_tokens) !== null) continue;
      if (turn.finish_reason === null && causeOf.noEnd(this.#journal, call, generated) !== null) continue;
      const isWhole = !isCut(call) && !generated.isTorn && call.finish === generated.finish;
      if (isWhole && (turn.output_tokens !== generated.outputIds.length || turn.finish_reason !== generated.finish))
        this.#says(row, `${generated.call} ended with ${generated.finish} after ${generated.outputIds.length} tokens`);
    }
  }

  #compare(row: Row): void {
    const parts = partsOf(row);
    const sampled = new Map<number, { part: Part; told: Told }>();
    for (const part of parts) {
      const told = this.#told.get(part.turn.id)!;
      for (let i = part.from; i < part.to; i++) sampled.set(i, { part, told });
    }
    for (const [i, isSampled] of row.loss_mask.entries()) {
      const at = sampled.get(i);
      if ((isSampled === 1) !== (at !== undefined)) this.#says(row, `the mask at ${i} is ${isSampled}`);
      const logprob = row.rollout_log_probs[i]!;
      if (at === undefined && logprob !== 0 && logprob !== null) this.#says(row, `a logprob at ${i}: ${logprob}`);
      const generated = at?.told.generated ?? null;
      if (generated === null) continue;
      const call = this.#callOf(generated);
      const { from } = at!.part;
      if (logprob !== null && logprob !== generated.logprobs[i - from])
        this.#says(row, `the logprob at ${i} is ${logprob}, that of ${call.name} is ${generated.logprobs[i - from]}`);
      if (logprob === null && causeOf.noLogprob(call, generated, i - from) === null)
        this.#says(row, `no logprob at ${i}, token ${i - from} of ${call.name}`);
      const version = row.versions.find((span) => span.from <= i && i < span.to)?.version ?? null;
      const own = generated.versions[i - from]!;
      if (version !== null && version !== own)
        this.#says(row, `version ${version} at ${i}, where ${call.name} was sampled by ${own}`);
      if (version === null && causeOf.noVersion(this.#journal, call, generated) === null)
        this.#says(row, `no version at ${i}, where ${call.name} was sampled by ${own}`);
    }
    const last = this.#told.get(row.id)?.generated ?? null;
    const own = last === null ? [] : [...last.inputIds, ...last.outputIds];
    const off = last === null ? -1 : row.tokens.findIndex((id, i) => id !== own[i]);
    if (off >= 0) this.#says(row, `token ${row.tokens[off]} at ${off}, where ${last!.call} has ${own[off]}`);
    this.#compareLine(row, parts);
  }

  /** Each turn goes on from what its client went on from, and says so where it does not. */
  #compareLine(row: Row, parts: readonly Part[]): void {
    if (row.ambiguous !== row.turns.some(({ ambiguous }) => ambiguous))
      this.#says(row, `is ambiguous: ${row.ambiguous}, unlike its turns`);
    let before: Told | null = null;
    for (const part of parts) {
      const told = this.#told.get(part.turn.id)!;
      const { turn, generated } = told;
      if (generated === null) return;
      const call = this.#callOf(generated);
      const parents = this.#parentsOf(call);
      const from = before?.generated?.call;
      const fitting = new Set([...this.#fitting(call, generated), ...parents]);
      // Where a kill of the router lost the turn, any whose sampled tokens the prompt has is as good.
      const isParentGone = call.parent !== null && this.#isGone(call.parent);
      const isOther = from !== undefined && !(isParentGone ? fitting.has(from) : parents.includes(from));
      // With a part of an answer and no session, it goes on from any call that ended with it. A chat that goes on from a stream of which
      // not all is on record, yet or for a reason, fits every answer that begins with what its client has of that stream.
      const isPart = call.isChat && isPartOf(call.parent, this.#journal.calls.get(from ?? ''));
      // A call that goes on right behind the sampled tokens of another one may have sampled what a client wrote there: if the client wrote
      // all of it, nobody can tell.
      const behind = before?.generated ?? null;
      const isBehind = behind !== null && parents.some((name) => this.#isRightBehind(behind, name));
      const isWritten = isBehind && isAllIn(behind, generated);
      const mayBeOther =
        isWritten || (call.session === '' ? turn.ambiguous || !call.isFull : turn.ambiguous && (isPart || isBehind));
      // Of a truncated answer that ends inside a character its client has U+FFFD, which other answers may have there.
      const isBroken = turn.drift?.kind === 'text' && continuesBroken(call);
      if (isOther && !mayBeOther && !isBroken)
        this.#says(row, `${call.name} is put behind ${from}, its client went on from ${parents.join()}`);
      if (turn.ambiguous && fitting.size < 2)
        this.#says(row, `${call.name} is ambiguous: only ${[...fitting].join()} fits`);
      const isKnown = call.isFull && call.parent !== null && !isParentGone;
      const isGuess = from !== undefined && isKnown && from !== call.parent?.name;
      if (!turn.ambiguous && isGuess && !isBroken && !isWritten)
        this.#says(row, `${call.name} is put behind ${from}, and not said to be ambiguous`);
      const { parent } = call;
      const isApart = !isOther && parent !== null && call.isFull && !this.#goesOn(before, turn, parent);
      if (isApart && turn.drift === null && !this.#isGone(parent))
        this.#says(row, `${call.name} does not go on from ${parents.join()}, and no drift says so`);
      const isUntold = parent !== null && this.#isUntold(parent);
      if (turn.drift !== null && !isUntold && causeOf.drift(call, turn.drift.kind) === null)
        this.#says(row, `${call.name} has a drift (${turn.drift.kind})`);
      before = told;
    }
  }

  /** Whether the prompt of a call is all that another one had and sampled. */
  #isRightBehind({ inputIds }: Generated, name: string): boolean {
    return this.#generated.some(
      (one) => one.call === name && one.inputIds.length + one.outputIds.length === inputIds.length,
    );
  }

  /** Of a stream that broke off the record has less than its client, for a reason, or had when its client went on. */
  #isUntold(call: Call): boolean {
    if (!isOpen(call)) return false;
    const counts = new Map(Array.from(this.#told.values(), ({ generated, turn }) => [generated, turn.output_tokens]));
    // A client that goes on at the finish reason may be ahead of the ids, which complete the record later.
    const countOf = (one: Generated): number => (call.ending === 'raced' ? Infinity : (counts.get(one) ?? 0));
    return this.#generated.some((one) => one.call === call.name && causeOf.cut(call, one, countOf(one)) !== null);
  }

  /** Nothing of it is on record, for a reason. */
  #isGone(call: Call): boolean {
    if ([...this.#told.values()].some(({ generated }) => generated?.call === call.name)) return false;
    return this.#isUntold(call) || causeOf.loss(this.#journal, call) !== null;
  }

  /**
   * All that its client got of the turn before is in the row, but for a token that stopped it. If that is the beginning of another
   * answer, the tokens of that one with the same text are.
   */
  #goesOn(before: Told | null, { keeps }: RowTurn, parent: Call): boolean {
    if (parent.got === 0) return true;
    if (before === null) return false;
    const { generated, turn } = before;
    if (generated === null) return true;
    const start = turn.keeps + turn.tokens - turn.output_tokens;
    const own = this.#callOf(generated);
    if (own === parent || own.text === parent.text || !isPartOf(parent, own))
      return keeps >= start + own.got - (own.finish === 'stop' ? 1 : 0);
    const ids = this.#generated.find(({ call, outputIds }) => call === parent.name && outputIds.length >= parent.got);
    const text = shown(ids?.outputIds.slice(0, parent.got) ?? []);
    return keeps >= start + tokensOf(text, generated.outputIds);
  }

  /**
   * The calls that a call's client may mean: what it sends may be what several of them ended with. With a part of an answer it may
   * go on from any before that.
   */
  #parentsOf({ parent, isFull, sentAt }: Call): string[] {
    const texts = new Set<string>();
    for (let one = parent; one !== null; one = isFull && !this.#isGone(one) ? null : one.parent) texts.add(one.text);
    return this.#calls.filter((one) => texts.has(one.text) && one.sentAt < sentAt).map(({ name }) => name);
  }

  /** The calls of which a prompt has sampled tokens: where there are several, it may be meant to go on from any of them. */
  #fitting({ sentAt }: Call, { inputIds: ids }: Generated): string[] {
    return this.#generated
      .filter(({ call, inputIds, outputIds }) => {
        const from = inputIds.length;
        if (this.#journal.calls.get(call)!.sentAt >= sentAt || outputIds.length === 0) return false;
        if (!inputIds.every((id, i) => id === ids[i])) return false;
        if (outputIds[0] === ids[from]) return true;
        // A chat is compared by its text, of which a client that left early may have got as little as the first token's.
        return (
          isOpen(this.#journal.calls.get(call)!) && shown(ids.slice(from)).startsWith(shown(outputIds.slice(0, 1)))
        );
      })
      .map(({ call }) => call);
  }

  #findRepeated(): void {
    const ends = new Set<string>();
    for (const { id, ...row } of this.#rows) {
      if (ends.has(id)) this.#says({ id, ...row }, 'is there twice');
      ends.add(id);
    }
    for (const row of this.#rows) {
      for (const [i, turn] of row.turns.entries()) {
        const next = row.turns[i + 1];
        const end = turn.keeps + turn.tokens - (turn.finish_reason === 'stop' ? 1 : 0);
        if (next !== undefined && ends.has(turn.id) && next.keeps >= end)
          this.#says(row, `goes on from turn ${turn.id}, which has a row of its own`);
      }
    }
  }
}

/** Whether a prompt begins with all that a call had and sampled, but for what stopped it. */
function isAllIn({ inputIds, outputIds, finish }: Generated, { inputIds: prompt }: Generated): boolean {
  const ids = [...inputIds, ...(finish === 'stop' ? outputIds.slice(0, -1) : outputIds)];
  return ids.every((id, i) => id === prompt[i]);
}
