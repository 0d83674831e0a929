import {
  type AnswerHazard,
  HEAD,
  OLD,
  bad,
  clientAnswer,
  cut,
  engineAnswer,
  taken,
  testAnswers,
} from './answer-hazard.ts';

const OK = '200 OK';
const CL5 = 'content-length: 5';
const TE = 'transfer-encoding: chunked';
const CHUNKS = '5\r\nhello\r\n0\r\n\r\n';
const FORGED = engineAnswer(OK, ['content-length: 6'], 'forged');
const LINE_RFC = 'RFC 9112 4';
const BOTH_RFC = 'RFC 9112 6.3(3)';
const CODING_RFC = 'RFC 9112 6.3(4)';
const LENGTH_RFC = 'RFC 9112 6.3(5)';
const FIELD_RFC = 'RFC 9112 5.1';
const EMPTY_RFC = 'RFC 9112 6.3(1)';
const CUT_RFC = 'RFC 9112 8';
const INTERIM_RFC = 'RFC 9110 15.2';
const withField = (field: string): string => engineAnswer(OK, [field, CL5], 'hello');
const withLength = (value: string): string => engineAnswer(OK, [`content-length: ${value}`], 'hello');
const withCoding = (value: string): string => engineAnswer(OK, [`transfer-encoding: ${value}`], CHUNKS);
const withLine = (line: string): string => `${line}\r\ncontent-length: 5\r\n\r\nhello`;
const chunked = (body: string): string => engineAnswer(OK, [TE], body);
const HELLO = clientAnswer(OK, [CL5], 'hello');

const lines: readonly AnswerHazard[] = [
  bad('another program', LINE_RFC, 'SSH-2.0-engine\r\n'),
  bad('an answer without a head, as of HTTP/0.9', LINE_RFC, '<html>hello, world</html>\r\n'),
  bad('a request', LINE_RFC, 'GET /x HTTP/1.1\r\nhost: h\r\n\r\n'),
  bad('HTTP/2', LINE_RFC, withLine('HTTP/2 200 OK')),
  bad('HTTP/2.0', LINE_RFC, withLine('HTTP/2.0 200 OK')),
  bad('HTTP/1.2', LINE_RFC, withLine('HTTP/1.2 200 OK')),
  bad('http in small letters', LINE_RFC, withLine('http/1.1 200 OK')),
  bad('ICY', LINE_RFC, withLine('ICY 200 OK')),
  bad('two spaces', LINE_RFC, withLine('HTTP/1.1  200 OK')),
  bad('a tab', LINE_RFC, withLine('HTTP/1.1\t200 OK')),
  bad('a space before', LINE_RFC, withLine(' HTTP/1.1 200 OK')),
  bad('an empty line before', LINE_RFC, `\r\n${withLine('HTTP/1.1 200 OK')}`),
  bad('a status of two digits', LINE_RFC, withLine('HTTP/1.1 20 OK')),
  bad('a status of four digits', LINE_RFC, withLine('HTTP/1.1 2000 OK')),
  bad('a status of letters', LINE_RFC, withLine('HTTP/1.1 abc OK')),
  bad('status 000', LINE_RFC, withLine('HTTP/1.1 000 OK')),
  bad('status 099', LINE_RFC, withLine('HTTP/1.1 099 OK')),
  bad('status +20', LINE_RFC, withLine('HTTP/1.1 +20 OK')),
  bad('a hexadecimal status', LINE_RFC, withLine('HTTP/1.1 0xC OK')),
  bad('a NUL in the reason', LINE_RFC, withLine('HTTP/1.1 200 O\0K')),
  bad('a bare CR in the reason', 'RFC 9112 2.2', withLine('HTTP/1.1 200 O\rset-cookie: evil')),
  bad('a bare LF for a line end', 'RFC 9112 2.2', 'HTTP/1.1 200 OK\ncontent-length: 5\n\nhello'),
  bad('a reason without end', LINE_RFC, `HTTP/1.1 200 ${'O'.repeat(70_000)}`),
  taken('an empty reason', LINE_RFC, withLine('HTTP/1.1 200 '), clientAnswer('200 ', [CL5], 'hello')),
  taken(
    'no reason and no space: the space is put back',
    LINE_RFC,
    withLine('HTTP/1.1 200'),
    clientAnswer('200 ', [CL5], 'hello'),
  ),
  taken(
    'a reason beyond ASCII',
    LINE_RFC,
    withLine('HTTP/1.1 200 \xe9t\xe9'),
    clientAnswer('200 \xe9t\xe9', [CL5], 'hello'),
  ),
  taken(
    'a status beyond the classes',
    'RFC 9110 15',
    withLine('HTTP/1.1 799 Odd'),
    clientAnswer('799 Odd', [CL5], 'hello'),
  ),
  taken('HTTP/1.0 goes on as HTTP/1.1, and is over', 'RFC 9112 9.3', withLine('HTTP/1.0 200 OK'), HELLO, {
    isReused: false,
  }),
  taken(
    'HTTP/1.0 with chunks is over too',
    'RFC 9112 6.1',
    `HTTP/1.0 200 OK\r\n${TE}\r\n\r\n${CHUNKS}`,
    clientAnswer(OK, [TE], CHUNKS),
    { isReused: false },
  ),
];

