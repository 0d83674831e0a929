import { type Socket, createServer } from 'node:net';
import type { TestContext } from 'node:test';
import { freePort } from './free-port.ts';

type Reply = string | number | null | Error | readonly Reply[];
type Run = (key: string, ...args: string[]) => Reply;

/** As much of a Redis server as the store of trajectories asks for, in this process. Bytes are kept as latin1 text. */
export interface RespServer {
  readonly url: string;
  /** The error with which a command is answered; null: it is run. */
  refuses: (words: readonly string[]) => string | null;
  /** Takes no more connections and breaks those it has, until `start`. */
  stop(): Promise<void>;
  start(): Promise<void>;
}

const OK = Symbol('OK');

export async function startRespServer(t: TestContext): Promise<RespServer> {
  const keys = new Map<string, Map<string, string>>();
  const of = (key: string): Map<string, string> => {
    let found = keys.get(key);
    if (found === undefined) keys.set(key, (found = new Map()));
    return found;
  };
  const pairs = (list: readonly string[]) => Array.from({ length: list.length / 2 }, (_, i) => list.slice(2 * i));
  const isBefore = (limit: string, member: string) =>
    limit === '-' || (limit.startsWith('(') ? member > limit.slice(1) : member >= limit.slice(1));
  const commands: Record<string, Run> = {
    HSETNX: (key, field, value) => (of(key).has(field) ? 0 : (of(key).set(field, value), 1)),
    HGET: (key, field) => of(key).get(field) ?? null,
    HGETALL: (key) => [...of(key)].flat(),
    HMGET: (key, ...fields) => fields.map((field) => of(key).get(field) ?? null),
    HSET: (key, ...rest) => (pairs(rest).forEach(([field, value]) => of(key).set(field!, value!)), rest.length / 2),
    HDEL: (key, ...fields) => fields.filter((field) => of(key).delete(field)).length,
    DEL: (...names) => names.filter((name) => keys.delete(name)).length,
    ZADD: (key, ...rest) => (pairs(rest).forEach(([, member]) => of(key).set(member!, '')), 1),
    ZREM: (key, ...members) => members.filter((member) => of(key).delete(member)).length,
    ZCARD: (key) => of(key).size,
    ZRANGEBYLEX: (key, from, _to, _limit, _offset, count) => {
      const members = [...of(key).keys()].toSorted().filter((member) => isBefore(from, member));
      return count === '-1' ? members : members.slice(0, Number(count));
    },
    ZREVRANGEBYLEX: (key, from, _to, _limit, _offset, count) => {
      const isAfter = (member: string) => from === '+' || member < from.slice(1);
      const members = [...of(key).keys()].toSorted().toReversed();
      return members.filter(isAfter).slice(0, Number(count));
    },
    SADD: (key, member) => (of(key).set(member, ''), 1),
    SREM: (key, member) => Number(of(key).delete(member)),
    SMEMBERS: (key) => [...of(key).keys()],
  };
  const run = ([name = '', ...args]: string[]): Reply => {
    const command = commands[name.toUpperCase()];
    if (command === undefined) return new Error(`ERR unknown command '${name}'`);
    return command(args[0]!, ...args.slice(1));
  };
  const sockets = new Set<Socket>();
  const nameOf = ({ remotePort }: Socket): string => `ID ${remotePort} ADDR 127.0.0.1:${remotePort}`;
  /** CLIENT INFO, and CLIENT KILL ID n ADDR a. */
  const client = (socket: Socket, [, act, ...rest]: readonly string[]): Reply => {
    if (act === 'INFO') return `id=${socket.remotePort} addr=127.0.0.1:${socket.remotePort} laddr=127.0.0.1:6379`;
    if (act !== 'KILL') return new Error('ERR unknown subcommand');
    const killed = [...sockets].filter((each) => nameOf(each) === rest.join(' '));
    for (const each of killed) each.destroy();
    return killed.length;
  };
  const made: Pick<RespServer, 'refuses'> = { refuses: () => null };
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.setNoDelay(true);
    socket.on('close', () => sockets.delete(socket)).on('error', () => {});
    let queue: string[][] | null = null;
    let isAborted = false;
    let unread = '';
    socket.on('data', (bytes) => {
      unread += bytes.toString('latin1');
      for (;;) {
        const read = readCommand(unread);
        if (read === null) return;
        unread = unread.slice(read.length);
        const name = read.words[0]!.toUpperCase();
        const refusal = made.refuses(read.words);
        if (name === 'MULTI') {
          queue = [];
          isAborted = false;
          write(socket, OK);
        } else if (name === 'EXEC') {
          const queued: string[][] = queue ?? [];
          queue = null;
          write(socket, isAborted ? new Error('EXECABORT because of previous errors') : queued.map(run));
        } else if (refusal !== null) {
          isAborted = true;
          write(socket, new Error(refusal));
        } else if (name === 'CLIENT') write(socket, client(socket, read.words));
        else if (queue !== null) {
          queue.push(read.words);
          socket.write('+QUEUED\r\n');
        } else write(socket, run(read.words));
      }
    });
  });
  const port = await freePort();
  const start = (): Promise<void> => new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  const stop = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      for (const socket of sockets) socket.destroy();
    });
  await start();
  t.after(() => (server.listening ? stop() : undefined));
  return Object.assign(made, { url: `redis://127.0.0.1:${port}`, start, stop });
}

function readCommand(text: string): { words: string[]; length: number } | null {
  const line = text.indexOf('\r\n');
  if (line < 0) return null;
  const words: string[] = [];
  let at = line + 2;
  for (let left = Number(text.slice(1, line)); left > 0; left--) {
    const end = text.indexOf('\r\n', at);
    if (end < 0) return null;
    const length = Number(text.slice(at + 1, end));
    if (text.length < end + 4 + length) return null;
    words.push(text.slice(end + 2, end + 2 + length));
    at = end + 4 + length;
  }
  return { words, length: at };
}

function write(socket: Socket, reply: Reply | typeof OK): void {
  socket.write(reply === OK ? '+OK\r\n' : encode(reply), 'latin1');
}

function encode(reply: Reply): string {
  if (reply === null) return '$-1\r\n';
  if (typeof reply === 'number') return `:${reply}\r\n`;
  if (typeof reply === 'string') return `$${reply.length}\r\n${reply}\r\n`;
  if (reply instanceof Error) return `-${reply.message}\r\n`;
  return `*${reply.length}\r\n${reply.map(encode).join('')}`;
}
