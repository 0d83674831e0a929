import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../harness/free-port.ts';
import { until } from '../harness/within.ts';
import { binary } from '../harness/built.ts';

export interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

/** A real etcd and a real kube-apiserver on loopback. No controllers, no scheduler, no kubelet: the test is those. */
export class Cluster {
  readonly folder = mkdtempSync(join(tmpdir(), 'turnout-k8s-'));
  readonly #token = randomBytes(16).toString('hex');
  #port = 0;
  #etcdPort = 0;
  #etcd: ChildProcess | null = null;
  #apiserver: ChildProcess | null = null;

  get url(): string {
    return `https://127.0.0.1:${this.#port}`;
  }

  get port(): number {
    return this.#port;
  }

  get kubeconfig(): string {
    return join(this.folder, 'kubeconfig');
  }

  /** Of the administrator. */
  get authorization(): string {
    return `Bearer ${this.#token}`;
  }

  get ca(): string {
    return readFileSync(join(this.folder, 'ca.crt'), 'utf8');
  }

  async start(): Promise<void> {
    this.#makeCertificates();
    [this.#port, this.#etcdPort] = [await freePort(), await freePort()];
    const peer = `http://127.0.0.1:${await freePort()}`;
    const client = `http://127.0.0.1:${this.#etcdPort}`;
    const flags = `--unsafe-no-fsync --listen-client-urls ${client} --advertise-client-urls ${client} --listen-peer-urls ${peer} --initial-advertise-peer-urls ${peer} --initial-cluster default=${peer}`;
    this.#etcd = this.#spawn('etcd', ['--data-dir', join(this.folder, 'etcd'), ...flags.split(' ')]);
    writeFileSync(join(this.folder, 'tokens.csv'), `${this.#token},admin,admin-uid,"system:masters"\n`);
    await this.startApiserver();
  }

  async startApiserver(...more: string[]): Promise<void> {
    const flags = `--etcd-servers http://127.0.0.1:${this.#etcdPort} --bind-address 127.0.0.1 --secure-port ${this.#port} --advertise-address 127.0.0.1 --endpoint-reconciler-type none --service-cluster-ip-range 10.96.0.0/24 --tls-cert-file server.crt --tls-private-key-file server.key --client-ca-file ca.crt --service-account-issuer https://kubernetes.default.svc --service-account-key-file sa.key --service-account-signing-key-file sa.key --token-auth-file tokens.csv --authorization-mode RBAC --disable-admission-plugins ServiceAccount --etcd-compaction-interval 0`;
    const child = this.#spawn('kube-apiserver', [...flags.split(' '), ...more]);
    this.#apiserver = child;
    const isReady = async (): Promise<boolean> => {
      if (child.exitCode !== null) throw new Error(`kube-apiserver ended: ${this.#tail('kube-apiserver')}`);
      return (await this.call('GET', '/readyz').catch(() => null))?.status === 200;
    };
    await until('the API server is ready', isReady, 60_000);
  }

  /** With a watch open it would take a minute to stop by SIGTERM. etcd keeps the data. */
  async killApiserver(): Promise<void> {
    const child = this.#apiserver!;
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  }

  stop(): void {
    this.#apiserver?.kill('SIGKILL');
    this.#etcd?.kill('SIGKILL');
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }

  /** As the administrator. */
  call(method: string, path: string, body?: object, fields: Record<string, string> = {}): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const headers = { authorization: this.authorization, 'content-type': 'application/json', ...fields };
      const asked = request(`${this.url}${path}`, { method, ca: this.ca, headers, agent: false }, (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (part: string) => (text += part));
        answer.on('end', () => {
          const isJson = text.startsWith('{');
          resolve({
            status: answer.statusCode!,
            body: isJson ? (JSON.parse(text) as Record<string, unknown>) : { text },
          });
        });
        answer.on('error', reject);
      });
      asked.on('error', reject);
      asked.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  /** `call`, which has to work. */
  async must(method: string, path: string, body?: object, fields?: Record<string, string>): Promise<Answer['body']> {
    const answer = await this.call(method, path, body, fields);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  /** What etcd had before now it has no more. */
  async compact(): Promise<void> {
    const { metadata } = (await this.must('GET', '/api/v1/namespaces')) as { metadata: { resourceVersion: string } };
    const answer = await fetch(`http://127.0.0.1:${this.#etcdPort}/v3/kv/compaction`, {
      method: 'POST',
      body: JSON.stringify({ revision: metadata.resourceVersion, physical: true }),
    });
    if (answer.status !== 200) throw new Error(await answer.text());
  }

  #spawn(name: 'etcd' | 'kube-apiserver', args: string[]): ChildProcess {
    const log = openSync(join(this.folder, `${name}.log`), 'a');
    const child = spawn(binary('kube', name), args, { cwd: this.folder, stdio: ['ignore', log, log] });
    process.once('exit', () => child.kill('SIGKILL'));
    return child;
  }

