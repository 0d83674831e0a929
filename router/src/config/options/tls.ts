import { file, inGroup } from './option.ts';

const option = inGroup('TLS');

export const tlsOptions = {
  tlsCertPath: option('<file>', file, 'Certificate (PEM) of this server; read again on SIGHUP.'),
  tlsKeyPath: option('<file>', file, 'Its private key (PEM).'),
  caCertPath: option('<file>', file, 'Authorities (PEM) to trust for https workers.'),

  tlsClientCaPath: option('<file>', file, 'Authorities (PEM): clients must show a certificate of theirs.'),
  clientCertPath: option('<file>', file, 'Certificate (PEM) that https workers are shown.'),
  clientKeyPath: option('<file>', file, 'Its private key (PEM).'),
} as const;
