/** `npm run demo -- [NAME] [options]`: an example against simulated engines (grpo: real ones); without a name, the demo. */
const examples: Readonly<Record<string, () => Promise<unknown>>> = {
  demo: () => import('./demo/demo.ts'),
  policy: () => import('./policy/run.ts'),
  plugin: () => import('./plugin/run.ts'),
  tinker: () => import('./tinker/demo.ts'),
  envoy: () => import('./envoy/run.ts'),
  grpo: () => import('./grpo/run.ts'),
  ray: () => import('./ray/run.ts'),
};

const word = process.argv[2];
const isNamed = word !== undefined && !word.startsWith('-');
const example = examples[isNamed ? word : 'demo'];
if (example === undefined) {
  process.stderr.write(`no example is called ${word}: ${Object.keys(examples).join(', ')}\n`);
  process.exitCode = 1;
} else {
  if (isNamed) process.argv.splice(2, 1);
  await example();
}