  #tail(name: string): string {
    return readFileSync(join(this.folder, `${name}.log`), 'utf8')
      .trimEnd()
      .split('\n')
      .slice(-3)
      .join('\n');
  }

  #makeCertificates(): void {
    const openssl = (args: string): void => {
      execFileSync('openssl', args.split(' '), { cwd: this.folder, stdio: 'pipe', timeout: 60_000 });
    };
    openssl('req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=test-ca -keyout ca.key -out ca.crt');
    openssl('req -newkey rsa:2048 -nodes -subj /CN=kube-apiserver -keyout server.key -out server.csr');
    writeFileSync(join(this.folder, 'san.ext'), 'subjectAltName=IP:127.0.0.1,DNS:localhost\n');
    const from = '-CA ca.crt -CAkey ca.key -CAcreateserial -extfile san.ext';
    openssl(`x509 -req -in server.csr ${from} -days 30 -out server.crt`);
    openssl('genrsa -out sa.key 2048');
  }

  /** A file for $KUBECONFIG; `server`: another way there. */
  writeKubeconfig(namespace: string, server = this.url): void {
    const isPlain = server.startsWith('http:');
    const cluster = isPlain
      ? { server, 'insecure-skip-tls-verify': true }
      : { server, 'certificate-authority': 'ca.crt' };
    const config = {
      'current-context': 'test',
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'admin', namespace } }],
      clusters: [{ name: 'test', cluster }],
      users: [{ name: 'admin', user: { token: this.#token } }],
    };
    writeFileSync(this.kubeconfig, JSON.stringify(config));
  }
}

const MERGE = { 'content-type': 'application/merge-patch+json' };

/** The pods of one namespace, and the kubelet that they lack. */
export class Pods {
  readonly #cluster: Cluster;
  readonly path: string;

  constructor(cluster: Cluster, namespace: string) {
    this.#cluster = cluster;
    this.path = `/api/v1/namespaces/${namespace}/pods`;
  }

  /** Bound to a node, it stays in the API while it is being deleted, until its kubelet says that it is gone. */
  async create(name: string, labels: Record<string, string>, annotations: Record<string, string> = {}): Promise<void> {
    const spec = { nodeName: 'node-1', containers: [{ name: 'engine', image: 'none' }] };
    await this.#cluster.must('POST', this.path, { metadata: { name, labels, annotations }, spec });
  }

  async setReady(name: string, ip: string, isReady = true): Promise<void> {
    const conditions = [{ type: 'Ready', status: isReady ? 'True' : 'False' }];
    const status = { phase: 'Running', podIP: ip, podIPs: [{ ip }], conditions };
    await this.#cluster.must('PATCH', `${this.path}/${name}/status`, { status }, MERGE);
  }

  async patch(name: string, metadata: object): Promise<void> {
    await this.#cluster.must('PATCH', `${this.path}/${name}`, { metadata }, MERGE);
  }

  /** Its deletion begins. */
  async delete(name: string): Promise<void> {
    await this.#cluster.must('DELETE', `${this.path}/${name}`);
  }

  /** Its deletion is done. */
  async vanish(name: string): Promise<void> {
    await this.#cluster.must('DELETE', `${this.path}/${name}`, { gracePeriodSeconds: 0 });
  }
}