const framings: readonly AnswerHazard[] = [
  bad('Content-Length, then chunked', BOTH_RFC, engineAnswer(OK, ['content-length: 3', TE], CHUNKS)),
  bad('chunked, then Content-Length', BOTH_RFC, engineAnswer(OK, [TE, 'content-length: 3'], CHUNKS)),
  bad('both, to a HEAD', BOTH_RFC, engineAnswer(OK, ['content-length: 3', TE]), { asks: HEAD }),
  bad('both, in a 304', BOTH_RFC, engineAnswer('304 Not Modified', ['content-length: 3', TE])),
  bad('two lengths that differ', LENGTH_RFC, engineAnswer(OK, [CL5, 'content-length: 6'], 'hello!')),
  bad('two lengths that agree', LENGTH_RFC, engineAnswer(OK, [CL5, CL5], 'hello')),
  bad('a list of lengths', LENGTH_RFC, withLength('5, 5')),
  bad('a plus', LENGTH_RFC, withLength('+5')),
  bad('a minus', LENGTH_RFC, withLength('-5')),
  bad('hexadecimal', LENGTH_RFC, withLength('0x5')),
  bad('an underscore', LENGTH_RFC, withLength('0_5')),
  bad('a length that is empty', LENGTH_RFC, withLength('')),
  bad('a fraction', LENGTH_RFC, withLength('5.0')),
  bad('2^53', LENGTH_RFC, withLength('9007199254740992')),
  bad('2^64 + 5', LENGTH_RFC, withLength('18446744073709551621')),
  bad('a space before the colon', FIELD_RFC, withField('content-length : 5')),
  bad('gzip, chunked', CODING_RFC, withCoding('gzip, chunked')),
  bad('gzip', CODING_RFC, withCoding('gzip')),
  bad('identity', CODING_RFC, withCoding('identity')),
  bad('chunked, chunked', CODING_RFC, withCoding('chunked, chunked')),
  bad('chunked twice', CODING_RFC, engineAnswer(OK, [TE, TE], CHUNKS)),
  bad('xchunked', CODING_RFC, withCoding('xchunked')),
  bad('a parameter', CODING_RFC, withCoding('chunked;q=1')),
  bad('a vertical tab', CODING_RFC, withCoding('\vchunked')),
  bad('an empty coding', CODING_RFC, withCoding('')),
  bad('Connection names Content-Length', 'RFC 9110 7.6.1', withField('connection: content-length')),
  bad(
    'Connection names Transfer-Encoding',
    'RFC 9110 7.6.1',
    engineAnswer(OK, ['connection: transfer-encoding', TE], CHUNKS),
  ),
  taken('chunks', 'RFC 9112 7.1', chunked(CHUNKS), clientAnswer(OK, [TE], CHUNKS)),
  taken('capitals behind a tab', 'RFC 9112 7', withCoding('\tCHUNKED'), clientAnswer(OK, [TE], CHUNKS)),
  taken(
    'a length of zero',
    'RFC 9112 6.3(6)',
    engineAnswer(OK, ['content-length: 0']),
    clientAnswer(OK, ['content-length: 0']),
  ),
  taken(
    'extensions and trailers are cut out',
    'RFC 9112 7.1.1',
    chunked('5;a="0\\r";b\r\nhello\r\n0;c\r\nset-cookie: evil\r\n\r\n'),
    clientAnswer(OK, [TE], CHUNKS),
  ),
  taken(
    'neither: to the end of the connection',
    'RFC 9112 6.3(8)',
    engineAnswer(OK, [], 'hello'),
    clientAnswer(OK, ['connection: close'], 'hello'),
    { engineEnds: 'end', clientEnding: 'end', isReused: false },
  ),
  taken(
    'neither, and the connection breaks: a reset is all that tells',
    CUT_RFC,
    engineAnswer(OK, [], 'hello'),
    clientAnswer(OK, ['connection: close'], 'hello'),
    { engineEnds: 'reset', clientEnding: 'reset', isReused: false },
  ),
];

