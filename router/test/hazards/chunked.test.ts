import { engineHead, enginePost, type Hazard, passed, post, refused, testAll, unfinished } from './hazard.ts';

const chunked = (body: string): string => post('transfer-encoding: chunked', body);
const SIZE_RFC = 'RFC 9112 7.1';
const EXTENSION_RFC = 'RFC 9112 7.1.1';
const TRAILER_RFC = 'RFC 9112 7.1.2, RFC 9110 6.5.1';
const bad = (name: string, body: string, rfc = SIZE_RFC): Hazard => refused(name, rfc, 400, chunked(body));
const good = (name: string, body: string, rfc = SIZE_RFC, payload = 'hello'): Hazard =>
  passed(name, rfc, chunked(body), enginePost(payload));
const END = '\r\n0\r\n\r\n';
const HIDDEN = 'GET /hidden HTTP/1.1\r\nhost: h\r\n\r\n';

const sizes: readonly Hazard[] = [
  bad('0x', `0x5\r\nhello${END}`),
  bad('a plus', `+5\r\nhello${END}`),
  bad('a minus', `-5\r\nhello${END}`),
  bad('an underscore', `0_5\r\nhello${END}`),
  bad('a letter that is no digit', `5g\r\nhello${END}`),
  bad('h for hexadecimal', `5h\r\nhello${END}`),
  bad('a fraction', `5.0\r\nhello${END}`),
  bad('a space before it', ` 5\r\nhello${END}`),
  bad('a space after it', `5 \r\nhello${END}`),
  bad('a tab after it', `5\t\r\nhello${END}`),
  bad('zeros and a space at the end', `5\r\nhello\r\n0 \r\n\r\n`),
  bad('nothing', `\r\nhello${END}`),
  bad('an empty line between chunks', `5\r\nhello\r\n\r\n0\r\n\r\n`),
  bad('only an extension', `;x\r\nhello${END}`),
  bad('a NUL', `5\0\r\nhello${END}`),
  bad('full-width digits', `\xef\xbc\x95\r\nhello${END}`),
  bad('a quoted digit', `"5"\r\nhello${END}`),
  bad('2^64 + 5', `10000000000000005\r\nhello${END}`),
  refused('2^32 + 5, which 32 bits hold for 5', SIZE_RFC, 413, chunked(`100000005\r\nhello${END}`), {
    options: { maxPayloadSize: 8 },
  }),
  bad('zeros without end', '0'.repeat(100)),
  bad('ended by LF', `5\nhello${END}`, 'RFC 9112 2.2, 7.1'),
  bad('ended by CR', `5\rhello${END}`, 'RFC 9112 2.2, 7.1'),
  bad('ended by CR CR LF', `5\r\r\nhello${END}`, 'RFC 9112 2.2, 7.1'),
  bad('the last one ended by LF', `5\r\nhello\r\n0\n\n`, 'RFC 9112 2.2, 7.1'),
  bad('data that is too long', `4\r\nhello${END}`),
  bad('data that is too short', `6\r\nhello${END}`),
  bad('data ended by LF', '5\r\nhello\n0\r\n\r\n', 'RFC 9112 2.2, 7.1'),
  bad('data ended by CR', '5\r\nhello\r0\r\n\r\n', 'RFC 9112 2.2, 7.1'),
  bad('data ended by any two bytes', `5\r\nhelloXX0\r\n\r\n${HIDDEN}`, 'RFC 9112 7.1, CVE-2025-43859'),
  bad('data ended by LF LF', `5\r\nhello\n\n0\r\n\r\n`, 'RFC 9112 7.1'),
  bad('data without an end', '5\r\nhello0\r\n\r\n'),
  bad('a request where a size should be', `5\r\nhello\r\n${HIDDEN}`),
  bad('a last chunk that is not ended by CRLF', '5\r\nhello\r\n0\r\n\rX'),
  good(
    'capital and small digits',
    '00000A\r\n0123456789\r\n0b\r\nabcdefghijk\r\n00\r\n\r\n',
    SIZE_RFC,
    '0123456789abcdefghijk',
  ),
  good('no chunks but the last', '0\r\n\r\n', SIZE_RFC, ''),
  good('a last chunk of many zeros', '5\r\nhello\r\n000000\r\n\r\n'),
  good('a chunk of line ends and zeros', `9\r\n\r\n0\r\n\r\n\r\n${END}`, SIZE_RFC, '\r\n0\r\n\r\n\r\n'),
  good('a request as data is data', `${HIDDEN.length.toString(16)}\r\n${HIDDEN}${END}`, SIZE_RFC, HIDDEN),
  good('one byte a chunk', `${[...'hello'].map((each) => `1\r\n${each}`).join('\r\n')}${END}`),
  passed(
    'a request behind the body',
    SIZE_RFC,
    chunked(`5\r\nhello${END}${HIDDEN.replace('host: h', 'host: h\r\nx-request-id: r')}`),
    enginePost('hello') + engineHead('GET /hidden'),
    { statuses: [200, 200] },
  ),
  refused('a body that grows over the limit', 'RFC 9110 15.5.14', 413, chunked('3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n'), {
    options: { maxPayloadSize: 5 },
  }),
  unfinished(
    'no last chunk',
    'RFC 9112 8',
    chunked('5\r\nhello\r\n'),
    `${engineHead('POST /x', 'transfer-encoding: chunked')}5\r\nhello\r\n`,
  ),
  unfinished(
    'no end of the last chunk',
    'RFC 9112 8',
    chunked('5\r\nhello\r\n0\r\n'),
    `${engineHead('POST /x', 'transfer-encoding: chunked')}5\r\nhello\r\n`,
  ),
];

