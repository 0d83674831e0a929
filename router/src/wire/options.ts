import type { Config } from '../config/options.ts';
import type { ListenerOptions } from './listener.ts';

/** The data port. */
export const dataPort = (config: Config): ListenerOptions => ({
  host: config.host,
  port: config.port,
  isAdminPort: false,
  reusePort: config.reusePort,
  maxPayloadBytes: config.maxPayloadSize,
  allowsHalfClose: config.allowHalfClose,
  maxConnections: config.maxConnections,
  maxConnectionsPerClient: config.maxConnectionsPerClient,
  timeouts: {
    headMs: config.clientHeadTimeoutSecs * 1000,
    bodyIdleMs: config.clientBodyTimeoutSecs * 1000,
    keepAliveMs: config.clientIdleTimeoutSecs * 1000,
    writeMs: config.clientWriteTimeoutSecs * 1000,
  },
});

/** The port of `--admin-port`: like the data port in everything else. */
export const adminPort = (config: Config): ListenerOptions => ({
  ...dataPort(config),
  host: config.adminHost,
  port: config.adminPort ?? 0,
  isAdminPort: true,
});
