import { type SecureContext, createSecureContext } from 'node:tls';
import { workerCertificates } from '../config/certificates.ts';
import type { Config } from '../config/options.ts';
import type { UpstreamTls } from '../wire/upstream-pool.ts';

/** The TLS settings for https workers. A reload affects new connections. */
export class WorkerTls implements UpstreamTls {
  secureContext: SecureContext;

  /** Throws an error with a message for the user if a file is no certificate. */
  constructor(config: Config) {
    this.secureContext = createSecureContext(workerCertificates(config));
  }

  /** Reads the certificates of `next`; throws if a file is not valid. @returns a function that applies them */
  prepareReload(next: Config): () => void {
    const renewed = createSecureContext(workerCertificates(next));
    return () => {
      this.secureContext = renewed;
    };
  }
}
