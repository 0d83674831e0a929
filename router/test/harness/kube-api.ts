import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type IncomingMessage, type Server, type ServerResponse, createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { freePort } from './free-port.ts';
import { FakeLeases } from './kube-leases.ts';

export interface FakePod {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations: Readonly<Record<string, string>>;
    readonly resourceVersion: string;
    readonly deletionTimestamp?: string;
  };
  readonly spec: { readonly nodeName: string };
  readonly status: {
    readonly phase: string;
    readonly podIP?: string;
    readonly conditions: readonly { readonly type: string; readonly status: string }[];
  };
}

/** What a test says of a pod; what it leaves out stays, or is usual. */
export interface PodWords {
  readonly ip?: string | undefined;
  readonly isReady?: boolean;
  readonly isDeleting?: boolean;
  readonly phase?: string;
  readonly uid?: string;
  readonly labels?: Record<string, string>;
  readonly annotations?: Record<string, string>;
  readonly namespace?: string;
}

/** An InferencePool (inference.networking.k8s.io/v1). */
export interface FakePool {
  readonly metadata: { readonly name: string; readonly namespace: string; readonly resourceVersion: string };
  readonly spec: object;
}

type FakeObject = FakePod | FakePool;

interface Happened {
  readonly version: number;
  readonly before: FakeObject | null;
  readonly after: FakeObject | null;
}

interface Watcher {
  readonly answer: ServerResponse;
  readonly fits: (object: FakeObject | null) => boolean;
}

/**
 * The part of an API server that tells of pods and InferencePools: list in pages, watch from a version, 410, bookmarks; and keeps Leases.
 * Everything else is the test's.
 */
export class FakeKube {
  readonly pods = new Map<string, FakePod>();
  readonly pools = new Map<string, FakePool>();
  readonly leases = new FakeLeases();
  /** Paths that were asked for. */
  readonly asked: string[] = [];
  readonly tokens: (string | undefined)[] = [];
  /** In place of every answer. */
  refusal: { readonly status: number; readonly body: string; readonly fields?: Record<string, string> } | null = null;
  /** So many of the next pages that go on a list answer 410. */
  expiredPages = 0;
  readonly #watchers = new Set<Watcher>();
  readonly #history: Happened[] = [];
  readonly #sockets = new Set<Socket>();
  readonly #tls: { readonly cert: string; readonly key: string } | null;
  #server: Server;
  #version = 100;
  #oldest = 0;
  #port = 0;

  constructor(tls: { readonly cert: string; readonly key: string } | null) {
    this.#tls = tls;
    this.#server = this.#make();
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `${this.#tls === null ? 'http' : 'https'}://127.0.0.1:${this.#port}`;
  }

  get watcherCount(): number {
    return this.#watchers.size;
  }

  /** First pages of lists that were asked for. */
  get lists(): number {
    return this.asked.filter((path) => !path.includes('watch=1') && !path.includes('continue=')).length;
  }

  get watches(): number {
    return this.asked.filter((path) => path.includes('watch=1')).length;
  }

  async start(): Promise<void> {
    this.#server = this.#make();
    this.#port ||= await freePort();
    await new Promise<void>((resolve) => this.#server.listen(this.#port, '127.0.0.1', resolve));
  }

  /** As a killed process: nobody listens, all connections are gone. */
  stop(): void {
    this.#server.close();
    this.cut();
  }

  set(name: string, words: PodWords = {}): void {
    const before = this.pods.get(name) ?? null;
    const uid = words.uid ?? before?.metadata.uid ?? `uid-${name}`;
    const ready = words.isReady ?? (before === null || before.status.conditions[0]!.status === 'True');
    const ip = 'ip' in words ? words.ip : before?.status.podIP;
    const after: FakePod = {
      metadata: {
        name,
        namespace: words.namespace ?? before?.metadata.namespace ?? 'rl',
        uid,
        labels: words.labels ?? before?.metadata.labels ?? { app: 'engine' },
        annotations: words.annotations ?? before?.metadata.annotations ?? {},
        resourceVersion: String(++this.#version),
        ...(words.isDeleting === true ? { deletionTimestamp: '2026-01-01T00:00:00Z' } : {}),
      },
      spec: { nodeName: 'node-1' },
      status: {
        phase: words.phase ?? before?.status.phase ?? 'Running',
        ...(ip === undefined ? {} : { podIP: ip }),
        conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }],
      },
    };
    this.pods.set(name, after);
    this.#happen({ version: this.#version, before, after });
  }

