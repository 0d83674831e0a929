import type { KubeObject } from '../fleet/discover/list-objects.ts';

/** A Lease (coordination.k8s.io/v1). */
export interface Lease extends KubeObject {
  readonly spec?: {
    readonly holderIdentity?: string | null;
    readonly leaseDurationSeconds?: number | null;
    readonly acquireTime?: string | null;
    readonly renewTime?: string | null;
    readonly leaseTransitions?: number | null;
  };
}

/** A lease as this replica saw it last, and since when it has not changed, by the clock of this replica (monotonic ms). */
export interface Seen {
  readonly mark: string;
  readonly sinceMs: number;
}

/** A holder renews the lease: two states with one mark are one renewal. */
const markOf = ({ spec }: Lease): string =>
  JSON.stringify([spec?.holderIdentity ?? '', spec?.renewTime ?? '', spec?.leaseTransitions ?? 0]);

export const seeLease = (lease: Lease, before: Seen | null, nowMs: number): Seen => {
  const mark = markOf(lease);
  return mark === before?.mark ? before : { mark, sinceMs: nowMs };
};

/**
 * The lease with which a replica becomes or stays the holder; null: another one holds it. The clocks of replicas may differ, so that a
 * lease has expired when it did not change for its duration, whatever times it names (as client-go's leader election).
 *
 * @param at the present time, for others to read
 */
export function claimed(
  lease: Lease,
  me: string,
  seen: Seen,
  nowMs: number,
  durationSecs: number,
  at: Date,
): Lease | null {
  const { spec = {} } = lease;
  const holder = spec.holderIdentity ?? '';
  const expiresMs = seen.sinceMs + (spec.leaseDurationSeconds ?? durationSecs) * 1000;
  const isMine = holder === me;
  if (!isMine && holder !== '' && nowMs < expiresMs) return null;
  const renewTime = microTime(at);
  return {
    ...lease,
    spec: {
      ...spec,
      holderIdentity: me,
      leaseDurationSeconds: durationSecs,
      renewTime,
      acquireTime: isMine ? (spec.acquireTime ?? renewTime) : renewTime,
      leaseTransitions: (spec.leaseTransitions ?? 0) + (isMine ? 0 : 1),
    },
  };
}

/** The lease that any replica may have at once; null: this one does not hold it. */
export const released = (lease: Lease, me: string, at: Date): Lease | null =>
  lease.spec?.holderIdentity === me
    ? { ...lease, spec: { ...lease.spec, holderIdentity: '', leaseDurationSeconds: 1, renewTime: microTime(at) } }
    : null;

/** `MicroTime` of Kubernetes. */
const microTime = (at: Date): string => at.toISOString().replace('Z', '000Z');
