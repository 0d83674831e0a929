import { eventsOf, type Answer } from './call.ts';

/** Where in an answer which types of JSON value stand: `choices[].logprobs.tokens[]` → string. */
export type Shape = Map<string, Set<string>>;

/** Objects whose names are data, the tokens that might have been said: texts beside numbers, or ids. */
const dictionaries = /\.top_logprobs\[\]$/;
const isId = (name: string): boolean => /^\d+$/.test(name);

/** Of Prometheus' text format: 0.0.4 or 1.0.0, the same to a reader of counters. */
const metricsVersion = / version=[\d.]+;/;

/** The shape of several answers to one question, for what is null in one of them may not be in the next. */
export function shapeOf(answers: Answer[]): Shape {
  const shape: Shape = new Map();
  for (const { status, headers, body } of answers) {
    const type = headers['content-type']?.replace(metricsVersion, '');
    note(shape, 'status', String(status));
    note(shape, 'content-type', body === '' ? 'of nothing' : String(type));
    if (type?.startsWith('text/event-stream')) {
      for (const [moment, event] of moments(body)) visit(shape, moment, event);
    } else if (type?.startsWith('application/json')) visit(shape, 'body', JSON.parse(body));
    else if (metricsVersion.test(headers['content-type'] ?? '')) visitMetrics(shape, body);
  }
  return shape;
}

/** Where an event stands decides what it carries: prompt ids come with the first one, usage after the last. */
function moments(body: string): [string, unknown][] {
  return eventsOf(body).map((text, index) => {
    if (text === '[DONE]') return ['end', text];
    const event = JSON.parse(text) as Record<string, unknown>;
    if ('error' in event) return ['error', event];
    if (typeof event['type'] === 'string') return [event['type'], event];
    if (Array.isArray(event['choices']) && event['choices'].length === 0) return ['usage', event];
    if (/"finish_reason":["{]/.test(text)) return ['last', event];
    return [index === 0 ? 'first' : 'between', event];
  });
}

function visit(shape: Shape, at: string, value: unknown): void {
  note(shape, at, value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value);
  if (typeof value !== 'object' || value === null) return;
  if (Array.isArray(value)) for (const item of value) visit(shape, `${at}[]`, item);
  else
    for (const [name, item] of Object.entries(value))
      visit(
        shape,
        isId(name) || (dictionaries.test(at) && typeof item === 'number') ? `${at}.*` : `${at}.${name}`,
        item,
      );
}

/** Prometheus text: `name{label,label}`. */
function visitMetrics(shape: Shape, text: string): void {
  for (const line of text.split('\n')) {
    const [, name, labels = ''] = /^(\w[\w:]*)(?:\{(.*)\})? /.exec(line) ?? [];
    if (name === undefined) continue;
    note(shape, name, 'metric');
    for (const [, label] of labels.matchAll(/(\w+)="/g)) note(shape, `${name}{${label}}`, 'label');
  }
}

function note(shape: Shape, at: string, type: string): void {
  const types = shape.get(at) ?? new Set();
  shape.set(at, types.add(type));
}

/** What stands in a shape that the other has not, one line each; of what is not there at all only the topmost. */
export function beyond(shape: Shape, other: Shape): string[] {
  return [...shape].flatMap(([at, types]) => {
    const known = other.get(at);
    if (known !== undefined) {
      const foreign = [...types].filter((type) => !known.has(type));
      return foreign.length === 0 ? [] : [`${at} is ${foreign.join(', ')}, really ${[...known].join(', ')}`];
    }
    const above = at.replace(/(\[\]|\{\w+\}|\.[^.[{]*)$/, '');
    const isToldAbove = above !== at && !other.has(above);
    const isOfEmptyList = at.endsWith('[]') && other.get(above)?.has('array');
    return isToldAbove || isOfEmptyList ? [] : [`${at} is not there`];
  });
}
