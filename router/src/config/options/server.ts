import { z } from 'zod';
import { count, flag, inGroup, port, secs } from './option.ts';

const option = inGroup('Server');

export const serverOptions = {
  host: option('<address>', z.string().min(1).default('127.0.0.1'), 'Address to listen on.', {
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
    'On SIGTERM: how long requests under way may take to finish before they are cut.',
  ),
  allowHalfClose: option(
    '',
    flag,
    'Serve clients that close their sending side after the request. Off: such a client counts as gone and its work is stopped.',
  ),
  forwardedHeaders: option('', flag, 'Tell engines about the client: x-forwarded-for, -proto, -host and via.'),

  reusePort: option(
    '',
    flag,
    'Listen beside another router on the same port, for an upgrade without a gap (Linux: SO_REUSEPORT).',
    { needsRestart: true },
  ),
  clientHeadTimeoutSecs: option(
    '<secs>',
    secs.min(0.1).default(10),
    'How long a client may take for the head of a request, from its first byte.',
  ),
  clientBodyTimeoutSecs: option(
    '<secs>',
    secs.min(0.1).default(60),
    'How long a client may pause within the body of a request.',
  ),
  clientIdleTimeoutSecs: option(
    '<secs>',
    secs.min(0.1).default(3_600),
    'How long a connection is kept open between two requests.',
  ),
  clientWriteTimeoutSecs: option(
    '<secs>',
    secs.min(0.1).default(600),
    'A client that takes no byte of its answer for so long has gone: its work is stopped.',
  ),
  maxConnections: option(
    '<count>',
    count.default(0),
    'Client connections at once; more are closed as they come. 0: three quarters of the files that the system allows; engines need the rest.',
  ),
  maxConnectionsPerClient: option(
    '<count>',
    count.default(0),
    'Client connections at once from one address; more are closed as they come. 0: no bound.',
  ),
} as const;
