import { engineHead, enginePost, head, type Hazard, passed, post, refused, testAll, unfinished } from './hazard.ts';

const TE = 'transfer-encoding: chunked';
/** Five bytes for a reader that goes by the length; the whole of a body for one that goes by the chunks. */
const BOTH = '0\r\n\r\n';
const CHUNKS = '5\r\nhello\r\n0\r\n\r\n';
const BOTH_RFC = 'RFC 9112 6.1, 6.3(3)';
const CODING_RFC = 'RFC 9112 6.1, 6.3(4)';
const LENGTH_RFC = 'RFC 9110 8.6, RFC 9112 6.3(5)';
const NAME_RFC = 'RFC 9112 5.1';
const HIDDEN = 'GET /hidden HTTP/1.1\r\nhost: h\r\nx-request-id: h\r\n\r\n';

const both: readonly Hazard[] = [
  refused('Content-Length, then chunked', BOTH_RFC, 400, post(['content-length: 5', TE], BOTH)),
  refused('chunked, then Content-Length', BOTH_RFC, 400, post([TE, 'content-length: 5'], BOTH)),
  refused(
    'both, far apart and oddly spelled',
    BOTH_RFC,
    400,
    post(['cOnTENT-lENGTH:5', 'a: b', 'TRANSFER-encodinG:chunked'], BOTH),
  ),
  refused(
    'CL.TE: a request behind the last chunk',
    BOTH_RFC,
    400,
    post([`content-length: ${BOTH.length + HIDDEN.length}`, TE], BOTH + HIDDEN),
  ),
  refused(
    'TE.CL: a request inside of the first chunk',
    BOTH_RFC,
    400,
    post(['content-length: 4', TE], `${HIDDEN.length.toString(16)}\r\n${HIDDEN}\r\n0\r\n\r\n`),
  ),
  refused('Content-Length: 0 and chunked', BOTH_RFC, 400, post(['content-length: 0', TE], CHUNKS)),
  refused(
    'a length and a coding that is none',
    BOTH_RFC,
    400,
    post(['content-length: 5', 'transfer-encoding: identity'], 'hello'),
  ),
  refused('a length and an empty coding', BOTH_RFC, 400, post(['content-length: 5', 'transfer-encoding:'], 'hello')),
  refused('both in HTTP/1.0', 'RFC 9112 6.1', 400, head('POST /x HTTP/1.0', 'content-length: 5', TE) + BOTH),
];

