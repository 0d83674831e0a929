import { engineHead, type Hazard, head, passed, refused, testAll, unfinished } from './hazard.ts';

const LINE_RFC = 'RFC 9112 3';
const TARGET_RFC = 'RFC 9112 3.2';
const VERSION_RFC = 'RFC 9112 2.3';
const end = 'host: h\r\nx-request-id: r\r\n\r\n';
const GET = engineHead('GET /x');

const lines: readonly Hazard[] = [
  refused('HTTP/0.9', VERSION_RFC, 400, `GET /x\r\n${end}`),
  refused('HTTP/0.9 with a space', VERSION_RFC, 400, `GET /x \r\n${end}`),
  refused('HTTP/2.0', 'RFC 9110 15.6.6', 505, head('GET /x HTTP/2.0')),
  refused('HTTP/1.2', 'RFC 9110 15.6.6', 505, head('GET /x HTTP/1.2')),
  refused('HTTP/0.9 in words', 'RFC 9110 15.6.6', 505, head('GET /x HTTP/0.9')),
  refused('HTTP/1.10', VERSION_RFC, 400, head('GET /x HTTP/1.10')),
  refused('HTTP/01.1', VERSION_RFC, 400, head('GET /x HTTP/01.1')),
  refused('HTTP/1.', VERSION_RFC, 400, head('GET /x HTTP/1.')),
  refused('HTTP/1,1', VERSION_RFC, 400, head('GET /x HTTP/1,1')),
  refused('http/1.1 in small letters', VERSION_RFC, 400, head('GET /x http/1.1')),
  refused('HTTPS/1.1', VERSION_RFC, 400, head('GET /x HTTPS/1.1')),
  refused('a digit that is none', VERSION_RFC, 400, head('GET /x HTTP/1.\xb9')),
  refused('a space after the version', LINE_RFC, 400, head('GET /x HTTP/1.1 ')),
  refused('two versions', LINE_RFC, 400, head('GET /x HTTP/1.1 HTTP/1.1')),
  refused('two spaces before the target', LINE_RFC, 400, head('GET  /x HTTP/1.1')),
  refused('two spaces after the target', LINE_RFC, 400, head('GET /x  HTTP/1.1')),
  refused('a space before the method', LINE_RFC, 400, head(' GET /x HTTP/1.1')),
  refused('tabs for spaces', LINE_RFC, 400, head('GET\t/x\tHTTP/1.1')),
  refused('a form feed for a space', LINE_RFC, 400, head('GET\f/x HTTP/1.1')),
  refused('no target', LINE_RFC, 400, head('GET HTTP/1.1')),
  refused('an empty target', LINE_RFC, 400, head('GET  HTTP/1.1')),
  refused('no method', LINE_RFC, 400, head('/x HTTP/1.1')),
  refused('a method that is no token', 'RFC 9110 9.1', 400, head('G(T /x HTTP/1.1')),
  refused('a NUL in the method', 'RFC 9110 9.1', 400, head('GE\0T /x HTTP/1.1')),
  refused('a byte order mark', 'RFC 9110 9.1', 400, `\xef\xbb\xbf${head('GET /x HTTP/1.1')}`),
  refused('a method in small letters', 'RFC 9110 9.1', 501, head('get /x HTTP/1.1')),
  refused('a method that nobody knows', 'RFC 9110 9.1', 501, head('SMUGGLE /x HTTP/1.1')),
  refused('an answer for a request', LINE_RFC, 400, `HTTP/1.1 200 OK\r\n${end}`),
  refused('bare LF after the request line', 'RFC 9112 2.2', 400, `GET /x HTTP/1.1\n${end}`),
  refused('bare LF throughout', 'RFC 9112 2.2', 400, 'GET /x HTTP/1.1\nhost: h\n\n'),
  refused('bare CR after the request line', 'RFC 9112 2.2', 400, `GET /x HTTP/1.1\r${end}`),
  refused('CR CR LF', 'RFC 9112 2.2', 400, `GET /x HTTP/1.1\r\r\n${end}`),
  refused('a bare CR inside of the target', 'RFC 9112 2.2', 400, head('GET /x\ry HTTP/1.1')),
  refused('a bare LF before the request', 'RFC 9112 2.2', 400, `\n${head('GET /x HTTP/1.1')}`),
  refused('a line of blanks before the request', 'RFC 9112 2.2', 400, `  \r\n${head('GET /x HTTP/1.1')}`),
  passed('an empty line before the request', 'RFC 9112 2.2', `\r\n${head('GET /x HTTP/1.1')}`, GET),
  passed('many empty lines before the request', 'RFC 9112 2.2', `${'\r\n'.repeat(20)}${head('GET /x HTTP/1.1')}`, GET),
  passed('HTTP/1.0 goes on as HTTP/1.1, once', 'RFC 9112 9.3', head('GET /x HTTP/1.0'), GET, { closes: true }),
  passed('HTTP/1.0 that asks to be kept', 'RFC 9112 C.2.2', head('GET /x HTTP/1.0', 'connection: keep-alive'), GET, {
    closes: true,
  }),
  passed('HTTP/1.0 without Host', 'RFC 9112 3.2', 'GET /x HTTP/1.0\r\nx-request-id: r\r\n\r\n', GET, { closes: true }),
];

