import type { EngineRequest, RequestedFields } from '../../engines/dialects/chat.ts';
import type { EngineKind } from '../../engines/engine.ts';
import type { ErrorCode } from '../../kit/errors.ts';
import type { ChatName } from './turn.ts';

/** A chat request that is about to be sent to an engine. */
export interface ChatOpenCall extends ChatName {
  /** Chosen by the caller. */
  readonly id: number;
  /** null: it is known already, and sent to another engine. */
  readonly body: Uint8Array | null;
  readonly engine: EngineKind;
  /** 0: not known. */
  readonly maxModelLen: number;
  readonly takesIds: boolean;
  /** The key with which the client repeats the call if its response is lost; ''. */
  readonly key: string;
  /** The request is for an existing session: one that is over is not created again. */
  readonly isInPath: boolean;
}

export type ChatOpened =
  | {
      readonly body: Uint8Array;
      readonly path: string;
      readonly form: EngineRequest['form'];
      readonly isStream: boolean;
      /** How many the request asks for. */
      readonly choices: number;
      readonly requested: RequestedFields;
      readonly problem: null;
    }
  | ChatProblem;

export interface ChatProblem {
  readonly problem: string;
  /** Left out: `bad_request`. */
  readonly code?: ErrorCode;
}

/** A call that may be a repetition. */
export interface ChatRepeatCall extends ChatName {
  /** As that of `ChatOpenCall`. */
  readonly id: number;
  readonly key: string;
  readonly body: Uint8Array;
}

export type ChatRepeated =
  | { readonly body: Uint8Array; readonly isStream: boolean; readonly problem: null }
  | { readonly problem: string }
  | null;
