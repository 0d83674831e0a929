import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Command } from 'commander';
import { addPeerFlags, inFull } from '../../src/cli/alias.ts';
import { enginesApart } from '../../src/cli/alias.ts';
import { type Spelling, launchServer, routers } from '../../src/cli/alias.ts';
import { furtherOptions } from '../../src/config/alias/alias.ts';
import { sglang } from '../../src/config/alias/sglang.ts';
import type { Config } from '../../src/config/options.ts';

const launchRouter = routers.find(({ peer }) => peer === sglang)!;

/** What these words come to: a configuration, or why they are refused. */
function readingOf(spelling: Spelling, words: readonly string[]): Config | string {
  const command = new Command().exitOverride().configureOutput({ writeErr: () => {} });
  const read = addPeerFlags(command, spelling);
  try {
    command.parse(words, { from: 'user' });
    return read(command.opts()).read();
  } catch (error) {
    return (error as Error).message;
  }
}

function refusalOf(...words: string[]): string {
  const reading = readingOf(launchServer, words);
  assert.ok(typeof reading === 'string');
  return reading;
}

/** One of them means something to any flag, and others are refused. */
const values = ['7', '0.7', '-1', 'random', 'debug', 'a=b', 'http://a:1', 'i:n:admin:key', 'x', '/x'];

test('every --router- flag of launch_server means what it means to launch_router', () => {
  const bare = JSON.stringify(readingOf(launchRouter, []));
  const telling = new Set<string>();
  for (const { name, takes } of sglang.flags.filter(({ ours }) => ours.length > 0)) {
    for (const words of takes === 'nothing' ? [[]] : values.map((value) => [value])) {
      const there = readingOf(launchRouter, [`--${name}`, ...words]);
      const here = readingOf(launchServer, [`--${launchServer.flagFor(name)}`, ...words]);
      if (typeof there !== 'string' && JSON.stringify(there) !== bare) telling.add(name);
      assert.deepEqual(
        typeof here === 'string' ? here.replaceAll('--router-', '--') : here,
        there,
        `${name} ${words.join(' ')}`,
      );
    }
  }
  assert.ok(telling.size > 40, `only ${telling.size} flags made a difference`);
});

test('so do our own options, and the defaults are the same', () => {
  assert.deepEqual(readingOf(launchServer, []), readingOf(launchRouter, []));
  assert.ok(furtherOptions(sglang).includes('sessionTtlSecs'));
  assert.deepEqual(
    readingOf(launchServer, ['--router-session-ttl-secs', '61']),
    readingOf(launchRouter, ['--session-ttl-secs', '61']),
  );
});

test('what is refused there is refused, by the name it was given', () => {
  assert.match(refusalOf('--router-jwt-issuer', 'x'), /^--router-jwt-issuer: /);
  assert.match(refusalOf('--router-polcy', 'x'), /unknown option '--router-polcy'/);
});

test('beginnings of flags are the router’s own only; engines get their words as they are', () => {
  const line = 'launch_server --model-path m --router-pol random -tp 2 --router-disable-r --pol x --host=h --dp 2';
  assert.deepEqual(
    inFull(enginesApart(line.split(' '))).join(' '),
    'launch_server --dp-size 2 --router-policy random --router-disable-retries --host=h -- --model-path m -tp 2 --pol x',
  );
});
