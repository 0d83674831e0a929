import { file, inGroup } from './option.ts';

const option = inGroup('TLS');

export const tlsOptions = {
  tlsCertPath: option('<file>', file, 'Certificate (PEM) of this server; read again on SIGHUP.', {
    needsRestart: 'when set or unset',
  }),
  tlsKeyPath: option('<file>', file, 'Its private key (PEM).', { needsRestart: 'when set or unset' }),
  caCertPath: option('<file>', file, 'Authorities (PEM) to trust for https workers.', { needsRestart: true }),

  tlsClientCaPath: option('<file>', file, 'Authorities (PEM): clients must show a certificate of theirs.', {
    needsRestart: 'when set or unset',
  }),
  clientCertPath: option('<file>', file, 'Certificate (PEM) that https workers are shown.', { needsRestart: true }),
  clientKeyPath: option('<file>', file, 'Its private key (PEM).', { needsRestart: true }),
} as const;
