import { randomUUID } from 'node:crypto';
import type { ServerOptions as Http2Options } from 'node:http2';
import { hostname } from 'node:os';
import {
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerOptions,
  type ServiceDefinition,
  status,
} from '@grpc/grpc-js';
import { serverCertificates } from '../config/certificates.ts';
import type { Config } from '../config/options.ts';
import { findAccess } from '../fleet/discover/kube-access.ts';
import type { Discovery } from '../fleet/discover/kubernetes.ts';
import { cameWithin } from '../kit/came-within.ts';
import type { Logger } from '../observe/log.ts';
import { healthService } from './health.ts';
import { Leader } from './leader.ts';
import {
  EXTERNAL_PROCESSOR,
  HEALTH_SERVICE,
  type ProcessingRequest,
  type ProcessingResponse,
  services,
} from './messages.ts';
import { PickedRequest, type PickerParts } from './picked-request.ts';

/** A running endpoint picker. */
export interface Picker {
  /** `host:port` of the service, and of its health. */
  readonly address: string;
  readonly healthAddress: string;
  /** null: no leader is elected. */
  readonly leader: Pick<Leader, 'isLeading'> | null;
  /** Before the process ends: another replica is to lead. */
  drain(): void;
  /** After `drain`: gateways had the time to notice that this picker does not serve any more. */
  readonly isHandedOver: boolean;
  close(): Promise<void>;
}

export interface PickerServerParts extends PickerParts {
  readonly config: Config;
  readonly log: Logger;
  readonly isDraining: () => boolean;
  /** null: workers are not discovered. */
  readonly discovery: Pick<Discovery, 'isSynced'> | null;
  readonly pings?: PingTimes;
}

export interface PingTimes {
  readonly everyMs: number;
  readonly timeoutMs: number;
}

/**
 * A gateway whose machine is gone closes no connection, and while its requests are at engines the picker writes nothing that could fail: without
 * pings they would be in flight for ever.
 */
const PINGS: PingTimes = { everyMs: 15_000, timeoutMs: 20_000 };

