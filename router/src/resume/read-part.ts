import { MemberFinder, scanItems } from '../kit/json-scan.ts';
import type { WrittenSpan } from '../weights/version-spans.ts';
import type { Form } from './request.ts';

/** What an answer, or an event of a stream, says of a generation. Values are read when they are asked for: events may have all so far. */
export interface Part {
  /** Why the generation ended, as its engine words it; '' while it goes on. */
  readonly finish: string;
  /** The stop string that ended it; null: something else did. */
  readonly stop: string | null;
  /** Sampled tokens so far; -1: not known. */
  readonly count: number;
  /** The version of the weights, where an event names one; null. */
  readonly version: string | null;
  /** Ids that it has: those that are new, or all so far. Empty if it has none. */
  ids(): number[];
  /** How many ids it has, without reading them. */
  idCount(): number;
  /** null: it has no text, and will have none. */
  text(): string | null;
  /** Bytes of its text, without reading it; -1: it has none. */
  readonly textBytes: number;
  readonly endsInSpace: boolean;
  readonly promptIds: () => readonly number[] | null;
  readonly spans: () => readonly WrittenSpan[];
}

/** The members of an object by name: where their values are. */
class Members {
  readonly #finder: MemberFinder;
  readonly #names: readonly string[];

  constructor(names: readonly string[]) {
    this.#names = names;
    this.#finder = new MemberFinder(names);
  }

  /** @returns null: there is no object */
  of(bytes: Buffer, start: number, end: number): Found | null {
    const spans = new Int32Array(2 * this.#names.length);
    return this.#finder.find(bytes, start, end, spans) < 0 ? null : new Found(bytes, this.#names, spans);
  }
}

class Found {
  readonly #bytes: Buffer;
  readonly #names: readonly string[];
  readonly #spans: Int32Array;

  constructor(bytes: Buffer, names: readonly string[], spans: Int32Array) {
    this.#bytes = bytes;
    this.#names = names;
    this.#spans = spans;
  }

  /** null: there is no such member, or it is null */
  place(name: string): readonly [number, number] | null {
    const i = this.#names.indexOf(name);
    const start = this.#spans[2 * i]!;
    return start < 0 || this.#bytes[start] === N ? null : [start, this.#spans[2 * i + 1]!];
  }

  byte(at: number): number | undefined {
    return this.#bytes[at];
  }

  value(name: string): unknown {
    const place = this.place(name);
    return place === null ? null : (JSON.parse(this.#bytes.toString('utf8', ...place)) as unknown);
  }

  items(name: string): number {
    const place = this.place(name);
    if (place === null) return 0;
    const [start, end] = place;
    let count = 0;
    for (let at = this.#bytes.indexOf(COMMA, start); at >= 0 && at < end; at = this.#bytes.indexOf(COMMA, at + 1))
      count++;
    return count > 0 || this.#bytes.subarray(start + 1, end - 1).some((byte) => byte > SPACE) ? count + 1 : 0;
  }
}

const generateMembers = new Members(['text', 'output_ids', 'meta_info', 'error']);
const infoMembers = new Members(['finish_reason', 'completion_tokens', 'weight_version', 'weight_versions']);
const answerMembers = new Members(['choices', 'prompt_token_ids', 'error', 'metadata']);
const choiceMembers = new Members([
  'text',
  'token_ids',
  'finish_reason',
  'stop_reason',
  'matched_stop',
  'prompt_token_ids',
  'weight_versions',
]);
const metadataMembers = new Members(['weight_version', 'weight_versions']);

/**
 * @param start of the JSON object in `bytes`
 * @returns null: it is about no tokens (usage, for example); `error`: the status with which the engine reports that it failed
 */
export function readPart(form: Form, bytes: Buffer, start: number): Part | { readonly error: number } | null {
  return form === 'generate' ? readGenerate(bytes, start) : readChoice(bytes, start);
}

function readGenerate(bytes: Buffer, start: number): ReturnType<typeof readPart> {
  const found = generateMembers.of(bytes, start, bytes.length);
  if (found === null) return null;
  if (found.place('error') !== null) return errorOf(found);
  const info = infoMembers.of(bytes, found.place('meta_info')?.[0] ?? bytes.length, bytes.length);
  if (info === null) return null;
  const reason = info.value('finish_reason') as { readonly type?: string; readonly matched?: unknown } | null;
  const version = info.value('weight_version');
  return {
    finish: reason?.type ?? '',
    stop: typeof reason?.matched === 'string' ? reason.matched : null,
    count: (info.value('completion_tokens') as number | null) ?? -1,
    version: versionOf(version),
    ...textOf(found),
    ids: () => (found.value('output_ids') ?? []) as number[],
    idCount: () => found.items('output_ids'),
    promptIds: () => null,
    spans: () => (info.value('weight_versions') ?? []) as WrittenSpan[],
  };
}

function readChoice(bytes: Buffer, start: number): ReturnType<typeof readPart> {
  const answer = answerMembers.of(bytes, start, bytes.length);
  if (answer === null) return null;
  if (answer.place('error') !== null) return errorOf(answer);
  const choices = answer.place('choices');
  let at = -1;
  if (choices !== null) scanItems(bytes, ...choices, (from) => ((at = from), false));
  const choice = at < 0 ? null : choiceMembers.of(bytes, at, bytes.length);
  if (choice === null) return null;
  const stop = choice.value('stop_reason') ?? choice.value('matched_stop');
  const metadata = metadataMembers.of(bytes, answer.place('metadata')?.[0] ?? bytes.length, bytes.length);
  const version = metadata?.value('weight_version') ?? null;
  return {
    finish: (choice.value('finish_reason') as string | null) ?? '',
    stop: typeof stop === 'string' ? stop : null,
    count: -1,
    version: versionOf(version),
    ...textOf(choice),
    ids: () => (choice.value('token_ids') ?? []) as number[],
    idCount: () => choice.items('token_ids'),
    promptIds: () => (choice.value('prompt_token_ids') ?? answer.value('prompt_token_ids')) as number[] | null,
    spans: () => (choice.value('weight_versions') ?? metadata?.value('weight_versions') ?? []) as WrittenSpan[],
  };
}

const versionOf = (value: unknown): string | null =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : null;

function errorOf(found: Found): { readonly error: number } {
  const { code } = (found.value('error') ?? {}) as { readonly code?: unknown };
  return { error: typeof code === 'number' ? code : 0 };
}

function textOf(found: Found): Pick<Part, 'text' | 'textBytes' | 'endsInSpace'> {
  const place = found.place('text');
  return {
    text: () => found.value('text') as string | null,
    textBytes: place === null ? -1 : place[1] - place[0] - 2,
    endsInSpace: place !== null && found.byte(place[1] - 2) === SPACE,
  };
}

const SPACE = 0x20;
const COMMA = 0x2c;
/** The first byte of `null`. */
const N = 0x6e;
