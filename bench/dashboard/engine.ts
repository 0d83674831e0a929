// An engine that answers at once, in a process of its own: the router's CPU time is what is measured.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const body = JSON.stringify({
  choices: [{ text: 'x'.repeat(200) }],
  usage: { prompt_tokens: 500, completion_tokens: 50, prompt_tokens_details: { cached_tokens: 400 } },
});
const head = { 'content-type': 'application/json', 'content-length': body.length };
const server = createServer((request, response) => {
  request.resume().on('end', () => response.writeHead(200, head).end(body));
});
server.listen(0, '127.0.0.1', () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`));
