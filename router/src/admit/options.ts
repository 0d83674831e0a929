import type { Config } from '../config/options.ts';
import type { AdmissionOptions } from './admission.ts';

export const admissionOptions = (config: Config): AdmissionOptions => ({
  maxConcurrent: config.maxConcurrentRequests,
  workerMaxInflight: config.workerMaxInflight,
  ratePerSec: config.rateLimitTokensPerSecond,
  rateBurst: config.rateLimitBurst,
  queueSize: config.queueSize,
  queueTimeoutMs: config.queueTimeoutSecs * 1000,
});
