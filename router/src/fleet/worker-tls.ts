import { type SecureContext, createSecureContext } from 'node:tls';
import { workerCertificates } from '../config/certificates.ts';
import type { Config } from '../config/options.ts';
import type { UpstreamTls } from '../wire/upstream-connection.ts';

/** What https workers are shown, and must show; new connections take what is in force then. */
export class WorkerTls implements UpstreamTls {
  secureContext: SecureContext;

  /** Throws, in words for the user, when the files are no certificates. */
  constructor(config: Config) {
    this.secureContext = createSecureContext(workerCertificates(config));
  }

  /** Reads the certificates of `next`; throws where they are none. @returns what puts them in force */
  prepareReload(next: Config): () => void {
    const renewed = createSecureContext(workerCertificates(next));
    return () => {
      this.secureContext = renewed;
    };
  }
}
