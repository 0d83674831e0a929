import type { Config } from '../config/options.ts';
import type { Logger } from '../observe/log.ts';
import { Ledger } from './ledger.ts';

/** The one trajectory thread of a router: it runs from when somebody first asks for it. */
export class SharedLedger {
  readonly #config: Config;
  readonly #log: Logger;
  #ledger: Ledger | null = null;

  constructor(config: Config, log: Logger) {
    this.#config = config;
    this.#log = log;
  }

  readonly get = (): Ledger => {
    const { tokenizerPath = null, dataDir = null } = this.#config;
    const { radixMaxCacheSize: maxNodes, radixMaxBytes: maxBytes, radixGcThresholdK: keepVersions } = this.#config;
    this.#ledger ??= new Ledger({ tokenizerPath, dataDir, maxNodes, maxBytes, keepVersions }, (error) =>
      this.#log.error({ error: error.message }, 'the trajectory thread ended: nothing is captured any more'),
    );
    return this.#ledger;
  };

  async close(): Promise<void> {
    await this.#ledger?.close();
  }
}
