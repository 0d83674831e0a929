import { type Refusal, inLanes, refusalOf } from '../tokens/in-lanes.ts';
import { type TokenizerChoice, loadTokenizer } from '../tokens/load-tokenizer.ts';
import { asNumbers } from '../logprobs.ts';
import type { LearnedVersion } from '../../../weights/version-spans.ts';
import type { Tokenizer } from '../tokens/tokenizer.ts';
import { defaultMemoryBytes } from '../../shared/memory-limit.ts';
import { type ForestCounts, TokenForest } from '../tree/forest.ts';
import { idsTo } from '../tree/path.ts';
import { SessionTable } from '../../shared/session-table.ts';
import type { ChatName, SessionName } from '../../shared/turn.ts';
import { KnownTokens, type CaptureCounts, type TextTokens } from './known-tokens.ts';
import type { TurnWriter } from '../store/writer.ts';
import { HeapLimits } from '../heap-limits.ts';
import { numbersJson } from '../json-parts.ts';
import { Pauses } from '../pauses.ts';
import type { ExpertsFiles } from './experts-files.ts';
import { askingForIds, withIds } from '../../shared/read-request.ts';
import type { LostTurns } from './restore.ts';
import type { TextRequest } from './open-text.ts';
import { TextCaptures } from './text-captures.ts';
import { tenantKey } from '../../../classify/tenant-key.ts';

export interface CaptureOptions {
  /** A tokenizer.json or a model's folder; null: nothing can be captured. */
  readonly tokenizerPath: string | null;
  readonly tokenizer?: TokenizerChoice;
  /** Left out: no limit. */
  readonly maxNodes?: number;
  /** Left out: `defaultMemoryBytes`. */
  readonly maxBytes?: number;
  readonly keepVersions?: number;
  /** Also keep the bytes of requests and responses. */
  readonly keepsBodies?: boolean;
}

/** A request whose tokens are looked up. */
export interface OpenCall extends TextRequest {
  /** Chosen by the caller. */
  readonly id: number;
  /** `text`: the engine gets the request unchanged. */
  readonly forward: 'ids' | 'text';
}

export interface OpenAnswer {
  /** The body for the engine; null: the request unchanged. */
  readonly body: Uint8Array | null;
  /** Samples of all prompts. */
  readonly choices: number;
  /** The prompts are texts, so the ids are those of the router's tokenizer. */
  readonly isText: boolean;
}

export interface CaptureStats extends CaptureCounts, ForestCounts {
  readonly nodes: number;
  readonly bytes: number;
  readonly trees: number;
  /** Turns that were loaded from the store. */
  readonly restored: number;
  /** Responses that could not be read, or have other prompts than the request. */
  readonly uncaptured: number;
  /** Why the last of them could not be read; null: all could. */
  readonly lastProblem: string | null;
}

/** How long `/retrieve_from_text` without a session waits for turns of the store. */
const RETRIEVE_WAIT_MS = 60_000;

const laned = async (path: string, choice: TokenizerChoice | undefined): Promise<Tokenizer> =>
  inLanes(await loadTokenizer(path, choice), { path, choice });

/** The tree of a model; if none is named and there is only one tree, that one. */
function treeFor({ names }: TokenForest, tenant: string, model: string): string {
  const own = tenantKey(tenant, '');
  const those = model === '' ? names.filter((name) => name.startsWith(own)) : [];
  return those.length === 1 ? those[0]! : own + model;
}

/** Millions of tokens take seconds: other calls of the thread run meanwhile. */
async function textTokensJson(
  { ids, logprobs, mask, isAmbiguous, drift }: TextTokens,
  { text, withLogprobs }: { readonly text: string; readonly withLogprobs: boolean },
): Promise<Uint8Array> {
  const { numbers, unknown } = asNumbers(logprobs);
  const members = {
    tokens: ids,
    response: text,
    loss_mask: mask,
    token_length: ids.length,
    loss_mask_length: mask.length,
    ...(withLogprobs ? { rollout_logp: numbers, unknown_logprobs: unknown } : {}),
    ...(isAmbiguous ? { ambiguous: true } : {}),
    ...(drift === null ? {} : { drift }),
  };
  const parts: Buffer[] = [];
  const pauses = new Pauses();
  for (const [name, value] of Object.entries(members)) {
    parts.push(Buffer.from(`${parts.length === 0 ? '{' : ','}"${name}":`));
    for (const part of ArrayBuffer.isView(value) ? numbersJson(value) : [JSON.stringify(value)]) {
      parts.push(Buffer.from(part));
      await pauses.pause();
    }
  }
  parts.push(Buffer.from('}'));
  return Buffer.concat(parts);
}

