import type { Random } from '../../kit/rng.ts';
import type { KubeAccess } from './kube-access.ts';
import { type KubeObject, type ObjectQuery, kindOf } from './list-objects.ts';
import { ListWatch, type ObjectListener } from './list-watch.ts';

/** What is needed to follow objects of the API server. */
export interface Kube {
  readonly access: KubeAccess;
  /** Reads the credentials again. */
  readonly find: () => Promise<KubeAccess>;
  readonly random: Random;
  readonly log: { info(fields: object, text: string): void; warn(fields: object, text: string): void };
  /** For the log: how many workers there are because of pods. */
  readonly workers: () => number;
}

/** Objects that are followed until it is closed. Logs when the API server is lost and found. */
export class Followed<T extends KubeObject> {
  isConnected = false;
  /** A complete list has come. */
  isSynced = false;
  /** The last logged error: an outage is logged once per error, not per attempt. */
  #logged = '';
  readonly #watch: ListWatch<T>;

  constructor(
    { access, find, random, log, workers }: Kube,
    query: ObjectQuery,
    { onList, onChanges }: Pick<ObjectListener<T>, 'onList' | 'onChanges'>,
  ) {
    const { selector, name } = query;
    const namespace = /\/namespaces\/([^/]+)\//.exec(query.path)?.[1] ?? '*';
    const where = {
      server: access.server.host,
      namespace,
      ...(name === undefined ? { selector } : { [kindOf(query)]: name }),
    };
    this.#watch = new ListWatch<T>(
      access,
      find,
      query,
      {
        onList: (objects) => {
          this.isSynced = true;
          onList(objects);
        },
        onChanges,
        onConnected: () => {
          if (!this.isConnected) log.info({ ...where, workers: workers() }, 'service discovery: connected');
          this.isConnected = true;
          this.#logged = '';
        },
        onLost: ({ message }) => {
          this.isConnected = false;
          if (message !== this.#logged)
            log.warn(
              { ...where, workers: workers(), error: message },
              'service discovery: disconnected from the API server; the last known workers stay',
            );
          this.#logged = message;
        },
      },
      random,
    );
    void this.#watch.run();
  }

  close(): void {
    this.#watch.close();
  }
}
