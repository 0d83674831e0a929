import type { RedisArgument } from '@redis/client';
import { backoff } from '../../../kit/backoff.ts';
import { cameWithin } from '../../../kit/came-within.ts';
import { StoreAway } from './store.ts';

/**
 * The commands that a store sends to a Redis or Valkey server. Bulk strings are returned as bytes. A command that fails rejects with
 * `StoreAway`, unless the server refuses it for what it is.
 */
export interface RedisLink {
  send(command: readonly RedisArgument[]): Promise<unknown>;
  /** Runs commands as a transaction. */
  transaction(commands: readonly (readonly RedisArgument[])[]): Promise<void>;
  close(): void;
}

type Package = typeof import('@redis/client');

/** A slower server counts as unreachable: turns wait in `TurnWriter`, which bounds them, and the next connection may reach another server. */
const ANSWER_TIMEOUT_MS = 10_000;
/** The time from giving up a connection to the next one. */
export const RENEW_MS = 100;
/** Replies about the command itself. Others, as OOM, LOADING or READONLY, are about the server. */
const OF_COMMAND = /^(ERR|WRONGTYPE)\b/;
/** A failover has made the server a replica. It may leave its connections open; the name of the primary leads to another server now. */
const OF_REPLICA = /^(READONLY|MASTERDOWN)\b/;
/** The least age of a connection that is replaced for that: the name may take its time to change. */
const REPLICA_MS = 1_000;
/** How long the start waits for the server. */
const CONNECT_TIMEOUT_MS = 2_000;

/** A URL without its password. */
export function withoutPassword(url: string): string {
  const shown = new URL(url);
  shown.username = '';
  shown.password = '';
  return shown.href;
}

/**
 * Connects, and reconnects when the connection is lost; in between commands fail at once.
 *
 * @param mustAnswer a server that can't be reached now is an error
 */
export async function connectRedis(
  url: string,
  mustAnswer: boolean,
  load: () => Promise<Package> = () => import('@redis/client'),
  answerTimeoutMs = ANSWER_TIMEOUT_MS,
): Promise<RedisLink> {
  const { createClient, ErrorReply, MultiErrorReply, RESP_TYPES } = await load().catch((error: unknown) => {
    const [reason] = (error as Error).message.split(/ imported from |\n/);
    throw new Error(
      `--store ${withoutPassword(url)} needs the package @redis/client, which can't be loaded (${reason}). Install it next to turnout: npm install @redis/client`,
    );
  });
  const client = createClient({
    url,
    // The older protocol, which all servers support.
    RESP: 2,
    disableOfflineQueue: true,
    commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } },
    socket: {
      connectTimeout: CONNECT_TIMEOUT_MS,
      reconnectStrategy: (retries) => (mustAnswer ? false : backoff(retries + 1, 100, 2_000)),
    },
  });
  // Without a listener a lost connection would end the thread. The next write reports it.
  client.on('error', () => {});
  let isClosed = false;
  /**
   * What comes before the first command of a connection; null: there is no connection, or it is not ready. Then the client refuses commands, but
   * while it connects it keeps transactions (@redis/client 6.3.1), and would send them before what comes first.
   */
  let begun: Promise<unknown> | null = null;
  for (const event of ['error', 'reconnecting', 'end']) client.on(event, () => (begun = null));
  // A connection to a host that has vanished is not closed for many minutes. Its other commands fail now.
  const renew = (): void => {
    if (isClosed) return;
    begun = null;
    client.destroy();
    if (mustAnswer) return;
    // What it was doing has to end first.
    setTimeout(() => isClosed || client.connect().catch(() => {}), RENEW_MS);
  };
  // The system takes connections for a server that is suspended. As long as this one is not ready, no command waits for it.
  let greeting: NodeJS.Timeout | undefined;
  client.on('connect', () => (greeting = setTimeout(renew, answerTimeoutMs).unref()));
  for (const event of ['ready', 'error', 'end']) client.on(event, () => clearTimeout(greeting));
  let readyMs = 0;
  /** The connections of before, as the server knows them. */
  const known = new Set<readonly string[]>();
  // What was sent on a connection that was given up may still be on its way, and would undo what is written from now on.
  const begin = async (): Promise<void> => {
    for (const one of known) {
      await client.sendCommand(['CLIENT', 'KILL', ...one]);
      known.delete(one);
    }
    known.add(filterIn(await client.sendCommand<Buffer>(['CLIENT', 'INFO'])));
  };
  client.on('ready', () => {
    readyMs = performance.now();
    // An older server, or one that does not allow it, does without.
    begun = mustAnswer ? Promise.resolve() : begin().catch(() => {});
  });
  const connected = client.connect();
  if (mustAnswer) {
    await connected.catch((error: unknown) => {
      throw new Error(`${withoutPassword(url)} can't be reached: ${reasonOf(error)}`);
    });
  } else await inTime(connected, CONNECT_TIMEOUT_MS).catch(() => {});
  const answered = <T>(answer: Promise<T>): Promise<T> =>
    inTime(answer, answerTimeoutMs, () => {
      if (client.isReady) renew();
    }).catch((error: Error) => {
      const isOfReplica = error instanceof ErrorReply && OF_REPLICA.test(error.message);
      if (isOfReplica && client.isReady && performance.now() - readyMs >= REPLICA_MS) renew();
      const isOfCommand = error instanceof ErrorReply && OF_COMMAND.test(error.message);
      throw isOfCommand || error instanceof MultiErrorReply ? error : new StoreAway(error.message, { cause: error });
    });
  const onceBegun = <T>(send: () => Promise<T>): Promise<T> => {
    const before = begun;
    const notReady = () => Promise.reject(new Error('the connection is not ready'));
    return answered(before === null ? notReady() : before.then(() => (begun === before ? send() : notReady())));
  };
  return {
    send: (command) => onceBegun(() => client.sendCommand(command)),
    async transaction(commands) {
      const multi = client.multi();
      for (const command of commands) multi.sendCommand(command);
      await onceBegun(() => multi.exec());
    },
    close() {
      isClosed = true;
      client.destroy();
    },
  };
}

/** Of CLIENT INFO what CLIENT KILL finds this connection by, and no other one, whatever server has the name later. */
function filterIn(info: Buffer): readonly string[] {
  const [, id = '', addr = ''] = /^id=(\d+) addr=(\S+)/.exec(info.toString()) ?? [];
  return ['ID', id, 'ADDR', addr];
}

/** Errors of several addresses (`localhost`) have no message, only inner errors. */
function reasonOf(error: unknown): string {
  const { message, code } = error as NodeJS.ErrnoException;
  return message !== '' ? message : (code ?? 'no answer');
}

async function inTime<T>(promise: Promise<T>, ms: number, onLate = (): void => {}): Promise<T> {
  if (await cameWithin(ms, promise)) return promise;
  onLate();
  throw new Error(`the store has not answered for ${ms / 1000} s`);
}
