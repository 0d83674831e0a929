export { tenantKey } from '../../classify/tenant-key.ts';
