import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { Builds } from './builds.ts';

/** A build whose end the test decides. */
function begin(builds: Builds, identity: string) {
  const made = Promise.withResolvers<string | null>();
  const seen = { isAborted: false, isSignalled: false };
  builds.begin(
    identity,
    (signal) => {
      signal.addEventListener('abort', () => (seen.isAborted = true));
      return made.promise;
    },
    () => {
      seen.isSignalled = true;
    },
  );
  const end = async (problem: string | null): Promise<void> => {
    made.resolve(problem);
    await made.promise;
  };
  return { seen, end };
}

const shown = (builds: Builds) => {
  const build = builds.last;
  return build === null ? null : [build.identity, build.error];
};

test('a snapshot that is made is signalled, and no build is left', async () => {
  const builds = new Builds();
  const { seen, end } = begin(builds, 'v2');
  deepEqual(shown(builds), ['v2', null]);
  await end(null);
  equal(seen.isSignalled, true);
  equal(shown(builds), null);
});

test('one that is not made leaves its error', async () => {
  const builds = new Builds();
  const failed = begin(builds, 'v2');
  await failed.end('no space');
  equal(failed.seen.isSignalled, false);
  deepEqual(shown(builds), ['v2', 'no space']);
});

test('a superseded one is aborted, and its end says nothing', async () => {
  const builds = new Builds();
  const [first, second] = [begin(builds, 'v2'), begin(builds, 'v3')];
  deepEqual([first.seen.isAborted, second.seen.isAborted], [true, false]);
  await first.end('aborted');
  deepEqual(shown(builds), ['v3', null]);
  builds.drop();
  await second.end(null);
  equal(second.seen.isSignalled, false);
  equal(shown(builds), null);
});

test('a build begins when the one before has ended, and not at all if it is superseded by then', async () => {
  const builds = new Builds();
  const begun: string[] = [];
  const first = Promise.withResolvers<null>();
  const make = (identity: string, made: Promise<null>): void =>
    builds.begin(
      identity,
      () => (begun.push(identity), made),
      () => {},
    );
  make('v2', first.promise);
  make('v3', Promise.resolve(null));
  make('v4', Promise.resolve(null));
  await new Promise(setImmediate);
  deepEqual(begun, ['v2']);
  first.resolve(null);
  await new Promise(setImmediate);
  deepEqual(begun, ['v2', 'v4']);
  equal(shown(builds), null);
});
