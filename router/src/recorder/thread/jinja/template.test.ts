import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NAMES } from '../../../../test/jinja/expressions.ts';
import { readJson } from './json.ts';
import { Template } from './template.ts';
import { type Named, TemplateError } from './values.ts';

const render = (template: string): string => new Template(template).render(readJson(NAMES) as Named);

/** What Jinja2 3.1.6 renders. `npm test -- suite:jinja` asks it about thousands more. */
const rendered: readonly (readonly [template: string, text: string])[] = [
  [
    '{{ 1.0 }} {{ 1e16 }} {{ 1e-7 }} {{ 2.5 }} {{ -0.0 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 70 }} {{ 2 ** -1 }}',
    '1.0 1e+16 1e-07 2.5 -0.0 3.5 3.0 -4 2 1180591620717411303424 0.5',
  ],
  [
    "{{ true }} {{ none }} {{ missing }}|{{ [true, none, 'a', \"it's\", 1.0] }} {{ {'a': 1, 'b': {'c': \"\\n\"}} }} {{ (1,) }} {{ ('a', 'b') }}",
    "True None |[True, None, 'a', \"it's\", 1.0] {'a': 1, 'b': {'c': '\\n'}} (1,) ('a', 'b')",
  ],
  [
    '{{ dict }} {{ dict|tojson }} {{ dict.keys()|list }} {{ dict.items() }}',
    "{'10': 'ten', '9': 'nine', 'b': {'c': [1, 2.0]}, 'a': None, 'items': 'member'} {\"10\": \"ten\", \"9\": \"nine\", \"b\": {\"c\": [1, 2.0]}, \"a\": null, \"items\": \"member\"} ['10', '9', 'b', 'a', 'items'] dict_items([('10', 'ten'), ('9', 'nine'), ('b', {'c': [1, 2.0]}), ('a', None), ('items', 'member')])",
  ],
  [
    '{{ numbers|tojson }} {{ large|tojson }} {{ small|tojson }} {{ messages[2]|tojson(indent=2) }}',
    '[3, 1.0, 2, -5, 2.5] 36893488147419103232 1e-07 {\n  "role": "assistant",\n  "content": null,\n  "n": 1.5,\n  "tool_calls": [\n    {\n      "function": {\n        "name": "f",\n        "arguments": {\n          "x": 1.0,\n          "2": [],\n          "1": {}\n        }\n      }\n    }\n  ]\n}',
  ],
  [
    "{{ {'b': 1, 'a': [], 'c': {}}|tojson(sort_keys=true, separators=(',', ':')) }} {{ '<é&>\\x7f'|tojson }} {{ '<é&>\\x7f'|tojson(ensure_ascii=true) }}",
    '{"a":[],"b":1,"c":{}} "<é&>\x7f" "<\\u00e9&>\\u007f"',
  ],
  [
    "{{ '\\n\\n  a \\n'.strip('\\n') }}|{{ '\\n\\n  a \\n'.lstrip('\\n') }}|{{ '  a \\n'.rstrip('\\n') }}|{{ '\\ufeffa\\x1c\\x85'.strip()|length }}|{{ odd|trim|length }}",
    '  a |  a \n|  a |2|2',
  ],
  [
    "{{ 'a<b>c<b>d'.split('<b>') }} {{ 'a  b c'.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a b c'.rsplit(' ', 1) }} {{ 'a\\nb\\r\\nc\\n'.splitlines() }}",
    "['a', 'c', 'd'] ['a', 'b', 'c'] ['a', 'b c'] ['a b', 'c'] ['a', 'b', 'c']",
  ],
  [
    "{{ smile|length }} {{ smile[1] }} {{ smile[::-1] }} {{ smile[1:] }} {{ 'héllo'.upper() }} {{ word.find('r') }} {{ 'x'.replace('', '-') }}",
    '3 😀 b😀a 😀b HÉLLO 2 -x-',
  ],
  [
    "{{ messages|map(attribute='role')|join(', ') }} {{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ 'yes' if []|select else 'no' }}",
    'system, user, assistant 1 yes',
  ],
  [
    "{{ messages|selectattr('n', 'defined')|map(attribute='n')|sum }} {{ numbers|sort }} {{ words|sort }} {{ words|unique|list }} {{ words|reverse|list }}",
    "3.5 [-5, 1.0, 2, 2.5, 3] ['<&>', 'A', 'a', 'b', 'c'] ['b', 'A', 'c', '<&>'] ['<&>', 'a', 'c', 'A', 'b']",
  ],
  [
    "{{ dict.items is string }} {{ dict['items'] }} {{ dict.a is none }} {{ dict.a is defined }} {{ dict.z is defined }} {{ dict.get('a', 1) }} {{ dict.get('z', 1) }}",
    'False member True True False None 1',
  ],
  [
    "{{ nothing.x is defined }} {{ 'a' is in ['a', 1] }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'b' in dict }} {{ 2.5 in numbers }} {{ 3 is divisibleby 3 }} {{ 1 < 2 < 3 }}",
    'False True True True True True True True',
  ],
  [
    "{{ 'a' ~ 1 ~ none ~ 2.0 }} {{ 'x' * 3 }} {{ [1] + [2] }} {{ '%s-%05.1f-%d' % ('a', 2.25, 7) }} {{ not 1 == 2 }} {{ -1|abs }} {{ 2 * 3 ~ 4 }}",
    'a1None2.0 xxx [1, 2] a-002.2-7 True 1 64',
  ],
  [
    "{{ none|upper }} {{ missing|upper }}| {{ true|string }} {{ 1.0|int }} {{ '12'|int + 1 }} {{ 'x'|int(5) }} {{ 2.5|round }} {{ 'a b-c'|title }} {{ 'aB'|capitalize }}",
    'NONE | True 1 13 5 2.0 A B-C Ab',
  ],
  [
    "{{ 'a\\n\\nb'|indent }} {{ 'a\\nb'|indent(2, true) }} {{ missing|default('d') }} {{ ''|default('d', true) }} {{ [1, 2]|first }} {{ []|last is defined }}",
    'a\n\n    b   a\n  b d d 1 False',
  ],
  [
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.first }} {{ loop.previtem.role if loop.previtem is defined }} {{ m['role'] }};{% else %}none{% endfor %}",
    '1/3 True  system;2/3 False system user;3/3 False user assistant;',
  ],
  [
    '{% for k, v in dict|dictsort %}{{ k }},{% endfor %}{% for n in numbers if n > 1 %}{% if n == 2 %}{% continue %}{% endif %}{{ n }} {% endfor %}{% for n in [1, 2, 3] %}{% if n == 2 %}{% break %}{% endif %}{{ n }}{% endfor %}',
    '10,9,a,b,items,3 2.5 1',
  ],
  [
    "{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}{% endif %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.found }} {{ ns.n }}",
    'True 3',
  ],
  [
    "{% set a, b = 'x', [1] %}{{ a }}{{ b }}{% set c %} block {{ a }} {% endset %}[{{ c }}]{% for i in [1] %}{% set a = 'inner' %}{% endfor %}{{ a }}",
    'x[1][ block x ]x',
  ],
  [
    "{% macro show(x, y='d', z=none) %}<{{ x }}|{{ y }}|{{ z }}>{% endmacro %}{{ show(1) }}{{ show(1, z=2) }}{{ show('a', none) }}{{ show() }}",
    '<1|d|None><1|d|2><a|None|None><|d|None>',
  ],
  [
    '{% macro wrap() %}({{ caller() }}){% endmacro %}{% call wrap() %}in{% endcall %}{% filter upper %}abc{% endfilter %}{% with v = 1 %}{{ v }}{% endwith %}{{ v is defined }}',
    '(in)ABC1False',
  ],
  [
    "a  \n  {% if true %}\n  b\n  {% endif %}\nc {%- if true -%}  d  {%- endif %} e\n  {# comment #}\nf {{- ' g ' -}} h\n  {%+ if true %}i{% endif +%}\nj\n",
    'a  \n  b\ncd e\nf g h\n  i\nj',
  ],
  [
    "{% raw %}{{ not rendered }}{% endraw %}{% generation %}answer{% endgeneration %}{{ 'a' 'b' }}{{ \"\\t\\x41\\u00e9\" }}{{ '{%' }}",
    '{{ not rendered }}answerab\tAé{%',
  ],
  [
    '{{ range(3)|list }} {{ range(1, 10, 4)|list }} {{ [1, 2, 3][-1] }} {{ [1, 2, 3, 4][1::2] }} {{ (1, 2)[0] }} {{ messages[0].role }} {{ messages[9] is defined }}',
    '[0, 1, 2] [1, 5, 9] 3 [2, 4] 1 system False',
  ],
  ["{{ namespace(dict|dictsort).b }} {{ namespace([['a', 1]], b=2).a }}", "{'c': [1, 2.0]} 1"],
  [
    "{% set ns = namespace(seen=[]) %}{% for x in ['a', 'b', 'a'] if x not in ns.seen %}{{ x }}{% set ns.seen = ns.seen + [x] %}{% endfor %}",
    'ab',
  ],
  [
    '{% for i in [1, 2] %}{% continue %}{% else %}E{% endfor %}{% for i in [1] %}a{% break %}{% else %}E{% endfor %}',
    'EaE',
  ],
  [
    "{{ (messages|selectattr('n')|first) is defined }} {{ 'y' if messages|map(attribute='n.x.y') else 'n' }} {% set g = numbers|map('string') %}{% for x in g %}{{ x }}{% break %}{% endfor %}{{ g|list }}",
    "True y 3['1.0', '2', '-5', '2.5']",
  ],
  [
    "{{ messages[0]|attr('role') }}|{{ '%s' % missing }}|{{ '1e400'|int }}|{{ 'a\\nb'|indent(-1) }}|{{ text[2:5] }}{{ text.find('brown') }}{{ smile.find('b') }}",
    '||0|a\nb|The132',
  ],
  ["{{ strftime_now(format='%%') }} {{ [1, 2, 3]|reverse|list }} {{ [3, 4]|reverse|first }}", '% [3, 2, 1] 4'],
];