const fields: readonly AnswerHazard[] = [
  bad('a folded line', 'RFC 9112 5.2', withField('x: a\r\n b')),
  bad('an indented first line', 'RFC 9112 2.2', withField(' x: a')),
  bad('a line without a colon', FIELD_RFC, withField('x-nothing')),
  bad('an empty name', FIELD_RFC, withField(': a')),
  bad('a space in a name', FIELD_RFC, withField('x y: a')),
  bad('a space before a colon', FIELD_RFC, withField('set-cookie : a')),
  bad('a NUL in a value', 'RFC 9110 5.5', withField('x: a\0b')),
  bad('a vertical tab in a value', 'RFC 9110 5.5', withField('x: a\vb')),
  bad('a DEL in a value', 'RFC 9110 5.5', withField('x: a\x7f')),
  bad('an escape in a value', 'RFC 9110 5.5', withField('x: \x1b]0;evil\x07')),
  bad('a bare CR in a value: splitting', 'RFC 9112 2.2', withField('x: a\rset-cookie: evil')),
  bad('a bare LF in a value: splitting', 'RFC 9112 2.2', withField('x: a\nset-cookie: evil')),
  bad('a head that ends in LF LF', 'RFC 9112 2.2', 'HTTP/1.1 200 OK\r\ncontent-length: 5\n\nhello'),
  bad('a head that ends in CRLF LF', 'RFC 9112 2.2', 'HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\nhello'),
  bad('201 lines', 'RFC 9110 5.4', engineAnswer(OK, [...Array.from({ length: 200 }, () => 'x: y'), CL5], 'hello')),
  bad('a head of 70,000 bytes', 'RFC 9110 5.4', withField(`x: ${'y'.repeat(70_000)}`)),
  bad('a head without end', 'RFC 9110 5.4', `HTTP/1.1 200 OK\r\n${'x: y\r\n'.repeat(12_000)}`),
  taken(
    'fields of one hop stay there',
    'RFC 9110 7.6.1',
    engineAnswer(
      OK,
      [
        'keep-alive: timeout=5',
        'connection: keep-alive, x-a',
        'x-a: 1',
        'te: x',
        'trailer: x',
        'upgrade: h2c',
        'proxy-connection: x',
        CL5,
      ],
      'hello',
    ),
    HELLO,
  ),
  taken(
    'Connection: close is for one hop',
    'RFC 9112 9.6',
    engineAnswer(OK, ['connection: CLOSE', CL5], 'hello'),
    HELLO,
    { isReused: false },
  ),
  taken(
    'odd spelling, order and repetition stay',
    'RFC 9110 5.3',
    engineAnswer(OK, ['B:1', 'a:\t2 ', 'b: \xff', 'A:', CL5], 'hello'),
    clientAnswer(OK, ['B:1', 'a:\t2 ', 'b: \xff', 'A:', CL5], 'hello'),
  ),
];

