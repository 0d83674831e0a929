// nginx as a reverse proxy for streams: the usual configuration, with logs off and connections kept.
import { join } from 'node:path';
import { userInfo } from 'node:os';

export function nginxConfig(
  port: number,
  urls: readonly string[],
  directives: readonly string[],
  folder: string,
): string {
  const servers = urls.map((url) => `server ${new URL(url).host};`).join(' ');
  // If root starts nginx, its workers run as a user that cannot read the temporary folder.
  const user = process.getuid?.() === 0 ? `user ${userInfo().username} root;` : '';
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((kind) => `${kind}_temp_path ${join(folder, kind)};`)
    .join(' ');
  return `${user}
daemon off; pid ${join(folder, 'nginx.pid')}; error_log ${join(folder, 'error.log')};
worker_processes 2;
events { worker_connections 16384; }
http {
  ${temporary}
  access_log off;
  keepalive_requests 1000000000;
  client_max_body_size 0;
  upstream engines { ${servers} keepalive 1024; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location / {
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
      ${directives.map((directive) => `${directive};`).join(' ')}
    }
  }
}
`;
}
