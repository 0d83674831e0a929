/** Stands in for an engine: `node stand-in.ts --port N …` listens there and answers everything with how it was started. */

import { spawn } from 'node:child_process';
import { createServer } from 'node:http';

const args = process.argv.slice(2);
const port = Number(args[args.indexOf('--port') + 1]);
process.stdout.write(`pid ${process.pid}\n`);
if (args.includes('--dies')) process.exit(3);
if (args.includes('--stubborn-child')) {
  // As an engine's workers are: of its group, and not to be talked to.
  const child = spawn(process.execPath, ['-e', "process.on('SIGTERM', () => {}); setInterval(() => {}, 1e6)"]);
  process.stdout.write(`child ${child.pid}\n`);
}
const said = JSON.stringify({ args, gpus: process.env['CUDA_VISIBLE_DEVICES'] ?? null });
createServer((_, response) => response.end(said)).listen(port, '127.0.0.1');
