import {
  type ServerUnaryCall,
  type ServerWritableStream,
  type UntypedServiceImplementation,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js';
import { EXTERNAL_PROCESSOR } from './messages.ts';

/** Of `HealthCheckResponse`. */
const [SERVING, NOT_SERVING, SERVICE_UNKNOWN] = [1, 2, 3];
const WATCH_MS = 1_000;

interface Asked {
  readonly service: string;
}

interface Said {
  readonly status: number;
}

const known = new Set(['', 'liveness', 'readiness', EXTERNAL_PROCESSOR]);

/** gRPC's health service. The service `liveness` is always serving, the others while `isServing`. */
export function healthService(isServing: () => boolean): UntypedServiceImplementation {
  const statusOf = (service: string): number => (service === 'liveness' || isServing() ? SERVING : NOT_SERVING);
  return {
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
  };
}
