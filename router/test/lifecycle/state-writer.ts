import { fileStore } from '../../src/choose/state-files.ts';

/**
 * A process that changes state as fast as it can, for others to kill: `state-writer.ts DIRECTORY KEYS`. Change number n sets
 * key n % KEYS to n, or deletes it when n is a multiple of 7; after each round it says up to which number all was written.
 */
const [directory, keys] = [process.argv[2]!, Number(process.argv[3])];
const store = fileStore(directory, (error) => {
  throw error;
});
const map = store.open('state');
let n = Number(map.get('last') ?? 0);
for (;;) {
  for (let i = 0; i < 50; i++) {
    n++;
    const key = `k${n % keys}`;
    if (n % 7 === 0) map.delete(key);
    else map.set(key, `${n}`);
    map.set('last', `${n}`);
  }
  await store.flush();
  process.stdout.write(`${n}\n`);
}