/** Calls of the recorder thread about tokens, once the tokenizer is loaded. */
export function captureCalls(
  options: CaptureOptions,
  writer: TurnWriter,
  files: ExpertsFiles | null,
  heap = new HeapLimits(),
) {
  const { tokenizerPath, maxNodes = Infinity, maxBytes = defaultMemoryBytes(), keepVersions = 5 } = options;
  let known: KnownTokens | null = null;
  const lost: LostTurns = new SessionTable();
  const turnsLost = (names: readonly ChatName[]): void => {
    for (const name of names) if (name.session !== '') lost.set(name, writer.ids.next());
  };
  const wanted = (): KnownTokens => {
    if (known === null) throw new Error('the tokenizer is not loaded');
    return known;
  };
  const captures = new TextCaptures(wanted, files, options.keepsBodies === true, turnsLost);

  /** Waits for no turn: one of them may wait for the store, and `GET /metrics` for these counts. */
  const captureStats = (): CaptureStats => {
    const { forest, counts, restore } = wanted();
    const { nodes, bytes, trees } = forest;
    const { uncaptured, lastProblem } = captures;
    return { ...counts, ...forest.counts, restored: restore.turns, nodes, bytes, trees, uncaptured, lastProblem };
  };

  return {
    /** null: it is not loaded. */
    tokenizer: (): Tokenizer | null => known?.tokenizer ?? null,
    known: (): KnownTokens | null => known,
    captures,
    turnsLost,
    /** A session is over: its turns are the first to be evicted. */
    ended({ session, tenant }: SessionName): void {
      lost.delete({ session, tenant });
      if (known === null) return;
      const { forest } = known;
      const beginning = tenant === undefined ? '' : tenantKey(tenant, '');
      for (const each of forest.sessionsNamed(session, beginning)) forest.end(each);
    },
    calls: {
      /**
       * Loads the tokenizer, unless it is loaded. Rejects with a message for the user if that fails. It is loaded when something needs it,
       * because the option may be set for another router only.
       */
      async loadTokenizer(): Promise<Tokenizer['kind']> {
        if (tokenizerPath === null) throw new Error("there is no tokenizer: name the model's with --tokenizer-path");
        const tokenizer = known?.tokenizer ?? (await laned(tokenizerPath, options.tokenizer));
        known ??= new KnownTokens(
          tokenizer,
          new TokenForest({ maxNodes, maxBytes: heap.treeBytes(maxBytes), keepVersions }),
          writer,
          lost,
        );
        return known.tokenizer.kind;
      },

      async openCapture({ id, forward, ...asked }: OpenCall): Promise<OpenAnswer | null> {
        const refusal = heap.refusal();
        if (refusal !== null) throw new Error(refusal.message);
        const begun = await captures.begin(id, asked);
        if (begun === null) return null;
        const { request, prompts } = begun;
        const isText = request.prompts.some((prompt) => typeof prompt === 'string');
        const changed =
          isText && forward === 'ids'
            ? withIds(
                request,
                prompts.map(({ end }) => idsTo(end)),
              )
            : askingForIds(request);
        return {
          body: changed === request.asked.body ? null : new Uint8Array(changed),
          choices: prompts.length * request.samples,
          isText,
        };
      },

      /** What an engine returned after the end of turns that are recorded already. */
      async versionLearned(version: LearnedVersion): Promise<void> {
        await captures.settled();
        writer.learned(version);
      },

      /** The answer of `/retrieve_from_text` as JSON, or why the text was refused. */
      async retrieveFromText(ask: {
        text: string;
        tenant: string;
        model: string;
        session: string;
        withLogprobs: boolean;
      }): Promise<Uint8Array | Refusal> {
        const refusal = heap.refusal();
        if (refusal !== null) return refusal;
        await captures.settled();
        const { forest, restore } = wanted();
        const model = ask.model.trim();
        if (ask.session === '') await restore.filled(RETRIEVE_WAIT_MS);
        else if (model === '') await restore.session(ask.tenant, ask.session);
        const tree = treeFor(forest, ask.tenant, model);
        if (ask.session !== '') await restore.wanted(tree, ask.tenant, ask.session);
        const found = await wanted()
          .tokensOf(tree, ask.text, ask.session)
          .catch(refusalOf)
          .finally(() => forest.trim());
        if ('code' in found) return found;
        return textTokensJson(found, ask);
      },

      /** Turns of these sessions are not recorded, or may have been lost when the thread before this one ended. */
      turnsLost,

      /** Fills the trees with turns of the store, in the background. */
      fillTrees(): void {
        wanted().restore.fill(heap.treeBytes(maxBytes), maxNodes);
      },

      async encodeText(text: string): Promise<number[]> {
        return [...(await wanted().tokenizer.encode(text, true))];
      },

      captureStats,

      /** The counts with all turns that have ended. */
      async settledStats(): Promise<CaptureStats> {
        await captures.settled();
        return captureStats();
      },
    },
  };
}