const strangers: readonly Hazard[] = [
  refused('the preface of HTTP/2', 'RFC 9113 3.4', 505, 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  refused('a PROXY line', LINE_RFC, 400, `PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n${head('GET /x HTTP/1.1')}`),
  refused('a binary PROXY header', LINE_RFC, 400, `\r\n\r\n\0\r\nQUIT\n!\x11\0\f${head('GET /x HTTP/1.1')}`),
  refused('a TLS hello', LINE_RFC, 400, `\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03${'\x01'.repeat(30)}\n`),
  refused('SSH', LINE_RFC, 400, 'SSH-2.0-client\r\n'),
  refused('SMTP', LINE_RFC, 400, 'EHLO client.example\r\n'),
  refused('Redis', LINE_RFC, 400, '*1\r\n$4\r\nPING\r\n'),
  refused('a chunk', LINE_RFC, 400, '5\r\nhello\r\n'),
  refused('RTSP', VERSION_RFC, 400, 'OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n'),
  refused('CONNECT', 'RFC 9110 9.3.6', 501, head('CONNECT h:443 HTTP/1.1')),
  refused('CONNECT with a path', 'RFC 9110 9.3.6', 501, head('CONNECT /x HTTP/1.1')),
  refused('TRACE', 'RFC 9110 9.3.8', 501, head('TRACE /x HTTP/1.1')),
  unfinished('nothing at all', LINE_RFC, ''),
  unfinished('a zero', LINE_RFC, '\0'),
  unfinished('only empty lines', 'RFC 9112 2.2', '\r\n\r\n\r\n'),
  unfinished('a request line', 'RFC 9112 8', 'GET /x HTTP/1.1\r\n'),
  unfinished('a head without its empty line', 'RFC 9112 8', head('GET /x HTTP/1.1').slice(0, -2)),
  unfinished('a head without its last byte', 'RFC 9112 8', head('GET /x HTTP/1.1').slice(0, -1)),
];

const targets: readonly Hazard[] = [
  refused('a fragment', TARGET_RFC, 400, head('GET /x#y HTTP/1.1')),
  refused('a control character', TARGET_RFC, 400, head('GET /x\x01 HTTP/1.1')),
  refused('a NUL', TARGET_RFC, 400, head('GET /x\0.txt HTTP/1.1')),
  refused('a DEL', TARGET_RFC, 400, head('GET /x\x7f HTTP/1.1')),
  refused('a space inside', TARGET_RFC, 400, head('GET /x y HTTP/1.1')),
  refused('a tab inside', TARGET_RFC, 400, head('GET /x\ty HTTP/1.1')),
  refused('a byte beyond ASCII', TARGET_RFC, 400, head('GET /caf\xe9 HTTP/1.1')),
  refused('a no-break space', TARGET_RFC, 400, head('GET /x\xa0y HTTP/1.1')),
  refused('a relative path', TARGET_RFC, 400, head('GET x HTTP/1.1')),
  refused('a dot', TARGET_RFC, 400, head('GET ../x HTTP/1.1')),
  refused('only a query', TARGET_RFC, 400, head('GET ?x HTTP/1.1')),
  refused('a backslash', TARGET_RFC, 400, head('GET \\x HTTP/1.1')),
  refused('an authority', 'RFC 9112 3.2.3', 400, head('GET h:80 HTTP/1.1')),
  refused('an asterisk', 'RFC 9112 3.2.4', 400, head('GET * HTTP/1.1')),
  refused('an asterisk with more behind it', 'RFC 9112 3.2.4', 400, head('OPTIONS *x HTTP/1.1')),
  refused('a URL of another scheme', 'RFC 9112 3.2.2', 400, head('GET ftp://h/x HTTP/1.1')),
  refused('file:', 'RFC 9112 3.2.2', 400, head('GET file:///etc/passwd HTTP/1.1')),
  refused('a URL without a host', 'RFC 9110 4.2.1', 400, head('GET http:///x HTTP/1.1')),
  refused('a URL of one slash', 'RFC 9112 3.2.2', 400, head('GET http:/x HTTP/1.1')),
  refused('a URL with a user', 'RFC 9110 4.2.4', 400, head('GET http://user:password@h/x HTTP/1.1')),
  refused('a URL whose port is none', 'RFC 9110 4.2.1', 400, head('GET http://h:80a/x HTTP/1.1')),
  refused('a URL with a fragment', 'RFC 9112 3.2.2', 400, head('GET http://h/x#y HTTP/1.1')),
  refused('17,000 characters', 'RFC 9110 15.5.15', 414, head(`GET /${'x'.repeat(17_000)} HTTP/1.1`)),
  refused('no end', 'RFC 9110 15.5.15', 414, `GET /${'x'.repeat(80_000)}`, { isAlone: true }),
  refused('no end, and nothing more comes', 'RFC 9110 15.5.15', 414, `GET /${'x'.repeat(20_000)}`, { isAlone: true }),
  refused('no end, behind empty lines', 'RFC 9110 15.5.15', 414, `\r\n\r\n\r\nGET /${'x'.repeat(17_000)}`, {
    isAlone: true,
  }),
  passed(
    '16,000 characters',
    'RFC 9112 3',
    head(`GET /${'x'.repeat(16_000)} HTTP/1.1`),
    engineHead(`GET /${'x'.repeat(16_000)}`),
  ),
  passed('a URL: its authority chooses nothing', 'RFC 9112 3.2.2', head('GET http://169.254.169.254/x HTTP/1.1'), GET),
  passed('a URL with an empty port', 'RFC 9110 4.2.3', head('GET http://h:/x HTTP/1.1'), GET),
  passed('a URL in capitals', 'RFC 9110 4.2.3', head('GET HTTP://H:80/x HTTP/1.1'), GET),
  passed('a URL without a path', 'RFC 9112 3.2.1', head('GET http://h HTTP/1.1'), engineHead('GET /')),
  passed(
    'a URL without a path, with a query',
    'RFC 9112 3.2.1',
    head('GET http://h?x HTTP/1.1'),
    engineHead('GET /?x'),
  ),
  passed('OPTIONS *', 'RFC 9112 3.2.4', head('OPTIONS * HTTP/1.1'), engineHead('OPTIONS *')),
  passed(
    'OPTIONS of a URL without a path',
    'RFC 9112 3.2.4',
    head('OPTIONS http://h HTTP/1.1'),
    engineHead('OPTIONS *'),
  ),
  passed('OPTIONS of a URL with a path', 'RFC 9112 3.2.4', head('OPTIONS http://h/ HTTP/1.1'), engineHead('OPTIONS /')),
  passed(
    'two slashes are a path',
    'RFC 9112 3.2.1',
    head('GET //evil.example/x HTTP/1.1'),
    engineHead('GET //evil.example/x'),
  ),
  passed(
    'a URL inside of a path',
    'RFC 9112 3.2.1',
    head('GET /http://evil.example/ HTTP/1.1'),
    engineHead('GET /http://evil.example/'),
  ),
  passed(
    'dot segments, spelled as they came',
    'RFC 3986 6.2.2',
    head('GET /a/../../etc/passwd HTTP/1.1'),
    engineHead('GET /a/../../etc/passwd'),
  ),
  passed(
    'dot segments in per cent',
    'RFC 3986 6.2.2',
    head('GET /a/%2e%2E/%2e/b HTTP/1.1'),
    engineHead('GET /a/%2e%2E/%2e/b'),
  ),
  passed(
    'CR and LF in per cent stay so',
    'RFC 3986 2.1',
    head('GET /x%0d%0aGET%20/y HTTP/1.1'),
    engineHead('GET /x%0d%0aGET%20/y'),
  ),
  passed('half a per cent escape', 'RFC 3986 2.1', head('GET /%0?%x HTTP/1.1'), engineHead('GET /%0?%x')),
];

/** Each is a spelling of `/list_workers`, the router's own: an engine must not see it, whatever rule guards it there. */
const own = [
  '/%6Cist_workers',
  '//list_workers/',
  '/x/..%2flist_workers',
  '/./list_workers?a',
  '/x\\..\\list_workers',
  'http://e/list_workers',
].map((target) => passed(`${target} is the router's`, 'RFC 3986 6.2.2', head(`GET ${target} HTTP/1.1`), ''));
/** And none of these. */
const theirs = [
  '/LIST_WORKERS',
  '/list_workers;x',
  '/list_workers%00',
  '/%256cist_workers',
  '/list_workers%3f',
  '/x%5c..%5clist_workers',
].map((target) =>
  passed(
    `${target} is not the router's`,
    'RFC 3986 6.2.2',
    head(`GET ${target} HTTP/1.1`),
    engineHead(`GET ${target}`),
  ),
);

testAll('request line', lines);
testAll('stranger', strangers);
testAll('target', [...targets, ...own, ...theirs]);
