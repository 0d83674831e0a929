import type { Random } from '../../src/kit/rng.ts';

/** The names that random expressions have, as JSON. */
export const NAMES = `{
  "text": "  The quick\\n brown  fox.\\n", "word": "Zürich", "empty": "", "smile": "a😀b", "odd": "\\ufeffx\\u0085\\u001c",
  "int": 7, "negative": -3, "zero": 0, "float": 2.5, "whole": 1.0, "small": 1e-7, "large": 36893488147419103232, "huge": 1e22,
  "yes": true, "no": false, "nothing": null,
  "numbers": [3, 1.0, 2, -5, 2.5], "words": ["b", "A", "c", "a", "<&>"], "mixed": [1, "1", null, true, [1], {"a": 1}],
  "dict": {"10": "ten", "9": "nine", "b": {"c": [1, 2.0]}, "a": null, "items": "member"},
  "messages": [{"role": "system", "content": " s "}, {"role": "user", "content": "u", "n": 2},
    {"role": "assistant", "content": null, "n": 1.5, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.0, "2": [], "1": {}}}}]}]
}`;

const LITERALS = String.raw`1|0|-2|1.5|2.0|10|true|false|none|'a'|'B '|" x\n"|'é'|''|', '|'role'|'user'|'n'|[]|[1, 2]|['a', 'b']|{}|{'a': 1, 'b': none}|(1, 'a')|()|missing`;
// A view of a dict has the operators of sets.
const VIEWS = 'keys()|values()|items()';
const VARIABLES =
  'text|word|empty|smile|odd|int|negative|zero|float|whole|small|large|huge|yes|no|nothing|numbers|words|mixed|dict|messages';
const LISTS = 'numbers|words|mixed|dict|messages|text|[]';
const OPERATORS = '+|-|*|/|//|~|and|or|==|!=|<|<=|>|>=|in|not in';
const FILTERS = list(
  `abs|capitalize|count|d('x')|default('x', true)|default|dictsort|dictsort(by='value')|first|float|float(1)|int|int(5)|join|join(', ')|
  last|length|list|lower|replace('a', 'b')|replace('', '.', 2)|round|round(1)|round(2)|round(1, 'floor')|sort|sort(reverse=true)|sort(attribute='role')|string|
  sum|title|tojson|tojson(indent=2)|tojson(separators=(',', ':'))|tojson(sort_keys=true)|tojson(ensure_ascii=true)|trim|trim('a ')|upper|indent|
  indent(2, true)|indent('>', blank=true)|attr('role')|format(1, 'a')`,
);
/** They make generators, which Python does not run before their values are asked for. */
const LAZY = list(
  `map('string')|map(attribute='role')|map(attribute='n', default=0)|reject('none')|rejectattr('role', 'equalto', 'user')|reverse|select|
  select('string')|selectattr('role', 'eq', 'user')|selectattr('n')|map('upper')|reject('in', ['a', 1])`,
);
const READERS = "list|list|first|join|join('-')|list|length|tojson|list|tojson";
const TESTS = `boolean|callable|defined|divisibleby(2)|divisibleby 2|eq 1|equalto('a')|even|false|float|ge(1)|gt 0|in [1, 'a']|integer|iterable|le 2|lower|
  lt(3)|mapping|ne 1|none|number|odd|sameas none|sequence|string|true|undefined|upper`;
const METHODS = String.raw`upper()|lower()|capitalize()|title()|swapcase()|strip()|strip(' \n')|lstrip()|rstrip()|lstrip('\n')|rstrip('.')|split()|
  split(' ')|split('', 1)|split(' ', 1)|split(none, 1)|rsplit(' ', 1)|rsplit(none, 2)|splitlines()|replace('a', '')|replace('', '-', 3)|startswith('a')|
  startswith(('a', ' '))|endswith('\n')|find('o')|find('o', 3)|rfind('o')|index('q')|count('o')|count('')|join(words)|join(['a'])|partition(' ')|
  rpartition(' ')|zfill(30)|center(30, '*')|ljust(30)|rjust(30, '.')|removeprefix('  ')|removesuffix('\n')|isdigit()|isalpha()|isalnum()|isspace()|
  islower()|isupper()|istitle()|isnumeric()`;
const MEMBERS = `get('a')|get('z', 1)|get('a', 1)|get('10')|copy()|count(1)|index(1)|append(1)|pop()|update({})|a|b|role|10|0`;
const SUBSCRIPTS = `0|-1|5|'a'|'items'|'role'|1:|:2|::2|::-1|-2:|:-1|1:9:3|none|yes`;

function list(text: string): string[] {
  return text.split(/\|\s*/);
}

const kinds = {
  literals: list(LITERALS),
  variables: list(VARIABLES),
  lists: list(LISTS),
  operators: list(OPERATORS),
  filters: FILTERS,
  lazy: LAZY,
  readers: list(READERS),
  tests: list(TESTS),
  methods: list(METHODS),
  members: list(MEMBERS),
  views: list(VIEWS),
  subscripts: list(SUBSCRIPTS),
};