const codings: readonly Hazard[] = [
  refused(
    'a space before the colon of Transfer-Encoding',
    `${NAME_RFC}, CVE-2021-22959`,
    400,
    post(['transfer-encoding : chunked', 'content-length: 5'], BOTH),
  ),
  refused(
    'a tab before the colon of Transfer-Encoding',
    NAME_RFC,
    400,
    post(['transfer-encoding\t: chunked', 'content-length: 5'], BOTH),
  ),
  refused(
    'Transfer-Encoding folded',
    'RFC 9112 5.2',
    400,
    post(['content-length: 5', 'transfer-encoding:\r\n chunked'], BOTH),
  ),
  refused(
    'Transfer-Encoding folded after its word',
    'RFC 9112 5.2, CVE-2022-32215',
    400,
    post('transfer-encoding: chunked\r\n , identity', BOTH),
  ),
  refused(
    'Transfer-Encoding behind a bare CR',
    'RFC 9112 2.2, CVE-2023-30589',
    400,
    post(['x-abc:\rxTransfer-Encoding: chunked', 'content-length: 5'], BOTH),
  ),
  refused(
    'Transfer-Encoding behind a bare LF',
    'RFC 9112 2.2, CVE-2022-32214',
    400,
    post(['x: y\ntransfer-encoding: chunked', 'content-length: 5'], BOTH),
  ),
  refused(
    'a vertical tab before the word',
    `${CODING_RFC}, RFC 9110 5.5`,
    400,
    post('transfer-encoding: \vchunked', BOTH),
  ),
  refused('a form feed after the word', `${CODING_RFC}, RFC 9110 5.5`, 400, post('transfer-encoding: chunked\f', BOTH)),
  refused('a NUL after the word', `${CODING_RFC}, RFC 9110 5.5`, 400, post('transfer-encoding: chunked\0', BOTH)),
  refused('a no-break space before the word', CODING_RFC, 400, post('transfer-encoding: \xa0chunked', BOTH)),
  refused('a no-break space after the word', CODING_RFC, 400, post('transfer-encoding: chunked\xa0', BOTH)),
  refused('a tab after the word', CODING_RFC, 400, post('transfer-encoding: chunked\t', BOTH)),
  refused('the word in quotes', CODING_RFC, 400, post('transfer-encoding: "chunked"', BOTH)),
  refused('the word in single quotes', CODING_RFC, 400, post("transfer-encoding: 'chunked'", BOTH)),
  refused('a parameter', CODING_RFC, 400, post('transfer-encoding: chunked;q=1', BOTH)),
  refused('xchunked', CODING_RFC, 400, post('transfer-encoding: xchunked', BOTH)),
  refused('chunkedchunked', `${CODING_RFC}, CVE-2022-32213`, 400, post('transfer-encoding: chunkedchunked', BOTH)),
  refused('chunked with a Kelvin sign', CODING_RFC, 400, post('transfer-encoding: chun\xe2\x84\xaaed', BOTH)),
  refused('chunked, chunked', 'RFC 9112 6.1', 400, post('transfer-encoding: chunked, chunked', CHUNKS + HIDDEN)),
  refused('two lines of chunked', 'RFC 9112 6.1', 400, post([TE, TE], CHUNKS)),
  refused(
    'chunked, and another line that denies it',
    `${CODING_RFC}, CVE-2020-8287`,
    400,
    post([TE, 'transfer-encoding: chunked-false'], CHUNKS + HIDDEN),
  ),
  refused('another coding, and chunked in the next line', CODING_RFC, 400, post(['transfer-encoding: x', TE], CHUNKS)),
  refused('chunked, identity', CODING_RFC, 400, post('transfer-encoding: chunked, identity', CHUNKS)),
  refused('identity, chunked', CODING_RFC, 400, post('transfer-encoding: identity, chunked', CHUNKS + HIDDEN)),
  refused('identity', CODING_RFC, 400, post('transfer-encoding: identity')),
  refused('an empty element before chunked', CODING_RFC, 400, post('transfer-encoding: , chunked', CHUNKS)),
  refused('an empty element after chunked', CODING_RFC, 400, post('transfer-encoding: chunked,', CHUNKS)),
  refused('an empty Transfer-Encoding', CODING_RFC, 400, post('transfer-encoding:', CHUNKS)),
  refused(
    'a coding under chunked that is not spoken here',
    'RFC 9112 6.1',
    501,
    post('transfer-encoding: gzip, chunked', CHUNKS + HIDDEN),
  ),
  refused('two codings under chunked', 'RFC 9112 6.1', 501, post('transfer-encoding: deflate ,gzip,chunked', CHUNKS)),
  refused('gzip alone: nobody can tell where it ends', 'RFC 9112 6.3(4)', 400, post('transfer-encoding: gzip', 'x')),
  refused('chunked, gzip', 'RFC 9112 6.3(4)', 400, post('transfer-encoding: chunked, gzip', CHUNKS)),
  refused('chunked in HTTP/1.0', 'RFC 9112 6.1', 400, head('POST /x HTTP/1.0', TE) + CHUNKS),
  refused('a NUL inside of the name', NAME_RFC, 400, post(['transfer\0-encoding: chunked', 'content-length: 5'], BOTH)),
  refused(
    'a letter of the name with its high bit set',
    NAME_RFC,
    400,
    post(['transfer-encodin\xe7: chunked', 'content-length: 5'], BOTH),
  ),
  passed(
    'the word in capitals, behind a tab',
    'RFC 9112 7, RFC 9110 5.6.3',
    post('Transfer-Encoding:\tCHUNKED', CHUNKS),
    enginePost('hello'),
  ),
  passed(
    'an underscore makes another field of it',
    NAME_RFC,
    post(['transfer_encoding: chunked', 'content-length: 5'], BOTH),
    engineHead('POST /x', 'transfer_encoding: chunked', 'content-length: 5') + BOTH,
  ),
  passed(
    'x-transfer-encoding frames nothing',
    NAME_RFC,
    post(['x-transfer-encoding: chunked', 'content-length: 5'], BOTH),
    engineHead('POST /x', 'x-transfer-encoding: chunked', 'content-length: 5') + BOTH,
  ),
];

