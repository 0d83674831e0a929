import type { Server } from 'node:http';
import { connect, createServer } from 'node:net';
import { hostTest } from '../admit/known-hosts.ts';
import { serverCertificates } from '../config/certificates.ts';
import type { LiveConfig } from '../config/live.ts';
import type { Config } from '../config/options.ts';
import type { CoarseClock } from '../kit/clock.ts';
import { type MetricsPages, createMetricsServer } from '../observe/metrics-server.ts';
import { listenOn, listenOr } from '../wire/listen-on.ts';
import type { RequestListener } from '../wire/client-connection.ts';
import { Listener, type ListenerOptions } from '../wire/listener.ts';
import type { RetryBudget } from '../wire/request-body.ts';

/** The data port. */
const dataPort = (config: Config): ListenerOptions => ({
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

/** Has all other options of the data port. */
const adminPort = (config: Config): ListenerOptions => ({
  ...dataPort(config),
  host: config.adminHost,
  port: config.adminPort ?? 0,
  isAdminPort: true,
});

const TAKEN_MS = 250;

interface WantedPort {
  readonly flag: string;
  readonly hostFlag: string;
  readonly host: string;
  readonly port: number;
  /** Other processes may listen there too. */
  readonly reusePort: boolean;
  readonly isGrpc: boolean;
}

/** All ports that a router with this configuration listens on. */
export function wantedPorts(config: Config): WantedPort[] {
  const { host, port, adminHost, adminPort, prometheusHost, prometheusPort, reusePort } = config;
  const { pickerHost, pickerPort, pickerHealthPort } = config;
  const http = { reusePort, isGrpc: false };
  const grpc = { hostFlag: '--picker-host', host: pickerHost, reusePort: false, isGrpc: true };
  return [
    { flag: '--port', hostFlag: '--host', host, port, ...http },
    { flag: '--prometheus-port', hostFlag: '--prometheus-host', host: prometheusHost, port: prometheusPort, ...http },
    ...(adminPort === undefined
      ? []
      : [{ flag: '--admin-port', hostFlag: '--admin-host', host: adminHost, port: adminPort, ...http }]),
    ...(pickerPort === undefined
      ? []
      : [
          { flag: '--picker-port', port: pickerPort, ...grpc },
          { flag: '--picker-health-port', port: pickerHealthPort, ...grpc },
        ]),
  ];
}

/** Rejects with the name of the option if a port is in use: before the start opens files, loads a tokenizer and adds workers. */
export async function checkPorts(config: Config): Promise<void> {
  for (const { flag, hostFlag, host, port, reusePort } of wantedPorts(config)) {
    // With several listeners the system would give connections to the probe.
    if (reusePort || port === 0) continue;
    // Listening on the port itself would accept clients for a moment and drop them, so the host is tried with another port.
    const probe = createServer();
    const check = async (): Promise<number> => {
      const found = await listenOn(probe, { host, port: 0, reusePort });
      if (await isTaken(host, port)) throw Object.assign(new Error('taken'), { code: 'EADDRINUSE' });
      return found;
    };
    try {
      await listenOr(check, `${flag} ${port}`, `${hostFlag} ${host}`);
    } finally {
      probe.close();
    }
  }
}

/** Whether a process accepts connections there. A slow one is detected by the real attempt to listen. */
function isTaken(host: string, port: number): Promise<boolean> {
  const anyAddress: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' };
  const socket = connect({ host: anyAddress[host] ?? host, port, timeout: TAKEN_MS });
  return new Promise<boolean>((resolve) => {
    socket.once('connect', () => resolve(true));
    socket.once('error', () => resolve(false));
    socket.once('timeout', () => resolve(false));
  }).finally(() => socket.destroy());
}

/** All ports that the router listens on: for data, with `--admin-port` one for control requests, and one for metrics. */
export class Ports {
  readonly data: Listener;
  readonly #admin: Listener | null;
  #metrics: Server | null = null;
  readonly #config: Config;

  constructor(live: LiveConfig, clock: CoarseClock, retryBudget: RetryBudget) {
    this.#config = live.current;
    const tls = serverCertificates(this.#config);
    const listener = (options: typeof dataPort): Listener => new Listener(clock, retryBudget, live.of(options), tls);
    this.data = listener(dataPort);
    this.#admin = this.#config.adminPort === undefined ? null : listener(adminPort);
  }

  get listeners(): readonly Listener[] {
    return this.#admin === null ? [this.data] : [this.data, this.#admin];
  }

  /** Rejects, naming the option, when an address can't be listened on. */
  async open(requests: RequestListener, pages: MetricsPages) {
    const { host, port, adminHost, prometheusHost, prometheusPort, reusePort, allowedHosts } = this.#config;
    const metricsServer = createMetricsServer(pages, hostTest(prometheusHost, allowedHosts));
    this.#metrics = metricsServer;
    const metricsAt = { port: prometheusPort, host: prometheusHost, reusePort };
    const admin = this.#admin;
    const adminAt =
      admin &&
      (await listenOr(
        () => admin.listen(requests),
        `--admin-port ${this.#config.adminPort}`,
        `--admin-host ${adminHost}`,
      ));
    const metrics = await listenOr(
      () => listenOn(metricsServer, metricsAt),
      `--prometheus-port ${prometheusPort}`,
      `--prometheus-host ${prometheusHost}`,
    );
    // The last one: by the time that it accepts requests nothing keeps the router from starting.
    const dataAt = await listenOr(() => this.data.listen(requests), `--port ${port}`, `--host ${host}`);
    const scheme = this.data.isTls ? 'https' : 'http';
    const placeOf = (on: string, at: number) => `${on.includes(':') ? `[${on}]` : on}:${at}`;
    return {
      url: `${scheme}://${placeOf(host, dataAt)}`,
      /** null: the data port takes control requests. */
      adminUrl: adminAt === null ? null : `${scheme}://${placeOf(adminHost, adminAt)}`,
      metricsUrl: `http://${placeOf(prometheusHost, metrics)}/metrics`,
    };
  }

  /** Reads the certificates of `next`; throws if they are not valid. @returns a function that applies them */
  prepareReload(next: Config): () => void {
    const renewed = serverCertificates(next);
    return () => {
      if (renewed !== null) for (const each of this.listeners) each.reloadTls(renewed);
    };
  }

  sweep(): void {
    for (const each of this.listeners) each.sweep();
  }

  close(): void {
    for (const each of this.listeners) each.close();
    this.#metrics?.close();
    this.#metrics?.closeAllConnections();
  }
}
