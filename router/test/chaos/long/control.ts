import { request } from 'node:http';

/** One call of the router's own API, on a connection of its own that is gone with the answer. */
export async function call(port: number, method: string, path: string, body = ''): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, method, path, agent: false, timeout: 10_000 }, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (part: string) => {
        text += part;
      });
      answer.on('end', () => {
        if (answer.statusCode !== undefined && answer.statusCode < 300) resolve(text);
        else reject(new Error(`${method} ${path} answered ${answer.statusCode}: ${text}`));
      });
    });
    asked.on('timeout', () => asked.destroy(new Error(`${method} ${path} was not answered in 10 s`)));
    asked.on('error', reject);
    asked.end(body);
  });
}

export async function addWorker(port: number, url: string): Promise<void> {
  await call(port, 'POST', '/workers', JSON.stringify({ url }));
}

export async function removeWorker(port: number, url: string): Promise<void> {
  await call(port, 'POST', `/remove_worker?url=${encodeURIComponent(url)}`);
}

export async function metric(port: number, pattern: RegExp): Promise<number> {
  const text = await call(port, 'GET', '/metrics');
  return [...text.matchAll(pattern)].reduce((sum, [, value]) => sum + Number(value), 0);
}
