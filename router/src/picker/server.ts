import {
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceDefinition,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js';
import { serverCertificates } from '../config/certificates.ts';
import type { Config } from '../config/options.ts';
import type { Logger } from '../observe/log.ts';
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
  close(): void;
}

export interface PickerServerParts extends PickerParts {
  readonly config: Config;
  readonly log: Logger;
  readonly isDraining: () => boolean;
}

/** Serves `ext_proc` streams of gateways. Rejects with the option if a port cannot be listened on. */
export async function startPicker(parts: PickerServerParts): Promise<Picker> {
  const { config, log, isDraining } = parts;
  const definitions = services();
  const picker = new Server({ 'grpc.max_concurrent_streams': 2 ** 31 - 1 });
  picker.addService(definitions[EXTERNAL_PROCESSOR] as ServiceDefinition, {
    Process(stream: ServerDuplexStream<ProcessingRequest, ProcessingResponse>) {
      const request = new PickedRequest(
        parts,
        (message) => stream.writable && stream.write(message),
        () => stream.end(),
      );
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
  const health = new Server();
  const known = new Set(['', 'liveness', 'readiness', EXTERNAL_PROCESSOR]);
  const statusOf = (service: string): number => (service !== 'liveness' && isDraining() ? NOT_SERVING : SERVING);
  health.addService(definitions[HEALTH_SERVICE] as ServiceDefinition, {
    Check({ request: { service } }: ServerUnaryCall<Asked, Said>, answer: sendUnaryData<Said>) {
      if (known.has(service)) answer(null, { status: statusOf(service) });
      else answer({ code: status.NOT_FOUND, details: `There is no service ${service} here.` });
    },
    Watch(stream: ServerWritableStream<Asked, Said>) {
      const { service } = stream.request;
      let last = -1;
      const tell = (): void => {
        const now = known.has(service) ? statusOf(service) : SERVICE_UNKNOWN;
        if (now !== last) stream.write({ status: (last = now) });
      };
      tell();
      const timer = setInterval(tell, WATCH_MS);
      stream.on('cancelled', () => clearInterval(timer));
    },
  });
  const credentials = await credentialsOf(config);
  const close = (): void => {
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
    return { address, healthAddress, close };
  } catch (error) {
    close();
    throw error;
  }
}

/** Of `HealthCheckResponse`. */
const [SERVING, NOT_SERVING, SERVICE_UNKNOWN] = [1, 2, 3];
const WATCH_MS = 1_000;

interface Asked {
  readonly service: string;
}

interface Said {
  readonly status: number;
}

async function credentialsOf(config: Config): Promise<ServerCredentials> {
  if (config.pickerTls === 'off') return ServerCredentials.createInsecure();
  const given = serverCertificates(config);
  if (given !== null) {
    const { ca = null, cert, key } = given as { ca?: Buffer; cert: Buffer; key: Buffer };
    return ServerCredentials.createSsl(ca, [{ cert_chain: cert, private_key: key }], ca !== null);
  }
  // As gateways expect it of an endpoint picker: they encrypt, and do not check who answers.
  const { generate } = await import('selfsigned');
  const made = await generate([{ name: 'commonName', value: 'turnout' }], { keySize: 2048, algorithm: 'sha256' });
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
