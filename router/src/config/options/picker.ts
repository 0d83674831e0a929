import * as z from 'zod';
import { address, count, flag, inGroup, port } from './option.ts';

const option = inGroup('Endpoint picker');

export const pickerOptions = {
  pickerPort: option(
    '<port>',
    port.optional(),
    'Serve as endpoint picker of a Kubernetes gateway, or of any Envoy, on this port (gRPC, ext_proc); 0 picks a free one.',
    { needsRestart: true },
  ),
  pickerHost: option('<address>', address.min(1).default('127.0.0.1'), 'Address of --picker-port.', {
    needsRestart: true,
  }),
  pickerHealthPort: option(
    '<port>',
    port.default(9_003),
    'Port of the gRPC health of the picker; 0 picks a free one.',
    {
      needsRestart: true,
    },
  ),
  pickerFallbacks: option(
    '<count>',
    count.max(16).default(0),
    "Number of other engines that the gateway gets beside the chosen one, in the order in which it may try them where it retries. Needs a gateway that reads lists: Envoy's ORIGINAL_DST takes one address.",
  ),
  pickerHealthChecking: option('', flag, 'Serve the gRPC health on --picker-port too.', { needsRestart: true }),
  leaderElection: option(
    '<lease>',
    z
      .string()
      .regex(/^[a-z\d]([a-z\d.-]{0,251}[a-z\d])?$/, 'not a name of Kubernetes')
      .optional(),
    'Elect a leader among the pickers that give the same Lease (coordination.k8s.io) of their namespace; auto: NAME-picker for --pool-name NAME. The gRPC health of the others is not serving, so that gateways ask the leader.',
    { needsRestart: true },
  ),
  pickerUsage: option(
    '<mode>',
    z.enum(['auto', 'on', 'off']).default('auto'),
    'Whether the gateway is asked to send the bodies of responses to generations, which have token counts: auto (if the policy uses the counts, as rollout does), on or off. Needs allow_mode_override in the ext_proc filter; without it the processing mode of the filter decides.',
  ),
  pickerTls: option(
    '<mode>',
    z.enum(['on', 'off']).default('on'),
    'TLS of --picker-port: on (with --tls-cert-path, else with a self-signed certificate, as gateways expect) or off.',
    { needsRestart: true },
  ),
} as const;
