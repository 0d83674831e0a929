import { engineHead, enginePost, type Hazard, head, passed, post, refused, testAll } from './hazard.ts';

const LINE_RFC = 'RFC 9112 5.1';
const VALUE_RFC = 'RFC 9110 5.5';
const HOST_RFC = 'RFC 9112 3.2';
const HOP_RFC = 'RFC 9110 7.6.1';
const get = (...fields: readonly string[]): string => head('GET /x HTTP/1.1', ...fields);
const GET = engineHead('GET /x');
const hosts = (...lines: readonly string[]): string =>
  `${['GET /x HTTP/1.1', 'x-request-id: r', ...lines].join('\r\n')}\r\n\r\n`;

const fields: readonly Hazard[] = [
  refused('a line without a colon', LINE_RFC, 400, get('x-nothing')),
  refused('an empty name', LINE_RFC, 400, get(': value')),
  refused('a space inside of a name', LINE_RFC, 400, get('x y: z')),
  refused('a space before the colon', LINE_RFC, 400, get('x : y')),
  refused('a slash in a name', LINE_RFC, 400, get('x/y: z')),
  refused('a NUL in a name', LINE_RFC, 400, get('x\0: y')),
  refused('a DEL in a name', LINE_RFC, 400, get('x\x7f: y')),
  refused('a byte beyond ASCII in a name', LINE_RFC, 400, get('caf\xe9: y')),
  refused('a request line among the fields', LINE_RFC, 400, get('GET /hidden HTTP/1.1')),
  refused('a folded line', 'RFC 9112 5.2', 400, get('x: y', '\tz')),
  refused('a folded line of blanks', 'RFC 9112 5.2', 400, get('x: y', '  ')),
  refused('a blank before the first field', 'RFC 9112 2.2', 400, 'GET /x HTTP/1.1\r\n x: y\r\nhost: h\r\n\r\n'),
  refused('a NUL in a value', VALUE_RFC, 400, get('x: a\0b')),
  refused('a vertical tab in a value', VALUE_RFC, 400, get('x: a\vb')),
  refused('a form feed in a value', VALUE_RFC, 400, get('x: a\f')),
  refused('a backspace in a value', VALUE_RFC, 400, get('x: a\b')),
  refused('an escape in a value', VALUE_RFC, 400, get('x: \x1b[31m')),
  refused('a DEL in a value', VALUE_RFC, 400, get('x: a\x7f')),
  refused('a bell as a value', VALUE_RFC, 400, get('x: \x07')),
  refused('a bare LF in a value', 'RFC 9112 2.2', 400, get('x: a\nhost: evil')),
  refused('a line ended by LF alone', 'RFC 9112 2.2', 400, get('x: a\ny: b')),
  refused('a line ended by CR alone', 'RFC 9112 2.2', 400, get('x: a\ry: b')),
  refused('a bare CR in a value', 'RFC 9112 2.2', 400, get('x: a\rhost: evil')),
  refused('a bare CR before CRLF', 'RFC 9112 2.2', 400, get('x: a\r')),
  refused('LF CR', 'RFC 9112 2.2', 400, get('x: a\n\ry: b')),
  refused('a head that ends in LF LF', 'RFC 9112 2.2, CVE-2022-35256', 400, `${get().slice(0, -4)}\n\n`),
  refused('a head that ends in CRLF LF', 'RFC 9112 2.2, CVE-2022-35256', 400, `${get().slice(0, -2)}\n`),
  refused('a head that ends in CR CR', 'RFC 9112 2.2', 400, `${get().slice(0, -2)}\r\r\n`),
  refused('201 lines', 'RFC 6585 5', 431, get(...Array.from({ length: 199 }, () => 'x: y'))),
  refused('a line of 70,000 bytes', 'RFC 6585 5', 431, get(`x: ${'y'.repeat(70_000)}`)),
  refused('a name of 70,000 bytes', 'RFC 6585 5', 431, get(`${'x'.repeat(70_000)}: y`)),
  refused(
    'a head without end',
    'RFC 6585 5',
    431,
    get(...Array.from({ length: 40 }, () => `x: ${'y'.repeat(2_000)}`)).slice(0, -2),
  ),
  passed(
    '200 lines',
    'RFC 9110 5.4',
    get(...Array.from({ length: 198 }, () => 'x: y')),
    engineHead('GET /x', ...Array.from({ length: 198 }, () => 'x: y')),
  ),
  passed(
    'odd spelling, order and repetition stay',
    'RFC 9110 5.3',
    get('B:1', 'a:\t2 ', 'b: 3', 'A:'),
    engineHead('GET /x', 'B:1', 'a:\t2 ', 'b: 3', 'A:'),
  ),
  passed('bytes beyond ASCII in a value', VALUE_RFC, get('x: \xff\xa0\x80'), engineHead('GET /x', 'x: \xff\xa0\x80')),
  passed(
    'names that objects have',
    LINE_RFC,
    get('__proto__: a', 'constructor: b', 'toString: c'),
    engineHead('GET /x', '__proto__: a', 'constructor: b', 'toString: c'),
  ),
  passed(
    'every character of a name',
    'RFC 9110 5.6.2',
    get("!#$%&'*+-.^_`|~09azAZ: x"),
    engineHead('GET /x', "!#$%&'*+-.^_`|~09azAZ: x"),
  ),
];

