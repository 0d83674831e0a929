import * as z from 'zod';
import { flag, inGroup, numbers, port, splitNumbers } from './option.ts';

/** Kubernetes, "Labels and Selectors", syntax and character set. */
const LABEL =
  /^([a-z\d]([a-z\d.-]{0,251}[a-z\d])?\/)?[A-Za-z\d]([\w.-]{0,61}[A-Za-z\d])?=([A-Za-z\d]([\w.-]{0,61}[A-Za-z\d])?)?$/;
/** Requirements of a label selector that have an operator: a key alone is more likely a mistake. */
const REQUIREMENT = /^[\w./-]+( *(==?|!=) *[\w.-]*| +(in|notin) +\( *[\w.-]*( *, *[\w.-]*)* *\))$/;
/** A name in the API of Kubernetes (RFC 1123). */
const namespaceName = z.string().regex(/^[a-z\d]([a-z\d.-]{0,251}[a-z\d])?$/, 'not a name of Kubernetes');
const selector = z.array(z.string().regex(LABEL, 'expected key=value, as in the labels of pods'));

/** At blanks and commas, except within a set and around its operator. */
const splitSelector = (text: string): string[] =>
  text.match(/[^\s,]+\s+(?:in|notin)\s*\([^)]*\)|[^\s,]+/g)?.map((part) => part.replace(/(in|notin)\s*\(/, '$1 (')) ??
  [];

const option = inGroup('Workers');

export const discoveryOptions = {
  serviceDiscovery: option(
    '',
    flag,
    'Discover engines among Kubernetes pods that match --selector: pods join when they are ready and drain when they are deleted.',
    { needsRestart: true },
  ),
  selector: option(
    '<key=value...>',
    z
      .array(z.string().regex(REQUIREMENT, 'expected key=value, key!=value, "key in (a,b)" or "key notin (a,b)"'))
      .default([]),
    'Labels of the pods that are workers; a pod must have all of them. Also key!=value, "key in (a,b)" and "key notin (a,b)".',
    { needsRestart: true, split: splitSelector },
  ),
  serviceDiscoveryPort: option('<port>', port.min(1).default(80), 'Port of the engines in these pods.', {
    needsRestart: true,
  }),
  serviceDiscoveryNamespace: option(
    '<name>',
    z
      .string()
      .regex(/^(\*|[a-z\d]([a-z\d-]{0,61}[a-z\d])?)$/, 'not the name of a namespace')
      .optional(),
    'Namespace of these pods; * for all namespaces (needs a ClusterRole). Default: the namespace of this router.',
    { needsRestart: true },
  ),
  endpointTargetPorts: option(
    '<port...>',
    numbers(z.int().min(1).max(65_535)).max(8).default([]),
    'Ports of the engines in these pods, in place of --service-discovery-port: each port is a worker.',
    { needsRestart: true, split: splitNumbers },
  ),
  poolName: option(
    '<name>',
    namespaceName.optional(),
    'Discover engines by this InferencePool (Gateway API Inference Extension), in place of --service-discovery: its selector and its target ports are followed, and each port of a pod is a worker.',
    { needsRestart: true },
  ),
  poolNamespace: option(
    '<name>',
    namespaceName.optional(),
    'Namespace of the InferencePool and its pods. Default: the namespace of this router.',
    { needsRestart: true },
  ),
  poolGroup: option(
    '<group>',
    z.enum(['inference.networking.k8s.io']).default('inference.networking.k8s.io'),
    'API group of the InferencePool, in its version v1.',
    { needsRestart: true },
  ),
  bootstrapPortAnnotation: option(
    '<name>',
    z.string().min(1).default('sglang.ai/bootstrap-port'),
    'Pod annotation that holds the bootstrap port of a prefill engine.',
    { needsRestart: true },
  ),
  prefillSelector: option(
    '<key=value...>',
    selector.default([]),
    'Labels of the pods that are prefill engines, in place of --selector.',
    { needsRestart: true },
  ),
  decodeSelector: option(
    '<key=value...>',
    selector.default([]),
    'Labels of the pods that are decode engines. A pod that matches both selectors gets the role of the more specific one.',
    { needsRestart: true },
  ),
} as const;