const bodies: readonly AnswerHazard[] = [
  taken('204', EMPTY_RFC, engineAnswer('204 No Content', []), clientAnswer('204 No Content', [])),
  taken(
    '204 with a length: no length goes on',
    'RFC 9110 8.6',
    engineAnswer('204 No Content', [CL5]),
    clientAnswer('204 No Content', []),
  ),
  taken(
    '204 with bytes',
    EMPTY_RFC,
    engineAnswer('204 No Content', [CL5], 'hello'),
    clientAnswer('204 No Content', []),
    { isReused: false },
  ),
  taken(
    '204 with chunks',
    EMPTY_RFC,
    engineAnswer('204 No Content', [TE], CHUNKS),
    clientAnswer('204 No Content', []),
    { isReused: false },
  ),
  taken(
    '204 with an answer behind it',
    EMPTY_RFC,
    engineAnswer('204 No Content', []) + FORGED,
    clientAnswer('204 No Content', []),
    { isReused: false },
  ),
  taken(
    '304 with a length is only told of it',
    EMPTY_RFC,
    engineAnswer('304 Not Modified', [CL5]),
    clientAnswer('304 Not Modified', [CL5]),
  ),
  taken(
    '304 with bytes',
    EMPTY_RFC,
    engineAnswer('304 Not Modified', [CL5], 'hello'),
    clientAnswer('304 Not Modified', [CL5]),
    { isReused: false },
  ),
  taken(
    '304 with chunks',
    EMPTY_RFC,
    engineAnswer('304 Not Modified', [TE], CHUNKS),
    clientAnswer('304 Not Modified', []),
    { isReused: false },
  ),
  taken('HEAD', EMPTY_RFC, engineAnswer(OK, [CL5]), HELLO.slice(0, -5), { asks: HEAD }),
  taken('HEAD with bytes', EMPTY_RFC, engineAnswer(OK, [CL5], 'hello'), HELLO.slice(0, -5), {
    asks: HEAD,
    isReused: false,
  }),
  taken('HEAD with a forged answer behind it', EMPTY_RFC, engineAnswer(OK, [CL5]) + FORGED, HELLO.slice(0, -5), {
    asks: HEAD,
    isReused: false,
  }),
  taken('HEAD of a chunked resource', EMPTY_RFC, engineAnswer(OK, [TE]), clientAnswer(OK, []), { asks: HEAD }),
  taken(
    '205 with bytes is framed as it says',
    'RFC 9110 15.3.6',
    engineAnswer('205 Reset Content', [CL5], 'hello'),
    clientAnswer('205 Reset Content', [CL5], 'hello'),
  ),
  taken('two answers', 'RFC 9112 9.2', engineAnswer(OK, [CL5], 'hello') + FORGED, HELLO, { isReused: false }),
  taken('two answers, the first of chunks', 'RFC 9112 9.2', chunked(CHUNKS) + FORGED, clientAnswer(OK, [TE], CHUNKS), {
    isReused: false,
  }),
  taken('one byte too many', 'RFC 9112 9.2', engineAnswer(OK, [CL5], 'hello!'), HELLO, { isReused: false }),
  taken('a line end too many', 'RFC 9112 9.2', engineAnswer(OK, [CL5], 'hello\r\n'), HELLO, { isReused: false }),
  taken(
    'a 100 behind the answer',
    'RFC 9112 9.2',
    `${engineAnswer(OK, [CL5], 'hello')}HTTP/1.1 100 Continue\r\n\r\n`,
    HELLO,
    { isReused: false },
  ),
  taken(
    'an answer as a body is a body',
    'RFC 9112 6.3(6)',
    engineAnswer(OK, [`content-length: ${FORGED.length}`], FORGED),
    clientAnswer(OK, [`content-length: ${FORGED.length}`], FORGED),
  ),
  taken(
    'HTTP/1.0 clients get the payload of chunks',
    'RFC 9112 7.1',
    chunked(CHUNKS),
    clientAnswer(OK, ['connection: close'], 'hello'),
    { asks: OLD, clientEnding: 'end' },
  ),
];

