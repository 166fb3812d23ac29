#!/usr/bin/env python3
"""Write jinja/testdata/expressions.json.gz: small templates, and what Python's jinja2 makes of them as transformers sets it up.

    scripts/goldens/jinja.py            # from the repository root

Needs: transformers, jinja2 (see requirements.txt). Each case is [template, text or {"error": kind, "message": …}]; all are rendered with
DATA as the variable d (and, as transformers does, with messages, tools, documents and add_generation_prompt).
"""
import gzip
import itertools
import json
import pathlib

import jinja2
import templates

OUT = pathlib.Path(__file__).resolve().parents[2] / "masks" / "template" / "testdata" / "expressions.json.gz"
DATA = {
    "s": "Hello, Wörld! ß ǆ İ ΑΣ", "e": "", "sp": " \t\n x y\u2003z \x1f", "n": 7, "neg": -3, "f": 2.5, "big": 10**20, "t": True, "no": False, "none": None,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "mixed": [1, "a", None, 2.0, [1], {"k": "v"}], "d": {"z": 1, "a": 2, "items": 3, "Ä": "x'y\"z"},
    "people": [{"name": "Bo", "age": 3, "tags": ["x"]}, {"name": "al", "age": 3}, {"name": "Cy", "age": 1, "tags": []}],
    "html": "<a href=\"x\">&'</a>", "nested": {"a": {"b": [{"c": 1}]}}, "empty": [], "emptyd": {}, "uni": "a\u0301é🙂b\u2028c",
    "floats": [1.0, 1e16, 1e15, 123456789.123, 1e-4, 1e-5, 0.1, -0.0, 1.5e300, 100.0],
}
VALUES = ["d.s", "d.e", "d.n", "d.neg", "d.f", "d.big", "d.t", "d.none", "d.l", "d.d", "d.empty", "d.missing", "(1, 'b')", "range(3)", "d.people", "namespace(a=1)", "d.d.items()", "(d.l|map('string'))"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FILTERS = """abs capitalize center count default('x') default('x',true) d('y') escape e first float float(1.5) forceescape indent indent(2) indent('>>',true)
 indent(2,true,true) int int(3) int(5,16) items|list join join(',') last length list lower map('string')|list map('upper')|list map(attribute='name')|list
 map(attribute='name',default='?')|join('-') max min reverse|list reverse round round(1) round(0,'ceil') round(1,'floor') safe string sort sort(reverse=true)
 sort(case_sensitive=true) sort(attribute='age') sort(attribute='age,name') sum sum(attribute='age') title trim trim('x!') truncate(5) truncate(5,true) truncate(8,false,'~',0) unique|list upper
 urlencode wordcount tojson tojson(2) tojson(indent=2) tojson(ensure_ascii=true) tojson(sort_keys=true) tojson(separators=(',',':')) tojson(indent=1,sort_keys=true)|length replace('l','L') replace('l','',1) batch(2)|list batch(2,0)|list
 slice(2)|list slice(2,0)|list dictsort dictsort(true) dictsort(false,'value') dictsort(reverse=true) groupby('age') groupby('age')|map('first')|list select|list select('odd')|list select('string')|list reject|list reject('none')|list
 selectattr('age')|list selectattr('age','equalto',3)|map(attribute='name')|list rejectattr('tags')|list rejectattr('tags','defined')|list attr('upper') attr('name') format('a') format(1,2) string|length list|length
 first|upper unique(attribute='age')|list min(attribute='age') max(attribute='age') map('length')|list map('tojson')|join map('int')|sum map('default','q')|list select('in',[1,3])|list select('gt',1)|list map('replace','a','b')|list""".split()
TESTS = """defined undefined none boolean true false integer float number string mapping sequence iterable callable escaped lower upper odd even
 divisibleby(2) in([7,2.5]) sameas(none) sameas(true) eq(7) equalto('x') ne(7) lt(5) le(7) gt(5) ge(7)""".split()
METHODS = """upper() lower() title() capitalize() swapcase() strip() lstrip() rstrip() strip('H!') lstrip('He') rstrip('ß!') strip(none) split() split(',') split('l',1) split(none,1) split(sep='l',maxsplit=1)
 rsplit('l',1) rsplit(none,1) rsplit() splitlines() splitlines(true) startswith('He') startswith(('x','H')) startswith('e',1) endswith('!') endswith('x',0,3) find('l') find('l',4) find('zz') rfind('l') index('l') index('zz') count('l')
 count('') replace('l','L') replace('l','L',1) replace('','-') join(['a','b']) join('xyz') partition(',') rpartition('l') partition('zz') rpartition('zz') zfill(30) ljust(30,'.') rjust(30)
 center(31,'*') center(30) isdigit() isalpha() isalnum() isspace() islower() isupper() istitle() isnumeric() isdecimal() isascii() isprintable() removeprefix('He') removesuffix('x') expandtabs(4) format(1)
 split('') find() strip(1) join([1]) startswith(1) upper(1) items() keys()|list values()|list get('z') get('q') get('q',1) copy() index(1) count(1) append(1) pop() update({}) nosuch() nosuch __class__ real encode()""".split()
SLICES = ["[0]", "[-1]", "[5]", "[99]", "[1:]", "[:2]", "[::-1]", "[-3:-1]", "[::2]", "[5:1:-2]", "[1:99]", "[::0]", "['a']", "['items']", "['upper']", "[none]", "[true]", "[1.0]", "['z':]", "[:none]", "[d.missing]", "[[1]]", "[1,2]"]
STATEMENTS = r"""
{% for x in d.l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}|{% endfor %}
{% for x in d.l|select('odd') %}{{ loop.last }}{{ loop.length }}{{ loop.nextitem }}{{ loop.index }};{% endfor %}
{% for x in d.l if x > 1 %}{{ x }}{{ loop.index }}/{{ loop.length }} {% else %}none{% endfor %}
{% for x in d.l if x > 9 %}{{ x }}{% else %}none{% endfor %}
{% for k, v in d.d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in d.d %}{{ k }}{% endfor %}
{% for a, b in d.l %}{{ a }}{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for c in d.s %}{{ c }}.{% endfor %}
{% for x in d.missing %}{{ x }}{% else %}empty{% endfor %}
{% for x in d.n %}{{ x }}{% endfor %}
{% for x in none %}{{ x }}{% endfor %}
{% for x in d.l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}E{% endfor %}
{% for x in d.l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}E{% endfor %}
{% for x in d.l %}{% continue %}{% else %}E{% endfor %}
{% for x in d.l %}{% set y = x %}{% endfor %}{{ y }}
{% set y = 0 %}{% for x in d.l %}{{ y }}{% set y = x %}{{ y }};{% endfor %}{{ y }}
{% set ns = namespace(y=0) %}{% for x in d.l %}{% set ns.y = ns.y + x %}{% endfor %}{{ ns.y }}{{ ns }}
{% set ns = namespace() %}{{ ns.y }}{{ ns.y is defined }}{% set ns.y = 1 %}{{ ns.y }}{{ ns['y'] }}
{% set ns = namespace(d.d, q=1) %}{{ ns }}
{% set ns._x = 1 %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{% set ns = namespace(_x=1) %}
{% set x = 1 %}{% set x.y = 2 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set a, b = 'xy' %}{{ a }}{{ b }}
{% set a, b = [1] %}{{ a }}
{% set a, b = [1, 2, 3] %}{{ a }}
{% set x %}hello {{ d.n }}{% endset %}{{ x|upper }}
{% set x | upper | replace('L', 'l') %}hello {{ d.n }}{% endset %}{{ x }}
{% if d.no %}{% set q = 1 %}{% endif %}{{ q }}{{ q is defined }}
{% if d.t %}{% set q = 1 %}{% else %}{% set q = 2 %}{% endif %}{{ q }}
{% set q = 5 %}{% if d.no %}{% set q = 1 %}{% endif %}{{ q }}
{% for x in d.l %}{% if x == 1 %}{% set q = x %}{% endif %}{{ q }}{% endfor %}{{ q }}
{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(c=9, a=4) }}|{{ m() }}|{{ m(1,2,3,4,5) }}|{{ m(1, z=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}
{% macro m() %}[{{ caller(1) }}]{% endmacro %}{% call(x) m() %}body {{ x }}{{ d.n }}{% endcall %}
{% macro m() %}[{{ caller() }}]{% endmacro %}{{ m() }}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% macro f() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ f() }}
{% set v = 1 %}{% macro f() %}{{ v }}{% set v = 2 %}{{ v }}{% endmacro %}{{ f() }}{{ v }}{% set v = 3 %}{{ f() }}
{% for x in d.l %}{% macro f() %}{{ x }}{{ loop.index }}{% endmacro %}{{ f() }}{% endfor %}
{% macro f(x) %}{{ x }}{% endmacro %}{{ f.name }}{{ f is callable }}{{ f }}
{% for x in [[1, [2, [3]]], [4]] recursive %}{% if x is iterable and x is not string %}<{{ loop(x) }}>{% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}
{% for x in d.l %}{{ loop(x) }}{% endfor %}
{% for x in d.l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x // 2) }}{% endfor %}
{% for x in d.l %}{% for y in d.l %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set a = 5 %}{{ a }}{% endwith %}{{ a }}
{% set a = 9 %}{% with a = 1, b = a %}{{ b }}{% endwith %}
{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}
{% filter upper %}abc {{ d.s }}{% endfilter %}
{% filter replace('a', 'b') | upper %}aa{% endfilter %}
{% generation %}g{{ d.n }}{% set inside = 1 %}{% endgeneration %}{{ inside }}
{% for x in d.l %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}
{% raw %}{{ not }} {% if %}{% endraw %}x
  {% raw -%}   a   {%- endraw %}   b
{# comment #}a{#- c -#}  b
  {% if true %}
 a
  {% endif %}
b
  {%+ if true %} a {%+ endif %}
b
a  {%- if true -%}  b  {%- endif -%}  c
x {{- 1 -}} y {{+ 2 }} z
{{ 1 }}
{% if true %}  
x{% endif %}
	{% set x = 1 %}	
x
{%- for x in d.l -%}
  {{ x }}
{%- endfor -%}
{% print d.n, 'x' %}
{% if 1 %}{% elif nosuchname.x %}{% endif %}
{% if d.no %}a{% elif d.none %}b{% elif d.t %}c{% else %}e{% endif %}
{{ d.l is nosuchtest }}
{{ d.l|nosuchfilter }}
{% if d.no %}{{ d.l|nosuchfilter }}{% endif %}ok
{% if d.t %}{{ d.l|nosuchfilter }}{% endif %}ok
{{ (d.l|nosuchfilter) if d.no else 1 }}
{{ nosuch }}{{ nosuch is defined }}{{ nosuch|length }}{{ nosuch|list }}{{ nosuch == nosuch2 }}{{ not nosuch }}
{{ nosuch.x }}
{{ nosuch['x'] }}
{{ nosuch + 1 }}
{{ 'a' + nosuch }}
{{ nosuch() }}
{{ d.none.x }}{{ d.none['x'] }}{{ d.n.x }}
{{ d.none.x.y }}
{{ d.nosuch.y }}
{{ d.l.nosuch.y }}
{{ d.s.nosuch() }}
{{ d.l.append(1) }}
{{ d.d.update({}) }}
{{ d.s.__class__ }}
{{ 1 if d.no }}{{ (1 if d.no) is defined }}
{{ (1 if d.no).x }}
{{ 1 if d.t else 2 }}{{ 1 if d.no else 2 if d.no else 3 }}
{{ 'a' 'b' "c" }}{{ "\n\t\\\x41\u00e9\U0001F642\101\q\'" }}{{ 'é\é' }}
{{ 1_000 }}{{ 0x1f }}{{ 0b11 }}{{ 0o17 }}{{ 1e3 }}{{ 1.5e-7 }}{{ 12_3.4_5 }}{{ 00 }}{{ 99999999999999999999 }}
{{ [1, 'a', none, true, 1.0, (), (1,), {}, {'a': [1]}] }}{{ ('a',) }}{{ () }}
{{ {'a': 1, 1: 'b', true: 'c', none: 2, 1.0: 3, (1, 2): 4} }}
{{ {[1]: 2} }}
{{ {'a': 1}.a }}{{ {'a': 1}['a'] }}{{ [1, 2].0 }}{{ [[1, 2]].0.1 }}
{{ -d.n ** 2 }}{{ 2 ** 3 ** 2 }}{{ 2 ** -1 }}{{ 7 // -2 }}{{ -7 % 3 }}{{ 7 % -3 }}{{ 7.5 // 2 }}{{ -7.5 % 2 }}{{ 1 / 3 }}{{ 4 / 2 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1.0 % 0 }}
{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 == true }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ not 1 == 2 }}{{ 1 in [1.0] }}{{ 'a' in d.d }}{{ 'el' in d.s }}
{{ 1 in 'abc' }}
{{ 1 in 5 }}
{{ 1 < 'a' }}
{{ [1] < (2,) }}
{{ d.l * 2 }}{{ 2 * 'ab' }}{{ 'a' * -1 }}{{ (1,) * 2 }}{{ 'a' * true }}
{{ 'a' * 1.5 }}
{{ 'a' * 'b' }}
{{ [1] + (2,) }}
{{ 'x' ~ 1 ~ none ~ d.l ~ 2.0 }}
{{ 'a' if 'b' in 'abc' and not false or nosuch.x else 'c' }}
{{ d.t and d.e or 'x' }}{{ d.e or 0 or none }}{{ d.n and d.s and 5 }}
{{ '%s is %d and %5.2f|%-5s|%05d|%x|%r|%%|%+d|%.2s' % ('a', 3.7, 2.345, 'x', 42, 255, 'q', 3, 'abc') }}
{{ '%s' % 5 }}{{ '%s' % d.l }}{{ '%(a)s' % {'a': 1} }}{{ 'x' % [] }}{{ 'x' % {} }}
{{ '%s %s' % 'a' }}
{{ 'x' % 5 }}
{{ '%d' % 'a' }}
{{ '{} {}'.format(1, 'b') }}{{ '{0}{1}{0}'.format(1, 2) }}{{ '{a}{{}}'.format(a=[1]) }}
{{ '{}'.format() }}
{{ '{' .format() }}
{{ range(5)|list }}{{ range(1, 9, 3)|list }}{{ range(5, 0, -2)|list }}{{ range(3) }}{{ range(0, 4, 2)[1] }}{{ range(3)|length }}{{ 2 in range(3) }}
{{ range(1000000) }}
{{ range('a') }}
{{ range(1, 2, 0) }}
{{ dict(a=1, b=[2]) }}{{ dict([('x', 1)], y=2) }}{{ dict({'q': 1}) }}
{{ dict([1]) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}
{% set j = joiner(', ') %}{% for x in d.l %}{{ j() }}{{ x }}{% endfor %}
{{ strftime_now('%Y-%m-%d %H:%M:%S %B %b %A %a %j %p %I %y %-d %-m %e %% %f') }}
{{ raise_exception('bad ' ~ d.n) }}
{{ raise_exception() }}
{{ d.html|e }}{{ d.html|escape|escape }}{{ (d.html|e) + '<' }}{{ '<' + (d.html|safe) }}{{ (d.html|e) ~ '<' }}{{ d.html|safe|length }}{{ d.html|e is escaped }}{{ d.html|tojson|safe }}
{{ (d.html|safe)|upper }}{{ (d.html|safe)|trim }}{{ (d.html|safe) == d.html }}{{ [d.html|safe] }}{{ (d.html|safe)|string is escaped }}{{ ((d.html|safe) * 2) }}{{ (d.html|safe)[0:4] }}{{ (d.html|safe).strip() }}
{{ d.people|map(attribute='tags')|list }}{{ d.people|map(attribute='tags.0')|list }}{{ d.nested|attr('a') }}{{ [d.nested]|map(attribute='a.b.0.c')|list }}
{{ d.people|selectattr('tags')|map(attribute='name')|join(', ') }}{{ d.people|rejectattr('tags', 'undefined')|list|length }}
{% set g = d.l|select('odd') %}{{ g|list }}{{ g|list }}{{ g is iterable }}{{ g|first }}{% if g %}true{% endif %}
{{ (d.l|select('odd'))|length }}
{{ (d.l|map('upper'))|last }}
{{ d.l|map('nosuch')|list }}
{{ d.l|map('nosuch')|string is string }}
{{ d.l|map }}x
{{ d.l|map|list }}
{{ d.l|select('nosuch')|list }}
{{ d.d.items()|list }}{{ d.d.items }}
{{ d.d['items'] }}{{ d.d.keys()|list }}{{ d.d.values()|first }}{{ d.d.keys()|last }}{{ d.d.items()|length }}{{ d.emptyd.items }}
{{ d.d.items() }}
{{ d.emptyd.keys() is sameas(1) }}{{ d.emptyd['items'] is callable }}
{{ d.l[0] }}{{ d.l['0'] }}{{ d.l.0 }}{{ d.l[-1] }}{{ d.l[7] }}
{{ d.uni[1] }}{{ d.uni[3] }}{{ d.uni|length }}{{ d.uni[::-1] }}{{ d.uni.splitlines() }}{{ d.uni|list }}{{ d.uni|tojson }}{{ [d.uni] }}
{{ d.floats }}{{ d.floats|tojson }}{{ d.floats|map('string')|join(' ') }}{{ d.floats|map('int')|list }}
{{ '42.7'|int }}{{ 'x'|int(-1) }}{{ '0x1f'|int(0, 16) }}{{ ' 7 '|int }}{{ '1_0'|int }}{{ '1e3'|int }}{{ '1e3'|float }}{{ 'inf'|float }}{{ none|int }}{{ [1]|int(4) }}{{ true|int }}{{ 3.9|int }}{{ 'nan'|float }}{{ '0b1'|int }}{{ '٣'|float(9) }}
{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 7|round }}{{ 1234.5678|round(2, 'ceil') }}{{ -2.5|round }}{{ 1e300|round(2) }}
{{ 'a,b'.split(',')[1] }}{{ 'abc'[1] }}{{ 'abc'[-1:] }}{{ 'a-b_c d'|title }}{{ "it's o'neil (x) [y] <z> {w}"|title }}{{ "they're bill's".title() }}
{{ [1, [2, {'a': none}], true, 1.50, 'é"\\/\x00\x1f\x7f\u2028'] | tojson }}{{ {'b': 1, 'a': {}} | tojson(indent=4) }}{{ [[], {}, [1]] | tojson(indent=2) }}{{ {1: 2, none: 3, true: 4, 1.5: 6} | tojson }}
{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(', ', ':')) }}{{ 'é🙂' | tojson(ensure_ascii=true) }}{{ [1, 2] | tojson(indent='--') }}
{{ nosuch|tojson }}
{{ {(1, 2): 3} | tojson }}
{{ namespace()|tojson }}
{{ ['b', 'A', 'c']|sort }}{{ ['b', 'A', 'c', 'B']|sort(case_sensitive=true, reverse=true) }}{{ [3, 1.5, true]|sort }}{{ ['aB', 'Ab', 'c', 'C']|unique|list }}{{ ['a', 'A']|unique(true)|list }}
{{ [1, 'a']|sort }}
{{ [[1]]|unique|list }}
{{ d.people|groupby('age') }}{% for age, g in d.people|groupby('age') %}{{ age }}:{{ g|map(attribute='name')|list }};{% endfor %}{{ d.people|groupby('nosuch', default='x')|length }}
{{ [1, 2, 3]|sum }}{{ [[1], [2]]|sum(start=[]) }}{{ []|sum }}{{ ['a']|sum }}
{{ ['a', 'b']|join('<') }}{{ [1, none, true]|join(1) }}{{ 'abc'|join('-') }}{{ d.d|join }}{{ 5|join }}
{{ []|first }}{{ []|last }}{{ []|min }}{{ []|max }}{{ ([]|first) is defined }}
{{ 5|first }}
{{ 5|length }}
{{ none|list }}
{{ none|join }}
{{ d.none|upper }}{{ d.n|lower }}{{ d.l|string }}{{ d.none|trim }}{{ d.none|string|length }}{{ d.none|default('x') }}{{ d.e|default('x') }}{{ d.e|d('x', true) }}
{{ d.none|replace('o', '0') }}{{ 12|replace(1, 3) }}{{ 'aXbX'|replace('X', none) }}
{{ 'a\nb\n\nc'|indent }}{{ 'a\nb\n\nc'|indent(2, true, true) }}{{ ''|indent(2, true) }}{{ 'a\r\nb'|indent(1) }}
{{ 5|indent }}
{{ 'x'|center(5) ~ '|' }}{{ 'xy'|center(5) ~ '|' }}{{ 'hello world foo'|wordcount }}{{ 'a b&c/d=é'|urlencode }}{{ {'a b': 1, 'c': 'é'}|urlencode }}
{{ 'ß'|upper }}{{ 'ŉ'|capitalize }}{{ 'ǆ'.title() }}{{ 'ΑΣ ΑΣΑ Σ'|lower }}{{ 'İI'|lower }}{{ 'ﬁ'|title }}{{ 'ﬁ'.capitalize() }}{{ 'ÀÉ'.swapcase() }}
{{ 'x' is lower }}{{ 'X' is upper }}{{ '1' is lower }}{{ 5 is divisibleby 5 }}{{ 5 is odd }}{{ 'a' is in 'abc' }}{{ 1 is in [1] }}{{ 'upper' is filter }}{{ 'nosuch' is filter }}{{ 'odd' is test }}{{ 'pprint' is filter }}
{{ d.l is not none }}{{ d.l is not string and d.l is iterable }}{{ not d.l is string }}{{ d.n is number and d.t is number and d.t is integer }}{{ d.t is boolean }}{{ 1.0 is float }}{{ 1 is true }}{{ true is true }}
{{ d.d is mapping }}{{ d.d is sequence }}{{ nosuch is sequence }}{{ nosuch is iterable }}{{ nosuch is callable }}{{ nosuch is string }}{{ range is callable }}{{ 'a' is sequence }}{{ namespace() is iterable }}
{{ none == nosuch }}{{ nosuch == nosuch2 }}{{ nosuch in [nosuch2] }}{{ nosuch != 1 }}{{ [nosuch] }}{{ nosuch ~ 'x' }}{{ 'x' in nosuch }}{{ -nosuch }}
{{ nosuch < 1 }}
{{ nosuch in 'abc' }}
{{ d.people[0].name }}{{ d.people[0]['name'] }}{{ d['people'][1].tags }}{{ d.people[0].tags is defined }}{{ d.people[1].tags is defined }}
{{ messages }}{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ bos_token }}{{ unk_token }}
{{ lipsum is defined }}
{% for x in [1] %}{% for x in [2] %}{{ x }}{% endfor %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% for x in [2] %}{{ x }}{% endfor %}{{ x }}
{% for i in range(3) %}{% if loop.first %}{% set f = i %}{% else %}{{ f }}{% endif %}{% endfor %}
{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}
{% set x %}{% for i in [1,2] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}{% endset %}{{ x }}
{% for i in [1,2,3] %}{% set x %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endset %}[{{ x }}]{% endfor %}
{% for i in [1,2,3] %}{% filter upper %}a{% if i == 2 %}{% break %}{% endif %}{% endfilter %}{% endfor %}
{% for i in [] %}{% else %}{% for j in [1] %}{{ j }}{% endfor %}{% endfor %}
{% for i in range(3) recursive %}{{ i }}{% if i == 1 %}{% break %}{% endif %}{% endfor %}
{% for x in d.l if loop.index > 1 %}{{ x }}{% endfor %}
{% for x in d.l if x is odd %}{% set d2 = x %}{{ d2 }}{% endfor %}{{ d2 is defined }}
{% set outer = 'o' %}{% for x in d.l if x > 1 and outer == 'o' %}{{ x }}{{ outer }}{% set outer = 'p' %}{% endfor %}{{ outer }}
{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}
{% if true %}{% macro m() %}M{% endmacro %}{% endif %}{{ m() }}
{% macro outer() %}{% macro inner(x) %}{{ x }}{{ q }}{% endmacro %}{% set q = 1 %}{{ inner(2) }}{% endmacro %}{{ outer() }}
{{ [1,2,3][1:]|first }}{{ 'abc'|first }}{{ d.d|first }}{{ 'abc'|last }}{{ 'abc'|reverse }}{{ [1,2]|reverse|list }}{{ d.d|reverse|list }}{{ d.d|length }}{{ d.d|list }}
{{ 'abc'|list }}{{ 'a b c'.split()|join }}{{ 'a  b '.split(' ') }}{{ ''.split() }}{{ ''.split(',') }}{{ ' a b '.split(none, 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'abc'.split('b', 0) }}
{{ (1, 2)[0] }}{{ (1, 2)|list }}{{ (1, 2) == [1, 2] }}{{ (1, 2) + (3,) }}{{ (1, 2)|length }}{{ (1).real }}
{{ "a" if d.l|length > 2 else "b" }}{{ d.l|length * 2 }}{{ d.l | first + 1 }}{{ (d.s|lower)[:3] }}{{ d.s|lower|upper|length }}{{ -1|abs }}{{ 2 + 3|string|length }}
{{ d.l|join(',') ~ '!' }}{{ 'a' ~ 'b'|upper }}{{ not d.e|length }}{{ 1 + 2 ~ 3 }}{{ 1 ~ 2 + 3 }}{{ 2 * 3 ~ 4 }}
{{ foo(1, *[2], **{'a': 1}) }}
{{ dict(*[[('a', 1)]], **{'b': 2}) }}
{{ d.l[ }}
{{ 1 + }}
{% if %}{% endif %}
{% nosuch %}
{% endfor %}
{% for x in y %}
{{ 'abc }}
{{ ) }}
{{ (1] }}
{{ a b }}
{% set 1 = 2 %}
{% set true = 2 %}
{% for loop in d.l %}{{ loop }}{% endfor %}
{% break %}
{{ 1 is odd is even }}
{{ f(a=1, 2) }}
{{ f(a=1, a=2) }}
{# unclosed
{% raw %} unclosed
{{ $ }}
{{ "\ud83d" }}
{% macro m(a=1, b) %}{% endmacro %}
{% call 5 %}{% endcall %}
{{ d.l|truncate }}
{{ 'x'|format(1) }}
"""


def cases():
    for value, f in itertools.product(VALUES, FILTERS):
        yield "{{ %s|%s }}" % (value, f)
    for value, t in itertools.product(VALUES, TESTS):
        yield "{{ %s is %s }}" % (value, t)
    for value, m in itertools.product(VALUES, METHODS):
        yield "{{ %s.%s }}" % (value, m)
    for value, s in itertools.product(VALUES + ["d.uni", "'abcdefg'"], SLICES):
        yield "{{ %s%s }}" % (value, s)
    for a, op, b in itertools.product(VALUES, BINARY, VALUES):
        if op not in ("*", "**") or b != "d.big" and a != "d.big":  # Python would compute for hours, or run out of memory
            yield "{{ %s %s %s }}" % (a, op, b)
    for value, s in itertools.product(["d.sp", "d.uni", "d.html", "'a,b'", "' x '", "'ǅﬀ ς'", "'12'", "'²½'"], METHODS[:60]):
        yield "{{ [%s.%s] }}" % (value, s)
    block = []
    for line in STATEMENTS.strip("\n").split("\n"):
        yield line
        block.append(line)
    for i in range(len(block) - 3):  # white space control across lines
        yield "\n".join(block[i : i + 2])
        yield "\n".join(block[i : i + 4]) + "\n"


def main():
    out = []
    for text in cases():
        result = templates.render(text, [{"role": "user", "content": "hi"}], None, True, {"d": DATA})
        if isinstance(result, dict) and " at 0x" in result["message"]:
            result["message"] = ""
        if isinstance(result, str) and " at 0x" in result:
            result = {"error": "Unsupported", "message": "an address"}
        if isinstance(result, str) and any("\ud800" <= c < "\ue000" for c in result):
            result = {"error": "TemplateSyntaxError", "message": "a lone surrogate"}
        out.append([text, result])
    text = json.dumps({"data": DATA, "cases": out}, ensure_ascii=False, separators=(",", ":")).encode()
    with open(OUT, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="", compresslevel=9) as f:
        f.write(text)
    print(len(out), "cases", len(text), OUT.stat().st_size)


if __name__ == "__main__":
    main()
