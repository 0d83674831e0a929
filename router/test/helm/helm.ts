import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { parseAllDocuments } from 'yaml';
import { binary } from '../harness/built.ts';

export const chart = join(import.meta.dirname, '../../../deploy/helm/turnout');

/** Without it a helm that is built from its module assumes Kubernetes 1.20. */
export const kubernetes = ['--kube-version', '1.36'];

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly rules?: readonly unknown[];
  readonly data?: Readonly<Record<string, string>>;
  readonly spec?: Record<string, unknown>;
}

/** @returns what helm printed; throws with what it printed as errors */
export async function helm(...args: string[]): Promise<string> {
  return (await promisify(execFile)(binary('helm', 'helm'), args, { maxBuffer: 2 ** 26 })).stdout;
}

/** The manifests of a release `turnout` in the namespace `rl`. @param values file, and `--set` arguments */
export async function manifests(...values: string[]): Promise<Manifest[]> {
  const text = await helm('template', 'turnout', chart, '--namespace', 'rl', ...kubernetes, ...values);
  return parseAllDocuments(text)
    .map((document): unknown => document.toJS())
    .filter((each): each is Manifest => each !== null);
}

/** What the tests read of the pod. */
export interface Pod {
  readonly terminationGracePeriodSeconds: number;
  readonly automountServiceAccountToken: boolean;
  readonly enableServiceLinks: boolean;
  readonly securityContext: Readonly<Record<string, unknown>>;
  readonly containers: readonly [
    {
      readonly args: readonly string[];
      readonly env?: readonly { name: string }[];
      readonly ports: readonly { name: string; containerPort: number }[];
      readonly livenessProbe: Probe;
      readonly readinessProbe: Probe;
      readonly lifecycle?: object;
      readonly volumeMounts: readonly { name: string; mountPath: string }[];
      readonly securityContext: Readonly<Record<string, unknown>>;
    },
  ];
  readonly volumes: readonly { name: string }[];
}

interface Probe {
  readonly httpGet?: { readonly path: string; readonly port: string };
  readonly grpc?: { readonly port: number; readonly service: string };
}

export const one = (all: readonly Manifest[], kind: string): Manifest => {
  const found = all.filter((each) => each.kind === kind);
  if (found.length !== 1) throw new Error(`${found.length} manifests of kind ${kind}`);
  return found[0]!;
};

export const podOf = (all: readonly Manifest[], kind = 'StatefulSet'): Pod =>
  (one(all, kind).spec as unknown as { template: { spec: Pod } }).template.spec;
