import { boundedKey } from '../classify/body-scan.ts';
import type { KeyPlace } from '../classify/routing-keys.ts';
import type { RequestHead } from '../wire/request-head.ts';

/**
 * Under which key a request waits: its tenant's, else its session's, else the one of all without a key. Only headers are
 * looked at: a body is not waited for here.
 */
export function fairKeys(places: readonly KeyPlace[]): (head: RequestHead) => string {
  const inHeaders = places.filter((place) => place.in === 'header');
  const inOrder = ['tenant', 'session'].flatMap((kind) => inHeaders.filter((place) => place.kind === kind));
  return (head) => {
    for (const { kind, name } of inOrder) {
      const value = head.get(name);
      // With its kind: a tenant and a session of the same name are not the same.
      if (value !== undefined && value !== '') return `${kind}:${boundedKey(value)}`;
    }
    return '';
  };
}
