// An engine at almost no cost: every request gets the same response of 64 tokens with logprobs, in SGLang's form.
import { createServer } from 'node:net';
import { decode } from '../../simulator/src/tokens/tokenizer.ts';

const promptTokens = Number(process.argv[2]);
const ids = Array.from({ length: 64 }, (_, i) => 264 + ((i * 7) % 380));
const body = JSON.stringify({
  text: decode(ids),
  output_ids: ids,
  meta_info: {
    id: 'x'.repeat(32),
    finish_reason: { type: 'length', length: 64 },
    prompt_tokens: promptTokens,
    weight_version: 'default',
    completion_tokens: 64,
    cached_tokens: 0,
    input_token_logprobs: [],
    // Floats, in the digits of a double.
    output_token_logprobs: ids.map((id, i) => [Math.fround(-0.7 - i / 57), id, null]),
    e2e_latency: 0.5,
  },
});
const answer = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;

const server = createServer((socket) => {
  let head = '';
  let left = 0;
  socket.setNoDelay(true);
  socket.on('error', () => {});
  socket.on('data', (bytes) => {
    let text = bytes.toString('latin1');
    while (text !== '') {
      if (left > 0) {
        const taken = Math.min(left, text.length);
        left -= taken;
        text = text.slice(taken);
      } else {
        head += text;
        const end = head.indexOf('\r\n\r\n');
        if (end < 0) return;
        left = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
        text = head.slice(end + 4);
        head = '';
      }
      if (left === 0) socket.write(answer);
    }
  });
});
server.listen(0, '127.0.0.1', () => {
  process.stdout.write(`${(server.address() as { port: number }).port}\n`);
});
