import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Lease } from '../../src/picker/lease.ts';

/** Leases of an API server: read, create, replace; a replacement of an old version is a conflict. */
export class FakeLeases {
  readonly leases = new Map<string, Lease>();
  /** In place of every answer about leases. */
  refusal: number | null = null;
  /** Methods of the requests for leases. */
  readonly asked: string[] = [];
  #version = 0;

  holderOf(name: string): string {
    return this.leases.get(name)?.spec?.holderIdentity ?? '';
  }

  /** @returns false: the path is not one of a lease */
  serve(path: string, request: IncomingMessage, answer: ServerResponse): boolean {
    const found = /^\/apis\/coordination\.k8s\.io\/v1\/namespaces\/rl\/leases(?:\/(.+))?$/.exec(path);
    if (found === null) return false;
    this.asked.push(request.method!);
    let text = '';
    request.on('data', (part) => (text += part));
    request.on('end', () => {
      const [status, body] = this.#answer(request.method!, found[1], text);
      answer.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
    return true;
  }

  #answer(method: string, name: string | undefined, text: string): [status: number, body: object] {
    const fail = (code: number, message: string): [number, object] => [code, { kind: 'Status', code, message }];
    if (this.refusal !== null) return fail(this.refusal, 'refused by the test');
    if (method === 'GET') {
      const lease = this.leases.get(name!);
      return lease === undefined ? fail(404, `leases "${name}" not found`) : [200, lease];
    }
    const given = JSON.parse(text) as Lease;
    const key = given.metadata!.name!;
    const before = this.leases.get(key);
    if (method === 'POST' && before !== undefined) return fail(409, `leases "${key}" already exists`);
    if (method === 'PUT' && before?.metadata?.resourceVersion !== given.metadata!.resourceVersion)
      return fail(409, 'the object has been modified');
    const lease = { ...given, metadata: { ...given.metadata, resourceVersion: String(++this.#version) } };
    this.leases.set(key, lease);
    return [method === 'POST' ? 201 : 200, lease];
  }
}