const hostNames: readonly Hazard[] = [
  refused('none', HOST_RFC, 400, hosts()),
  refused('two', HOST_RFC, 400, hosts('host: h', 'host: h')),
  refused('two, far apart and spelled differently', HOST_RFC, 400, hosts('Host: a', 'x: y', 'HOST: b')),
  refused('a list', HOST_RFC, 400, hosts('host: a, b')),
  refused('a path', HOST_RFC, 400, hosts('host: h/x')),
  refused('a URL', HOST_RFC, 400, hosts('host: http://h')),
  refused('a user', HOST_RFC, 400, hosts('host: user@h')),
  refused('a query', HOST_RFC, 400, hosts('host: h?x')),
  refused('a byte beyond ASCII', HOST_RFC, 400, hosts('host: caf\xe9')),
  refused('a NUL', HOST_RFC, 400, hosts('host: h\0')),
  refused('a port of letters', HOST_RFC, 400, hosts('host: h:x')),
  refused('two ports', HOST_RFC, 400, hosts('host: h:80:80')),
  refused('an address without brackets', HOST_RFC, 400, hosts('host: ::1')),
  refused('a bracket that is not closed', HOST_RFC, 400, hosts('host: [::1')),
  refused('a bracket that was not opened', HOST_RFC, 400, hosts('host: h]')),
  refused('more than a port behind the bracket', HOST_RFC, 400, hosts('host: [::1]x')),
  refused('a space before the colon', LINE_RFC, 400, hosts('host : h')),
  refused('folded', 'RFC 9112 5.2', 400, hosts('host:', ' h')),
  refused('indented', 'RFC 9112 5.2', 400, hosts(' host: h')),
  refused('none, but a URL as target', HOST_RFC, 400, 'GET http://h/x HTTP/1.1\r\n\r\n'),
  passed('an empty one', HOST_RFC, hosts('host:'), GET),
  passed('an address and a port', HOST_RFC, hosts('host: [::1]:80'), GET),
  passed('a port without digits', HOST_RFC, hosts('host: h:'), GET),
  passed(
    'another one than the URL says',
    'RFC 9112 3.2.2',
    'GET http://a/x HTTP/1.1\r\nhost: b\r\nx-request-id: r\r\n\r\n',
    GET,
  ),
  passed(
    'other names for it are fields',
    HOST_RFC,
    get('x-forwarded-host: e', 'x-host: e', 'forwarded: host=e'),
    engineHead('GET /x', 'x-forwarded-host: e', 'x-host: e', 'forwarded: host=e'),
  ),
];

const hops: readonly Hazard[] = [
  refused(
    'Connection names Content-Length',
    HOP_RFC,
    400,
    post(['connection: content-length', 'content-length: 5'], 'hello'),
  ),
  refused(
    'Connection names Transfer-Encoding',
    HOP_RFC,
    400,
    post(['connection: Transfer-Encoding', 'transfer-encoding: chunked'], '5\r\nhello\r\n0\r\n\r\n'),
  ),
  refused('Connection names Host', HOP_RFC, 400, get('connection: close, host')),
  refused(
    'WebSocket',
    'RFC 9110 7.8',
    501,
    get('connection: Upgrade', 'upgrade: websocket', 'sec-websocket-version: 13'),
  ),
  refused(
    'an expectation that nobody knows',
    'RFC 9110 10.1.1',
    417,
    post(['expect: 200-ok', 'content-length: 5'], 'hello'),
  ),
  refused(
    'an expectation with more to it',
    'RFC 9110 10.1.1',
    417,
    post(['expect: y 100-continue', 'content-length: 5'], 'hello'),
  ),
  passed(
    'Connection names a field',
    HOP_RFC,
    get('connection: x-a , X-B', 'x-a: 1', 'x-b: 2', 'x-c: 3', 'x-A: 4'),
    engineHead('GET /x', 'x-c: 3'),
  ),
  passed(
    'Connection names what only begins like a field',
    HOP_RFC,
    get('connection: x', 'x-a: 1'),
    engineHead('GET /x', 'x-a: 1'),
  ),
  passed('Connection names itself', HOP_RFC, get('connection: connection, keep-alive'), GET),
  passed('Connection in two lines', HOP_RFC, get('connection: x-a', 'x-a: 1', 'Connection: x-b', 'x-b: 2'), GET),
  passed('an empty Connection', HOP_RFC, get('connection:', 'connection: ,,'), GET),
  passed('Connection: close-not is not close', HOP_RFC, get('connection: close-not'), GET),
  passed('a no-break space is part of the word', HOP_RFC, get('connection: \xa0close'), GET),
  passed('Connection: close among others', 'RFC 9112 9.6', get('connection: keep-alive, CLOSE'), GET, { closes: true }),
  passed(
    'fields of one hop',
    HOP_RFC,
    get(
      'keep-alive: timeout=5',
      'te: trailers',
      'trailer: x-t',
      'proxy-connection: keep-alive',
      'upgrade: h2c',
      'x: y',
    ),
    engineHead('GET /x', 'x: y'),
  ),
  passed(
    'h2c',
    'RFC 9110 7.8',
    get('connection: Upgrade, HTTP2-Settings', 'upgrade: h2c', 'http2-settings: AAMAAABkAAQ'),
    GET,
  ),
  passed(
    'an expectation of HTTP/1.0 is none',
    'RFC 9110 10.1.1',
    `${head('POST /x HTTP/1.0', 'expect: 100-continue', 'content-length: 5')}hello`,
    enginePost('hello'),
    { closes: true },
  ),
  passed('an expectation without a body', 'RFC 9110 10.1.1', get('expect: 100-continue'), GET),
  passed(
    'TE never asks an engine for trailers',
    'RFC 9110 10.1.4',
    get('connection: te', 'te: trailers, chunked'),
    GET,
  ),
];

testAll('field', fields);
testAll('Host', hostNames);
testAll('hop', hops);
