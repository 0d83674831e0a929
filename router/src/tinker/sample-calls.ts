import { type Wanted, readAnswer } from './read-answer.ts';
import { readSample } from './read-sample.ts';

/** What is done on another thread where it is large. */
export const sampleCalls = {
  readSample: (body: Buffer) => readSample(body),
  readAnswer: (body: Buffer, wanted: Wanted) => readAnswer(body, wanted),
} as const;

export type SampleCalls = typeof sampleCalls;