test('templates are rendered as Jinja2 does', () => {
  for (const [template, text] of rendered) assert.equal(render(template), text, template);
});

test('a dict is made of another, of pairs and of names', () => {
  const template = "{{ dict([['a', 1]], b=2) }} {{ dict(given, b=3) }} {{ dict(given.items()) }} {{ dict() }}";
  const text = new Template(template).render(new Map([['given', new Map([['a', 1n]])]]));
  assert.equal(text, "{'a': 1, 'b': 2} {'a': 1, 'b': 3} {'a': 1} {}");
});

test('what Jinja2 refuses is refused in words', () => {
  for (const [template, words] of [
    ["{{ raise_exception('Roles must alternate') }}", /^Roles must alternate$/],
    ['{{ missing.member }}', /'missing' is undefined/],
    ['{{ missing + 1 }}', /'missing' is undefined/],
    ["{{ 1 + 'a' }}", /unsupported operand type\(s\) for \+: 'int' and 'str'/],
    ["{{ 1 < 'a' }}", /'<' not supported between instances of 'int' and 'str'/],
    ['{{ missing|tojson }}', /Object of type Undefined is not JSON serializable/],
    ['{{ numbers|map("nofilter")|list }}', /No filter named 'nofilter'/],
    ['{{ namespace([1]) }}', /'int' object is not iterable/],
    ["{{ '%d' % 'a' }}", /a number is required, not str/],
    ["{{ '5%' % () }}", /unsupported format character/],
    ['{{ strftime_now() }}', /missing the argument 'format'/],
    ["{{ strftime_now('%Q') }}", /does not know %Q/],
    ['{{ range() }}', /range expected 1 to 3 arguments/],
    ['{{ [].append(1) }}', /The method append of list can't be called in a chat template/],
    ['{{ 1 / 0 }}', /division by zero/],
    ['{% for x in 3 %}{% endfor %}', /'int' object is not iterable/],
    ['{{ range(100001) }}', /Range too big/],
    ['{{ word.strip(1, 2) }}', /str\.strip\(\) takes 1 arguments but 2 were given/],
  ] as const) {
    const own = new Template(template);
    assert.throws(() => own.render(readJson(NAMES) as Named), { message: words }, template);
  }
});

test('a template that cannot be read is refused with its line', () => {
  for (const [template, words] of [
    ['a\n{% if %}', 'line 2: unexpected "close"'],
    ['\n\n{% if x %}b', 'line 3: expected {% endif %}, got end of template'],
    ['{{ x|nofilter }}', "line 1: No filter named 'nofilter'."],
    ['{{ x is notest }}', "line 1: No test named 'notest'."],
    ['{{ (x }}', "line 1: unexpected '}'"],
    ['{{ x ! }}', 'line 1: unexpected char "!"'],
    ['{# a', 'line 1: Missing end of comment tag'],
    ["{% include 'x' %}", "line 1: unknown tag 'include'"],
    ['{% endif %}', "line 1: unknown tag 'endif'"],
    ['{% for x in y recursive %}{% endfor %}', 'line 1: recursive loops are not supported'],
  ] as const) {
    assert.throws(
      () => new Template(template),
      (error) => error instanceof TemplateError && error.message.startsWith(words),
      template,
    );
  }
});

test('JSON keeps its numbers and its order', () => {
  const json = '{"10":1.0,"9":[12345678901234567890,-0,-0.0,1e22,1E5,0.1],"a":{"b":null,"a":true},"é":"\\u00e9\\n"}';
  const text = new Template('{{ value|tojson }}').render(new Map([['value', readJson(json)]]));
  assert.equal(
    text,
    '{"10": 1.0, "9": [12345678901234567890, 0, -0.0, 1e+22, 100000.0, 0.1], "a": {"b": null, "a": true}, "é": "é\\n"}',
  );
  const long = 'x"\\\\"'.repeat(4_000_000);
  assert.equal((readJson(JSON.stringify([long])) as string[])[0], long);
  assert.equal(readJson('9'.repeat(4_301)), Infinity);
  assert.equal(readJson('9'.repeat(4_300)), BigInt('9'.repeat(4_300)));
  for (const bad of [
    '[['.repeat(200) + ']]'.repeat(200),
    '',
    '{',
    '{"a" 1}',
    '[1,]',
    '01',
    '"a',
    'nul',
    '1 2',
    "{'a': 1}",
  ]) {
    assert.throws(() => readJson(bad), SyntaxError, bad);
  }
});