/** A random expression; some of them are errors. */
export function expression(random: Random, depth = 3): string {
  const one = (kind: keyof typeof kinds): string => pick(random, kinds[kind]);
  const inner = (): string => expression(random, depth - 1);
  if (depth === 0) return random() < 0.7 ? one('variables') : one('literals');
  const makers = [
    () => `${one('variables')}|${one('filters')}`,
    () => `(${inner()})|${one('filters')}`,
    () => `${one('lists')}|${one('lazy')}|${one('readers')}`,
    () => `${one('lists')}|${one('lazy')}|${one('lazy')}|${one('readers')}`,
    () => `${one('variables')} ${one('operators')} ${one('variables')}`,
    () => `${inner()} ~ ${inner()}`,
    () => `(${inner()}) ${one('operators')} (${inner()})`,
    () => `((${inner()}) is ${random() < 0.3 ? 'not ' : ''}${one('tests')})`,
    () => `(${inner()}|string).${one('methods')}`,
    () => `${pick(random, ['text', 'word', 'smile', 'odd', 'empty'])}.${one('methods')}`,
    () => `${pick(random, ['dict', 'messages[0]', 'numbers', 'mixed', 'messages[2].tool_calls[0]'])}.${one('members')}`,
    () => `(${pick(random, ['dict', 'messages[0]'])}.${one('views')}|${one('readers')})`,
    () => `${one('variables')}[${one('subscripts')}]`,
    () => `(${inner()} if (${inner()}) else ${inner()})`,
    () => `(not ${inner()})`,
    () => `-${one('variables')}`,
    () => `[${inner()}, ${inner()}]`,
    () => `{'k': ${inner()}, ${one('variables')}|string: 1}`,
  ];
  return pick(random, makers)();
}

/** A random template with blocks, and white space around them. */
export function template(random: Random, depth = 2): string {
  const value = (): string => expression(random, Math.floor(random() * 3));
  const body = (): string => template(random, depth - 1);
  const space = (): string => pick(random, ['', '', ' ', '\n', '  \n', '\n\n  ', 'x', ' y\n']);
  const tag = (inside: string): string =>
    `{%${pick(random, ['', '-', '', '+'])} ${inside} ${pick(random, ['', '-', '', '+'])}%}`;
  const print = (): string => `{{${pick(random, ['', '-'])} ${value()} ${pick(random, ['', '-'])}}}`;
  if (depth === 0) return space() + pick(random, [print(), '', '{# a #}', '{#- b -#}', '{#c#}']) + space();
  const makers = [
    () => print(),
    () => tag(`if ${value()}`) + body() + tag('else') + body() + tag('endif'),
    () => tag(`if ${value()}`) + body() + tag(`elif ${value()}`) + body() + tag('endif'),
    () => tag(`for item in ${value()}`) + '{{ loop.index }}{{ item }}' + body() + tag('else') + body() + tag('endfor'),
    () =>
      tag('for m in messages if m.n') +
      `{{ loop.last }}{{ m.role }}${tag(pick(random, ['continue', 'break']))}` +
      tag('endfor'),
    () =>
      `${tag('set ns = namespace(n=0)')}${tag('for x in numbers if ns.n < 2')}{{ x }}{{ ${pick(random, ['loop.last', 'loop.nextitem', 'loop.length', 'loop.index', 'x'])} }}${tag('set ns.n = ns.n + 1')}${tag('endfor')}`,
    () =>
      `${tag('for x in numbers')}${tag(`if ${value()}`)}${tag(pick(random, ['continue', 'break']))}${tag('endif')}{{ x }}${tag('else')}none${tag('endfor')}`,
    () =>
      `{{ (${pick(random, ['messages', 'words'])}|${pick(random, ["map(attribute='tool_calls.0')", "selectattr('tool_calls.0.function')", "map('attr', 'role')"])}|first) is defined }}`,
    () =>
      `{{ ${pick(random, ["namespace({'a': 1}, b=2).a", 'namespace(dict|dictsort).b', 'namespace(1).a', "messages[0]|attr('role')"])} }}`,
    () =>
      `${tag("set g = numbers|map('string')")}${tag('for x in g')}{{ x }}${tag('break')}${tag('endfor')}{{ g|list }}{{ '2' in g }}`,
    () => tag('for key, own in dict.items()') + '{{ key }}={{ own }};' + tag('endfor'),
    () => `${tag(`set own = ${value()}`)}${body()}{{ own }}`,
    () => `${tag('set block')}${body()}${tag('endset')}{{ block|tojson }}`,
    () => `${tag('set ns = namespace(a=1)')}${tag(`set ns.a = ${value()}`)}{{ ns.a }}`,
    () =>
      `${tag("macro m(a, b='d')")}{{ a }}-{{ b }}${body()}${tag('endmacro')}{{ m(${value()}) }}{{ m(1, b=${value()}) }}`,
    () => `${tag('macro w()')}<{{ caller() }}>${tag('endmacro')}${tag('call w()')}${body()}${tag('endcall')}`,
    () => `${tag('filter upper')}${body()}${tag('endfilter')}`,
    () => `${tag(`with own = ${value()}, word = 1`)}{{ own }}{{ word }}${tag('endwith')}`,
    () => `${tag('generation')}${body()}${tag('endgeneration')}`,
    () => `{% raw %}{{ no }}{% x %}\n{% endraw %}`,
  ];
  return space() + pick(random, makers)() + space() + (random() < 0.5 ? body() : '');
}

const pick = <Item>(random: Random, items: readonly Item[]): Item => items[Math.floor(random() * items.length)]!;
