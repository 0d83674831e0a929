import { z } from 'zod';
import { flag, inGroup, port } from './option.ts';

/** Names and values of labels: Kubernetes, "Labels and Selectors", syntax and character set. */
const LABEL =
  /^([a-z\d]([a-z\d.-]{0,251}[a-z\d])?\/)?[A-Za-z\d]([\w.-]{0,61}[A-Za-z\d])?=([A-Za-z\d]([\w.-]{0,61}[A-Za-z\d])?)?$/;
const selector = z.array(z.string().regex(LABEL, 'expected key=value, as in the labels of pods'));

const option = inGroup('Workers');

export const discoveryOptions = {
  serviceDiscovery: option(
    '',
    flag,
    'Find engines among the pods of Kubernetes: those that --selector names join when they are ready, and finish what they have when they are deleted.',
    { needsRestart: true },
  ),
  selector: option(
    '<key=value...>',
    selector.default([]),
    'Labels that a pod must have, all of them, to be a worker.',
    { needsRestart: true },
  ),
  serviceDiscoveryPort: option('<port>', port.min(1).default(80), 'Where the engines in those pods listen.', {
    needsRestart: true,
  }),
  serviceDiscoveryNamespace: option(
    '<name>',
    z
      .string()
      .regex(/^(\*|[a-z\d]([a-z\d-]{0,61}[a-z\d])?)$/, 'not the name of a namespace')
      .optional(),
    'Where those pods are; * for all namespaces (which takes a ClusterRole). Default: the namespace of this router.',
    { needsRestart: true },
  ),
  bootstrapPortAnnotation: option(
    '<name>',
    z.string().min(1).default('sglang.ai/bootstrap-port'),
    'An annotation of pods: the bootstrap port of a prefill engine. Also shown as bootstrap_port in the metadata of workers.',
    { needsRestart: true },
  ),
  prefillSelector: option(
    '<key=value...>',
    selector.default([]),
    'For pairs, in place of --selector: labels that a pod must have, all of them, to be a prefill engine.',
    { needsRestart: true },
  ),
  decodeSelector: option(
    '<key=value...>',
    selector.default([]),
    'The same for decode engines. A pod that fits both is of the role whose selector has all of the other and more.',
    { needsRestart: true },
  ),
} as const;
