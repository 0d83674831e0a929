import type { TopTokens } from '../../../generation/delta.ts';
import type { Sampled } from './sampled.ts';

/**
 * @param places the likeliest tokens for each sampled token
 * @param count of sampled tokens: with another number of places it is not known which token each belongs to
 */
export function topTokens(places: readonly TopTokens[], count: number): Pick<Sampled, 'top'> {
  return places.length !== count || places.every(({ length }) => length === 0) ? {} : { top: places };
}

/** As a turn stores them. */
export const topBytes = ({ top }: Pick<Sampled, 'top'>): { topTokens?: Uint8Array } =>
  top === undefined ? {} : { topTokens: new Uint8Array(Buffer.from(JSON.stringify(top))) };