const extensions: readonly Hazard[] = [
  good('a name', `5;x\r\nhello${END}`, EXTENSION_RFC),
  good('names and values', `5;x=y;z;q="a;b \\" c"\r\nhello\r\n0;last=1\r\n\r\n`, EXTENSION_RFC),
  good('a chunk line in quotes', `5;q="0;"\r\nhello${END}`, EXTENSION_RFC),
  bad('ended by LF, with a chunk behind', `5;x\nhello${END}`, `${EXTENSION_RFC}, 2.2`),
  bad('a bare CR inside', `5;a\rb\r\nhello${END}`, `${EXTENSION_RFC}, 2.2`),
  bad('a CRLF in quotes', `5;q="\r\n"\r\nhello${END}`, EXTENSION_RFC),
  bad('an LF in quotes', `5;q="\n0\r\n\r\n"\r\nhello${END}`, EXTENSION_RFC),
  bad('quotes that do not end', `5;q="x\r\nhello${END}`, EXTENSION_RFC),
  bad('nothing behind the semicolon', `5;\r\nhello${END}`, EXTENSION_RFC),
  bad('nothing behind the equals sign', `5;x=\r\nhello${END}`, EXTENSION_RFC),
  bad('a NUL', `5;x\0\r\nhello${END}`, EXTENSION_RFC),
  bad('blanks around the semicolon', `5 ; x\r\nhello${END}`, EXTENSION_RFC),
  bad('17,000 bytes in one', `5;${'x'.repeat(17_000)}\r\nhello${END}`, `${EXTENSION_RFC}, CVE-2024-22019`),
  bad(
    '20,000 bytes in many',
    `${`1;${'x'.repeat(100)}\r\nh\r\n`.repeat(200)}0\r\n\r\n`,
    `${EXTENSION_RFC}, CVE-2024-22019`,
  ),
];

const trailers: readonly Hazard[] = [
  good('dropped', '5\r\nhello\r\n0\r\nx-a: 1\r\nx-b:2\r\n\r\n', TRAILER_RFC),
  good(
    'never merged: authorization, host, cookie',
    '5\r\nhello\r\n0\r\nauthorization: Bearer evil\r\nhost: evil\r\ncookie: a=b\r\n\r\n',
    TRAILER_RFC,
  ),
  good('empty ones', '5\r\nhello\r\n0\r\nx:\r\n\r\n', TRAILER_RFC),
  bad('Content-Length', '5\r\nhello\r\n0\r\nContent-Length: 50\r\n\r\n', TRAILER_RFC),
  bad('Transfer-Encoding', '5\r\nhello\r\n0\r\ntransfer-encoding: chunked\r\n\r\n', TRAILER_RFC),
  bad('folded', '5\r\nhello\r\n0\r\nx: a\r\n b\r\n\r\n', `${TRAILER_RFC}, 5.2`),
  bad('without a colon', `5\r\nhello\r\n0\r\n${HIDDEN}`, `${TRAILER_RFC}, 5.1`),
  bad('a space before the colon', '5\r\nhello\r\n0\r\nx : a\r\n\r\n', `${TRAILER_RFC}, 5.1`),
  bad('a NUL', '5\r\nhello\r\n0\r\nx: \0\r\n\r\n', TRAILER_RFC),
  bad('a bare LF', '5\r\nhello\r\n0\r\nx: a\n\r\n', `${TRAILER_RFC}, 2.2`),
  bad('a bare CR', '5\r\nhello\r\n0\r\nx: a\rb: c\r\n\r\n', `${TRAILER_RFC}, 2.2`),
  bad('17,000 bytes', `5\r\nhello\r\n0\r\nx: ${'y'.repeat(17_000)}\r\n\r\n`, TRAILER_RFC),
];

testAll('chunk', sizes);
testAll('chunk extension', extensions);
testAll('trailer', trailers);
