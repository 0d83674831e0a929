import type { Admission } from './admit/admission.ts';
import type { Authorizer } from './admit/authorizer.ts';
import type { Config } from './config/options.ts';
import type { Chooser } from './choose/choose.ts';
import type { FactReader } from './classify/body-reader.ts';
import type { Exchange } from './exchange.ts';
import type { FanOut } from './forward/control/fan-out.ts';
import type { Failover } from './forward/failover.ts';
import type { AfterAttempt, PairNotes } from './forward/attempt-context.ts';
import type { Forwarder } from './forward/forward.ts';
import type { RouterError } from './kit/errors.ts';
import type { IndexedSet } from './kit/indexed-set.ts';
import type { Observer } from './observe/observer.ts';
import type { Plugins } from './phases/chain.ts';
import type { Resume } from './resume/resume.ts';
import type { ResultListener } from './wire/result.ts';

/** What the steps of the pipeline are made of. */
export interface Stages {
  /** Requests in flight. */
  readonly inFlight: IndexedSet<Exchange>;
  readonly options: StageOptions;
  /** Decides which roles serve a request; null: engines are not paired. @returns the error if no engine can serve it */
  readonly assignRoles: ((x: Exchange) => RouterError | null) | null;
  /** null: no request needs a key. */
  readonly authorizer: Authorizer | null;
  /** @returns the error of a request that a foreign web page sent; null: allowed */
  readonly pageGuard: (x: Exchange) => RouterError | null;
  /** Responds to requests for the router's own endpoints. @returns false: the path is not one of them */
  readonly serveOwn: (x: Exchange) => boolean;
  readonly fanOut: FanOut;
  readonly plugins: Plugins;
  readonly admission: Admission;
  readonly facts: FactReader;
  readonly chooser: Chooser;
  readonly noAvailableWorkers: () => RouterError;
  readonly failover: Failover;
  /** null: no generation is continued. */
  readonly resume: Resume | null;
  readonly makeForwarder: (
    listener: ResultListener<Exchange>,
    notes: PairNotes,
    between: AfterAttempt | null,
  ) => Forwarder;
  readonly observers: readonly Observer[];
}

/** Read for every request, because a reload changes them. */
export const stageOptions = ({ requestIdHeaders, requestTimeoutSecs }: Config) => ({
  requestIdHeaders,
  /** 0: no limit. */
  requestTimeoutMs: requestTimeoutSecs * 1000,
});

type StageOptions = ReturnType<typeof stageOptions>;
