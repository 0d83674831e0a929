import * as z from 'zod';
import { flag, inGroup, port } from './option.ts';

/** Kubernetes, "Labels and Selectors", syntax and character set. */
const LABEL =
  /^([a-z\d]([a-z\d.-]{0,251}[a-z\d])?\/)?[A-Za-z\d]([\w.-]{0,61}[A-Za-z\d])?=([A-Za-z\d]([\w.-]{0,61}[A-Za-z\d])?)?$/;
const selector = z.array(z.string().regex(LABEL, 'expected key=value, as in the labels of pods'));

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
    selector.default([]),
    'Labels of the pods that are workers; a pod must have all of them.',
    { needsRestart: true },
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