/** Serves `ext_proc` streams of gateways. Rejects with the option if a port cannot be listened on. */
export async function startPicker(parts: PickerServerParts): Promise<Picker> {
  const { config, log, isDraining, discovery, pings = PINGS } = parts;
  const definitions = services();
  const picker = grpcServer(pings, {
    'grpc.max_concurrent_streams': 2 ** 31 - 1,
    // A buffered body is one message: gRPC's own limit is 4 MB. A reload does not change it.
    'grpc.max_receive_message_length': config.maxPayloadSize + MESSAGE_BYTES,
  });
  const active = new Set<PickedRequest>();
  picker.addService(definitions[EXTERNAL_PROCESSOR] as ServiceDefinition, {
    Process(stream: ServerDuplexStream<ProcessingRequest, ProcessingResponse>) {
      const request = new PickedRequest(parts, {
        write: (message) => stream.writable && stream.write(message),
        end: () => stream.end(),
        fail: (details) => stream.emit('error', { code: status.UNAVAILABLE, details }),
      });
      active.add(request);
      stream.on('close', () => active.delete(request));
      stream.on('data', (message: ProcessingRequest) => {
        try {
          request.take(message);
        } catch (error) {
          log.error({ err: error }, 'endpoint picker: request not processed');
          request.left();
          stream.destroy(error as Error);
        }
      });
      stream.on('end', () => {
        request.left();
        stream.end();
      });
      for (const event of ['cancelled', 'error']) stream.on(event, () => request.left());
    },
  });
  const leader = await electionOf(config, log);
  // A leader that drains serves until gateways know the next one: with none to ask they would refuse requests, or choose engines themselves.
  const isServing = (): boolean =>
    discovery?.isSynced !== false &&
    (leader === null ? !isDraining() : leader.isLeading || leader.hasHandedOverWithin(NOTICE_MS));
  const health = grpcServer(pings);
  const healthChecks = healthService(isServing);
  for (const server of config.pickerHealthChecking ? [picker, health] : [health])
    server.addService(definitions[HEALTH_SERVICE] as ServiceDefinition, healthChecks);
  const credentials = await credentialsOf(config);
  const close = async (): Promise<void> => {
    await leader?.close();
    for (const request of active) request.release();
    await cameWithin(STREAM_END_MS, new Promise((resolve) => picker.tryShutdown(resolve)));
    picker.forceShutdown();
    health.forceShutdown();
  };
  try {
    const address = await bound(picker, config.pickerHost, config.pickerPort!, credentials, '--picker-port');
    const plain = ServerCredentials.createInsecure();
    const healthAddress = await bound(
      health,
      config.pickerHost,
      config.pickerHealthPort,
      plain,
      '--picker-health-port',
    );
    log.info({ tls: config.pickerTls, health: healthAddress }, `endpoint picker listening on ${address}`);
    let lastServingMs = 0;
    let drainedMs = 0;
    return {
      address,
      healthAddress,
      leader,
      drain() {
        lastServingMs = drainedMs = performance.now();
        leader?.release();
      },
      get isHandedOver() {
        const nowMs = performance.now();
        if (isServing() && nowMs - drainedMs < SUCCESSOR_MS) lastServingMs = nowMs;
        return nowMs - lastServingMs >= NOTICE_MS;
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** So many streams may be reset on one connection, and so many more each second. */
const RESETS = 1_000_000;

/**
 * Envoy resets the stream of each request at its end. Node.js closes a connection after 1,000 resets, when more than 33 a second follow: that
 * is meant for clients that are not trusted. grpc-js (1.14) has no option for it.
 */
function grpcServer({ everyMs, timeoutMs }: PingTimes, options: ServerOptions = {}): Server {
  const server = new Server({
    'grpc.keepalive_time_ms': everyMs,
    'grpc.keepalive_timeout_ms': timeoutMs,
    ...options,
  });
  const http2Options: Http2Options = server['commonServerOptions'];
  http2Options.streamResetBurst = http2Options.streamResetRate = RESETS;
  return server;
}

/** How long gateways may take to notice that a picker serves, or does not serve any more. */
const NOTICE_MS = 3_000;
/** How long a leader that ends waits for another one. */
const SUCCESSOR_MS = 15_000;
/** How long streams that were ended may take to close. */
const STREAM_END_MS = 1_000;
/** Of a message, beside the body in it. */
const MESSAGE_BYTES = 1_048_576;

/** @returns null: no leader is elected. Rejects with the option if there are no credentials for the API server. */
async function electionOf({ leaderElection, poolName = 'turnout' }: Config, log: Logger): Promise<Leader | null> {
  if (leaderElection === undefined) return null;
  const lease = leaderElection === 'auto' ? `${poolName}-picker` : leaderElection;
  const access = await findAccess().catch((error: unknown) => {
    throw new Error(`--leader-election: ${(error as Error).message}`, { cause: error });
  });
  // The name of a pod is its host name; the rest distinguishes two processes of one pod.
  const identity = `${hostname()}_${randomUUID()}`;
  return new Leader({ access, find: findAccess, lease, identity, log });
}

async function credentialsOf(config: Config): Promise<ServerCredentials> {
  if (config.pickerTls === 'off') return ServerCredentials.createInsecure();
  const given = serverCertificates(config);
  if (given !== null) {
    const { ca = null, cert, key } = given as { ca?: Buffer; cert: Buffer; key: Buffer };
    return ServerCredentials.createSsl(ca, [{ cert_chain: cert, private_key: key }], ca !== null);
  }
  // As gateways expect it of an endpoint picker: they encrypt, and do not check who answers.
  // A CommonJS package, of which the built router has the default export only.
  const { default: selfsigned } = await import('selfsigned');
  const made = await selfsigned.generate([{ name: 'commonName', value: 'turnout' }], {
    keySize: 2048,
    algorithm: 'sha256',
  });
  return ServerCredentials.createSsl(null, [
    { cert_chain: Buffer.from(made.cert), private_key: Buffer.from(made.private) },
  ]);
}

function bound(
  server: Server,
  host: string,
  port: number,
  credentials: ServerCredentials,
  flag: string,
): Promise<string> {
  const shown = host.includes(':') ? `[${host}]` : host;
  return new Promise((resolve, reject) =>
    server.bindAsync(`${shown}:${port}`, credentials, (error, at) => {
      if (error === null) resolve(`${shown}:${at}`);
      else reject(new Error(`${flag} ${port}: cannot listen on ${shown}: ${error.message}`, { cause: error }));
    }),
  );
}
