import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';

const source = resolve(import.meta.dirname, '../../src');

/** The stages of a request, and their files. */
const stages: Readonly<Record<string, RegExp>> = {
  pipeline: /^(pipeline|ends)\.ts$/,
  phases: /^phases\//,
  classify: /^classify\//,
  admit: /^admit\//,
  choose: /^choose\//,
  gate: /^swap\/gate\.ts$/,
  control: /^forward\/control\//,
  forward: /^forward\/(?!control\/)/,
  picker: /^picker\//,
  resume: /^resume\//,
  observe: /^observe\//,
};

/** Which stages set a field of the exchange, from outside of its class. Nothing else does; '': its methods only. */
const owners: Readonly<Record<string, string>> = {
  sink: '',
  isRequestIdOurs: 'classify',
  path: 'classify',
  clientPath: 'classify',
  clientTarget: 'phases',
  errorFormat: 'classify',
  prompt: 'classify',
  promptIds: 'classify',
  isModelKnown: 'classify',
  bodyBytes: 'classify',
  readsState: 'classify',
  cacheUse: 'classify',
  isGeneration: 'classify',
  roles: 'classify forward',
  timeoutMs: 'classify pipeline',
  keyDigest: 'admit',
  seesAllTenants: 'admit',
  arrival: '',
  placer: 'choose gate',
  policyState: 'choose',
  isOverdue: 'choose',
  placement: 'choose control',
  candidates: 'choose',
  predictedTokens: 'choose',
  traceLine: 'observe',
  why: 'choose control',
  move: 'choose',
  waiting: 'admit choose',
  queuedMs: 'admit',
  heldMs: 'choose',
  heldFor: 'choose',
  isCounted: 'choose',
  audience: 'control',
  isForEngine: 'control',
  freed: 'choose',
  answeredBy: 'forward',
  tried: 'choose',
  failures: '',
  pastFailures: '',
  seams: 'resume',
  trials: 'choose observe',
  attempts: 'pipeline control',
  status: 'pipeline',
  isStream: 'pipeline',
  readOnBytes: 'forward',
  isAnswerOut: '',
  firstByteMs: 'pipeline',
  carrier: 'picker',
  sentMs: 'forward picker',
  firstTokenMs: 'forward picker',
  endMs: 'pipeline',
  lastByteMs: 'pipeline forward picker',
  answerBytes: 'forward picker',
  answerReads: 'forward picker',
  usage: 'forward resume picker',
  outcome: 'pipeline',
  error: 'pipeline',
  // By `IndexedSet`.
  setIndex: '',
  isInside: 'admit',
  limit: 'pipeline',
  plugins: 'phases',
};

/** What plugins and features may set, too: what `ExchangeView` allows, and what the exchange waits for. */
const shared = ['key', 'group', 'model', 'isLastTurn', 'target', 'engineTarget', 'activity'];

const files = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter(
  (file) => /(?<!\.test)\.ts$/.test(file) && file !== 'exchange.ts',
);
const WRITE = /\b(?:x|exchange|view)\.(\w+)\s*(?:=(?![=>])|\+\+|--|[-+*/]=|(?:\?\?|\|\||&&)=)/g;

test('a field of an exchange is set by the stage that owns it', () => {
  const writes = files.flatMap((file) =>
    [...readFileSync(join(source, file), 'utf8').matchAll(WRITE)].map(([, field]) => ({ file, field: field! })),
  );
  assert.ok(writes.length > 60, 'the files were really read');
  const wrong = writes.filter(({ file, field }) => {
    if (!(field in owners)) return !shared.includes(field);
    return !owners[field]!.split(' ').some((stage) => stages[stage]?.test(file));
  });
  assert.deepEqual(
    wrong.map(({ file, field }) => `${file}: ${field}`),
    [],
  );
});

test('each field that can be set has an owner or is shared', () => {
  const membersOf = (file: string, name: string): string => {
    const text = readFileSync(join(source, file), 'utf8');
    return text.slice(text.indexOf(`export class ${name}`));
  };
  const members = membersOf('placed-request.ts', 'PlacedRequest') + membersOf('exchange.ts', 'Exchange');
  const fields = [
    ...members.matchAll(/^ {2}(?!readonly )(?:set )?(\w+)(?:: [^=\n]*)?(?: = [^\n]*;|;|\(\w+: \w+\) \{)$/gm),
  ].map(([, name]) => name!);
  assert.deepEqual(fields.toSorted(), [...Object.keys(owners), ...shared].toSorted());
  assert.ok(shared.length <= 12);
});
test('a plugin of the router names the whole exchange as its type: it casts no view to it', () => {
  const casts = files.filter((file) =>
    /^(?!import).*\bas (?:unknown as )?Exchange\b(?! *[,}])/m.test(readFileSync(join(source, file), 'utf8')),
  );
  assert.deepEqual(casts, []);
});