const length = (value: string): string => post(`content-length: ${value}`, 'hello');
const lengths: readonly Hazard[] = [
  refused('two lengths that differ', LENGTH_RFC, 400, post(['content-length: 5', 'content-length: 6'], 'hello')),
  refused('two lengths that agree', LENGTH_RFC, 400, post(['content-length: 5', 'Content-Length: 5'], 'hello')),
  refused('a list of lengths that agree', LENGTH_RFC, 400, length('5, 5')),
  refused('a list of lengths that differ', LENGTH_RFC, 400, length('5, 0')),
  refused('a plus', LENGTH_RFC, 400, length('+5')),
  refused('a minus', LENGTH_RFC, 400, length('-5')),
  refused('minus nothing', LENGTH_RFC, 400, length('-0')),
  refused('hexadecimal', LENGTH_RFC, 400, length('0x5')),
  refused('an underscore between digits', LENGTH_RFC, 400, length('0_5')),
  refused('a fraction', LENGTH_RFC, 400, length('5.0')),
  refused('an exponent', LENGTH_RFC, 400, length('5e0')),
  refused('a space between digits', LENGTH_RFC, 400, length('0 5')),
  refused('nothing', LENGTH_RFC, 400, length('')),
  refused('only blanks', LENGTH_RFC, 400, length(' \t ')),
  refused('in quotes', LENGTH_RFC, 400, length('"5"')),
  refused('a semicolon', LENGTH_RFC, 400, length('5;')),
  refused('full-width digits', LENGTH_RFC, 400, length('\xef\xbc\x95')),
  refused('Arabic digits', LENGTH_RFC, 400, length('\xd9\xa5')),
  refused('a no-break space', LENGTH_RFC, 400, length('\xa05')),
  refused('a vertical tab', LENGTH_RFC, 400, length('5\v')),
  refused('a NUL', LENGTH_RFC, 400, length('5\0')),
  refused('words', LENGTH_RFC, 400, length('five')),
  refused('2^53', LENGTH_RFC, 400, length('9007199254740992')),
  refused('seventeen digits, though they say 5', LENGTH_RFC, 400, length('00000000000000005')),
  refused('2^64 + 5', LENGTH_RFC, 400, length('18446744073709551621')),
  refused('2^32 + 5, which 32 bits hold for 5', 'RFC 9110 15.5.14', 413, length('4294967301')),
  refused('one byte more than the limit', 'RFC 9110 15.5.14', 413, length('5'), { options: { maxPayloadSize: 4 } }),
  refused('a space before the colon', `${NAME_RFC}, CVE-2021-22959`, 400, post('content-length : 5', 'hello')),
  refused('a space before the name', 'RFC 9112 5.2, CVE-2024-27982', 400, post(' content-length: 5', 'hello')),
  refused(
    'a space before the name, in the first line',
    'RFC 9112 2.2, CVE-2024-27982',
    400,
    'POST /x HTTP/1.1\r\n content-length: 5\r\nhost: h\r\n\r\nhello',
  ),
  refused('folded', 'RFC 9112 5.2', 400, post('content-length:\r\n 5', 'hello')),
  refused('behind a bare CR', 'RFC 9112 2.2', 400, post('x: y\rcontent-length: 5', 'hello')),
  passed(
    'blanks around it',
    'RFC 9110 5.5',
    length('\t5 \t'),
    `${engineHead('POST /x', 'content-length: \t5 \t')}hello`,
  ),
  passed(
    'leading zeros are decimal still',
    LENGTH_RFC,
    length('0005'),
    `${engineHead('POST /x', 'content-length: 0005')}hello`,
  ),
  passed(
    'none: what follows the head is the next request',
    'RFC 9112 6.3(7)',
    `${head('POST /x HTTP/1.1')}${HIDDEN}`,
    `${engineHead('POST /x')}${engineHead('GET /hidden').replace(': r', ': h')}`,
    { statuses: [200, 200] },
  ),
  passed(
    'none, and no request follows: refused',
    'RFC 9112 6.3(7)',
    `${head('POST /x HTTP/1.1')}hello\r\n\r\n`,
    engineHead('POST /x'),
    { statuses: [200, 400], closes: true },
  ),
  passed(
    '0, and a request behind it',
    'RFC 9112 6.3(6)',
    post('content-length: 0') + HIDDEN,
    enginePost('') + engineHead('GET /hidden').replace(': r', ': h'),
    { statuses: [200, 200] },
  ),
  passed(
    'a request as a body is a body',
    'RFC 9112 6.3(6)',
    post(`content-length: ${HIDDEN.length}`, HIDDEN),
    enginePost(HIDDEN),
  ),
  passed(
    'a body in a GET is a body',
    'RFC 9110 9.3.1',
    `${head('GET /x HTTP/1.1', `content-length: ${HIDDEN.length}`)}${HIDDEN}`,
    engineHead('GET /x', `content-length: ${HIDDEN.length}`) + HIDDEN,
  ),
  passed(
    'a body in a DELETE is a body',
    'RFC 9110 9.3.5',
    `${head('DELETE /x HTTP/1.1', TE)}${CHUNKS}`,
    `${engineHead('DELETE /x', 'content-length: 5')}hello`,
  ),
  passed(
    'a body of chunk lines is a body',
    'RFC 9112 6.3(6)',
    post(`content-length: ${CHUNKS.length}`, CHUNKS),
    enginePost(CHUNKS),
  ),
  passed(
    'Content_Length frames nothing',
    NAME_RFC,
    post(['content_length: 400', 'content-length: 5'], 'hello'),
    `${engineHead('POST /x', 'content_length: 400', 'content-length: 5')}hello`,
  ),
  unfinished(
    'fewer bytes than announced',
    'RFC 9112 8',
    post('content-length: 6', 'hello'),
    `${engineHead('POST /x', 'content-length: 6')}hello`,
  ),
];

testAll('both framings', both);
testAll('transfer coding', codings);
testAll('length', lengths);