  /** Creates or changes an InferencePool; `spec` null: deletes it. */
  setPool(name: string, spec: object | null): void {
    const before = this.pools.get(name) ?? null;
    const metadata = { name, namespace: 'rl', resourceVersion: String(++this.#version) };
    const after = spec === null ? null : { metadata, spec };
    if (after === null) this.pools.delete(name);
    else this.pools.set(name, after);
    this.#happen({ version: this.#version, before, after });
  }

  delete(name: string): void {
    const before = this.pods.get(name)!;
    this.pods.delete(name);
    this.#happen({ version: ++this.#version, before, after: null });
  }

  /** Watches from before now get 410; `ahead`: also those from so many versions after it. */
  forget(ahead = 0): void {
    this.#oldest = this.#version + ahead;
  }

  bookmark(): void {
    const object = { kind: 'Pod', metadata: { resourceVersion: String(this.#version) } };
    this.say(`${JSON.stringify({ type: 'BOOKMARK', object })}\n`);
  }

  /** Writes to every watch. */
  say(text: string | Buffer): void {
    for (const { answer } of this.#watchers) answer.write(text);
  }

  /** Ends every watch, as at its timeoutSeconds. */
  end(): void {
    for (const { answer } of this.#watchers) answer.end();
    this.#watchers.clear();
  }

  /** Breaks every connection. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #make(): Server {
    const serve = (request: IncomingMessage, answer: ServerResponse): void => this.#serve(request, answer);
    const server = this.#tls === null ? createServer(serve) : createTlsServer({ ...this.#tls }, serve);
    server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
    return server;
  }

  #serve(request: IncomingMessage, answer: ServerResponse): void {
    const url = new URL(request.url!, 'http://kube');
    this.asked.push(request.url!);
    this.tokens.push(request.headers.authorization);
    if (this.refusal !== null) {
      answer.writeHead(this.refusal.status, this.refusal.fields ?? {}).end(this.refusal.body);
      return;
    }
    if (this.leases.serve(url.pathname, request, answer)) return;
    const [, namespace, kind = 'pods'] = /\/namespaces\/([^/]+)\/(pods|inferencepools)$/.exec(url.pathname) ?? [];
    const name = /^metadata\.name=(.+)$/.exec(url.searchParams.get('fieldSelector') ?? '')?.[1];
    const isWanted = readSelector(url.searchParams.get('labelSelector') ?? '');
    const fits = (object: FakeObject | null): boolean =>
      object !== null &&
      'status' in object === (kind === 'pods') &&
      (namespace === undefined || object.metadata.namespace === namespace) &&
      (name === undefined || object.metadata.name === name) &&
      (!('status' in object) || isWanted(object.metadata.labels));
    if (url.searchParams.get('watch') === '1')
      this.#watch(answer, fits, Number(url.searchParams.get('resourceVersion')));
    else this.#list(answer, fits, url.searchParams);
  }

  #list(answer: ServerResponse, fits: (object: FakeObject) => boolean, query: URLSearchParams): void {
    const token = query.get('continue');
    if (token !== null && this.expiredPages > 0) {
      this.expiredPages--;
      answer
        .writeHead(410)
        .end(JSON.stringify({ kind: 'Status', code: 410, message: 'The provided continue is too old' }));
      return;
    }
    const all = [...this.pods.values(), ...this.pools.values()].filter(fits);
    const first = Number(token ?? 0);
    const end = first + Number(query.get('limit'));
    const metadata = { resourceVersion: String(this.#version), ...(end < all.length ? { continue: String(end) } : {}) };
    answer.end(JSON.stringify({ kind: 'List', metadata, items: all.slice(first, end) }));
  }

  #watch(answer: ServerResponse, fits: (object: FakeObject | null) => boolean, from: number): void {
    answer.writeHead(200, { 'content-type': 'application/json' });
    answer.flushHeaders();
    if (from < this.#oldest) {
      const message = `too old resource version: ${from} (${this.#oldest})`;
      answer.end(
        `${JSON.stringify({ type: 'ERROR', object: { kind: 'Status', code: 410, reason: 'Expired', message } })}\n`,
      );
      return;
    }
    const watcher = { answer, fits };
    this.#watchers.add(watcher);
    answer.on('close', () => this.#watchers.delete(watcher));
    for (const happened of this.#history) if (happened.version > from) tell(watcher, happened);
  }

  #happen(happened: Happened): void {
    this.#history.push(happened);
    for (const watcher of this.#watchers) tell(watcher, happened);
  }
}

/** `a=b`, `a in (b,c)`, and such in a list. */
function readSelector(text: string): (labels: FakePod['metadata']['labels']) => boolean {
  const parts = [...text.matchAll(/([^\s,=]+)(?:=([^,]*)| in \(([^)]*)\))/g)];
  if (text !== '' && parts.map(([part]) => part).join(',') !== text) throw new Error(`no selector: ${text}`);
  return (labels) =>
    parts.every(([, key, value, list]) => {
      const label = labels[key!];
      return label !== undefined && (value ?? list!).split(',').includes(label);
    });
}

/** A pod that gets the labels is new to whoever selects by them, one that loses them is gone. */
function tell({ answer, fits }: Watcher, { version, before, after }: Happened): void {
  const [was, is] = [fits(before), fits(after)];
  if (!was && !is) return;
  const type = was && is ? 'MODIFIED' : is ? 'ADDED' : 'DELETED';
  const pod = (is ? after : (after ?? before))!;
  const object = { ...pod, metadata: { ...pod.metadata, resourceVersion: String(version) } };
  answer.write(`${JSON.stringify({ type, object })}\n`);
}

/** Starts one, and has this process's routers find it by $KUBECONFIG. */
export async function startFakeKube(
  t: TestContext,
  tls: { readonly cert: string; readonly key: string } | null = null,
): Promise<FakeKube> {
  const kube = new FakeKube(tls);
  await kube.start();
  t.after(() => kube.stop());
  if (tls === null) useKubeconfig(t, kube.url);
  return kube;
}

/** Points $KUBECONFIG at a file that leads there, until the test ends. */
export function useKubeconfig(t: TestContext, server: string): void {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-kube-'));
  const path = join(folder, 'config');
  writeFileSync(
    path,
    JSON.stringify({
      'current-context': 'test',
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'test', namespace: 'rl' } }],
      clusters: [{ name: 'test', cluster: { server } }],
      users: [{ name: 'test', user: { token: 'secret-token' } }],
    }),
  );
  const before = process.env['KUBECONFIG'];
  process.env['KUBECONFIG'] = path;
  t.after(() => {
    if (before === undefined) delete process.env['KUBECONFIG'];
    else process.env['KUBECONFIG'] = before;
    rmSync(folder, { recursive: true, force: true });
  });
}