const broken: readonly AnswerHazard[] = [
  bad('nothing', CUT_RFC, '', { engineEnds: 'end' }),
  bad('half a status line', CUT_RFC, 'HTTP/1.1 20', { engineEnds: 'end' }),
  bad('half a head', CUT_RFC, 'HTTP/1.1 200 OK\r\nset-cookie: evil\r\n', { engineEnds: 'end' }),
  bad('half a head, reset', CUT_RFC, 'HTTP/1.1 200 OK\r\nset-cookie: evil\r\n', { engineEnds: 'reset' }),
  bad('an interim answer only', CUT_RFC, 'HTTP/1.1 102 Processing\r\n\r\n', { engineEnds: 'end' }),
  cut(
    'fewer bytes than announced',
    CUT_RFC,
    engineAnswer(OK, ['content-length: 9'], 'hello'),
    clientAnswer(OK, ['content-length: 9'], 'hello'),
    { engineEnds: 'end' },
  ),
  cut(
    'fewer bytes than announced, reset',
    CUT_RFC,
    engineAnswer(OK, ['content-length: 9'], 'hello'),
    clientAnswer(OK, ['content-length: 9'], 'hello'),
    { engineEnds: 'reset' },
  ),
  cut('no last chunk', CUT_RFC, chunked('5\r\nhello\r\n'), clientAnswer(OK, [TE], '5\r\nhello\r\n'), {
    engineEnds: 'end',
  }),
  cut('half a chunk', CUT_RFC, chunked('9\r\nhello'), clientAnswer(OK, [TE], '9\r\nhello'), { engineEnds: 'end' }),
  cut('half a chunk size', CUT_RFC, chunked('5\r\nhello\r\n5'), clientAnswer(OK, [TE], '5\r\nhello\r\n5'), {
    engineEnds: 'end',
  }),
  cut(
    'no end of the last chunk',
    CUT_RFC,
    chunked('5\r\nhello\r\n0\r\n'),
    clientAnswer(OK, [TE], '5\r\nhello\r\n0\r\n'),
    { engineEnds: 'end' },
  ),
];

const interim: readonly AnswerHazard[] = [
  bad(
    'an unasked 101',
    'RFC 9110 15.2.2',
    'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nhello',
  ),
  bad(
    'an unasked 101 with a length',
    'RFC 9110 15.2.2',
    'HTTP/1.1 101 Switching Protocols\r\ncontent-length: 5\r\n\r\nhello',
  ),
  bad(
    'an unasked 101 behind a 100',
    'RFC 9110 15.2.2',
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\n',
  ),
  bad('100 with a body', INTERIM_RFC, `HTTP/1.1 100 Continue\r\ncontent-length: 5\r\n\r\nhello${FORGED}`),
  bad('103 with chunks', 'RFC 9112 6.1', `HTTP/1.1 103 Early Hints\r\n${TE}\r\n\r\n${CHUNKS}${FORGED}`),
  bad('a broken head behind a 100', FIELD_RFC, `HTTP/1.1 100 Continue\r\n\r\n${withField('x : y')}`),
  bad('10,001 times 102', INTERIM_RFC, 'HTTP/1.1 102 Processing\r\n\r\n'.repeat(10_001)),
  taken('100, then the answer', INTERIM_RFC, `HTTP/1.1 100 Continue\r\n\r\n${engineAnswer(OK, [CL5], 'hello')}`, HELLO),
  taken(
    '103 with fields, then the answer: none of them goes on',
    INTERIM_RFC,
    `HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n${engineAnswer(OK, [CL5], 'hello')}`,
    HELLO,
  ),
  taken('199, then the answer', INTERIM_RFC, `HTTP/1.1 199 Odd\r\n\r\n${engineAnswer(OK, [CL5], 'hello')}`, HELLO),
  taken(
    '3,000 times 102, then the answer',
    INTERIM_RFC,
    `${'HTTP/1.1 102 Processing\r\n\r\n'.repeat(3_000)}${engineAnswer(OK, [CL5], 'hello')}`,
    HELLO,
  ),
];

testAnswers('status line', lines);
testAnswers('framing of an answer', framings);
testAnswers('field of an answer', fields);
testAnswers('body of an answer', bodies);
testAnswers('answer that breaks off', broken);
testAnswers('interim answer', interim);
