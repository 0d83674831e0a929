import { file, inGroup } from './option.ts';

const option = inGroup('TLS');

export const tlsOptions = {
  tlsCertPath: option('<file>', file, 'TLS certificate (PEM) of this server; read again on SIGHUP.', {
    needsRestart: 'when set or unset',
  }),
  tlsKeyPath: option('<file>', file, 'Private key (PEM) of --tls-cert-path.', { needsRestart: 'when set or unset' }),
  caCertPath: option('<file>', file, 'Certificate authorities (PEM) to trust for https workers.', {
    needsRestart: true,
  }),

  tlsClientCaPath: option(
    '<file>',
    file,
    'Certificate authorities (PEM) for client certificates: clients must present one.',
    {
      needsRestart: 'when set or unset',
    },
  ),
  clientCertPath: option('<file>', file, 'Client certificate (PEM) for https workers.', { needsRestart: true }),
  clientKeyPath: option('<file>', file, 'Private key (PEM) of --client-cert-path.', { needsRestart: true }),
} as const;
