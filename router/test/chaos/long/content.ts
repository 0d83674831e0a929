/** What travels in a chaos run. Both ends can tell for every id what its request and its answers must hold. */

/** `size` characters that name their owner everywhere: a piece of another's text is never mistaken for it. */
export function pad(owner: string, size: number): string {
  const word = `${owner};`;
  return word.repeat(Math.ceil(size / word.length)).slice(0, size);
}

/** A request's body: the engine compares every byte of it. */
export interface Asked {
  readonly id: number;
  readonly session: string;
  readonly size: number;
  readonly stream: boolean;
}

export function requestBody({ id, session, size, stream }: Asked): string {
  return `{"model":"chaos","id":${id},"session":"${session}","size":${size},"stream":${stream},"max_tokens":64,"prompt":"${pad(session, size)}"}`;
}

/** @returns what was asked, or null where the body is not exactly what a client sends. */
export function readBody(text: string): Asked | null {
  const fields = /^\{"model":"chaos","id":(\d+),"session":"(\w+)","size":(\d+),"stream":(true|false),/.exec(text);
  if (fields === null) return null;
  const asked = { id: Number(fields[1]), session: fields[2]!, size: Number(fields[3]), stream: fields[4] === 'true' };
  return text === requestBody(asked) ? asked : null;
}

/** One event of a stream, by the `x`th execution of the id. */
export const eventText = (id: number, x: number, n: number, size: number): string =>
  `data: {"id":${id},"x":${x},"n":${n},"text":"${pad(`${id}.${x}.${n}`, size)}"}\n\n`;

export const DONE = 'data: [DONE]\n\n';

/** A whole JSON answer. */
export const jsonAnswer = (id: number, x: number, size: number): string =>
  `{"id":${id},"x":${x},"text":"${pad(`${id}.${x}`, size)}","usage":{"prompt_tokens":100,"completion_tokens":${1 + (size >> 2)}}}`;
