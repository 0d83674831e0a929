import { address, count, flag, inGroup, port, secs } from './option.ts';

const option = inGroup('Server');

export const serverOptions = {
  host: option('<address>', address.min(1).default('127.0.0.1'), 'Address to listen on.', {
    needsRestart: true,
    isCommon: true,
  }),
  port: option('<port>', port.default(30_000), 'Port to listen on; 0 picks a free one.', {
    needsRestart: true,
    isCommon: true,
  }),
  shutdownGracePeriodSecs: option(
    '<secs>',
    secs.default(180),
    'After SIGTERM: how long requests in flight may take to finish before they are truncated.',
  ),
  allowHalfClose: option(
    '',
    flag,
    'Serve clients that close their sending side after the request. Off: the router treats such a client as gone and stops its work.',
  ),
  forwardedHeaders: option(
    '',
    flag,
    'Send information about the client to engines: x-forwarded-for, -proto, -host and via.',
  ),

  reusePort: option(
    '',
    flag,
    'Listen on the same port as another running router, for an upgrade without downtime (Linux: SO_REUSEPORT).',
    { needsRestart: true },
  ),
  clientHeadTimeoutSecs: option(
    '<secs>',
    secs.min(0.1).default(10),
    'Timeout for the head of a request, from its first byte.',
  ),
  clientBodyTimeoutSecs: option('<secs>', secs.min(0.1).default(60), 'Longest pause within the body of a request.'),
  clientIdleTimeoutSecs: option(
    '<secs>',
    secs.min(0.1).default(3_600),
    'How long an idle client connection stays open between two requests.',
  ),
  clientWriteTimeoutSecs: option(
    '<secs>',
    secs.min(0.1).default(600),
    'A client that reads no byte of its response for this long counts as gone: its work is stopped.',
  ),
  maxConnections: option(
    '<count>',
    count.default(0),
    'Maximum client connections at once; further ones are closed. 0: three quarters of the open-file limit, because connections to engines need the rest.',
  ),
  maxConnectionsPerClient: option(
    '<count>',
    count.default(0),
    'Maximum client connections at once from one address; further ones are closed. 0: no limit.',
  ),
} as const;
