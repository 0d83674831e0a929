import type { ClientAnswer } from '../harness/client.ts';

export interface Report {
  readonly results: {
    readonly worker: string;
    readonly status: number | null;
    readonly body?: unknown;
    readonly error?: string;
    readonly ms: number;
  }[];
  readonly ok: number;
  readonly failed: number;
}

export const reportOf = ({ text }: Pick<ClientAnswer, 'text'>): Report => JSON.parse(text) as Report;
