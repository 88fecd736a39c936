use minijinja::Value;

use super::{Engine, Limits, NOW, render_error};
use crate::error::RenderError;
use crate::messages::parse_object;
use crate::test_files::fixture_json;

/// Renders one template; `context` is a JSON object.
fn render(template: &str, context: &str) -> Result<String, String> {
    render_limited(template, context).map_err(|e| e.to_string())
}

fn render_limited(template: &str, context: &str) -> Result<String, RenderError> {
    let mut engine = Engine::new(Limits { fuel: 200_000, bytes: 1 << 20 });
    engine.add(["t", "t, watched"], template).map_err(|e| RenderError::Template(e.to_string()))?;
    let mut variables = parse_object(context).unwrap();
    variables.push((NOW.into(), Value::from(1_700_000_000)));
    engine.render("t", Value::from_pairs(variables)).map_err(|e| render_error(&e))
}

fn check(template: &str, expected: &str) {
    assert_eq!(render(template, "{}").as_deref(), Ok(expected), "{template}");
}

/// Cases that are known to differ, each with its reason in `DEVIATIONS.md`.
const DEVIATIONS: [&str; 1] = ["dict_key_named_items"];

#[test]
fn engine_cases_equal_the_oracle() {
    let golden = fixture_json("http/jinja_engine.json");
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 100);
    let mut differing = Vec::new();
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let context = case.get("context").map_or("{}".to_owned(), ToString::to_string);
        let got = render(case["template"].as_str().unwrap(), &context);
        let same = match case["expect"].as_str() {
            Some(expected) => got.as_deref() == Ok(expected),
            None => got.is_err(),
        };
        if !same {
            println!("{name}\n  got      {got:?}\n  expected {}", case["expect"]);
            differing.push(name);
        }
    }
    assert_eq!(differing, DEVIATIONS);
}

#[test]
fn runaway_templates_end_in_an_error() {
    for source in [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set s = 'x' * 100000 %}{% for i in range(1000) %}{{ s }}{% endfor %}",
        "{{ 'x'.replace('', 'y' * 100000).replace('y', 'z' * 100000) }}",
        "{{ 'x'.center(1000000000) }}",
    ] {
        let error = render_limited(source, "{}").unwrap_err();
        assert!(matches!(error, RenderError::TooLarge(_)), "{source}: {error:?}");
    }
    let endless = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
    assert!(render_limited(endless, "{}").is_err());
}

#[test]
fn output_is_bounded() {
    let mut engine = Engine::new(Limits { fuel: 1_000_000, bytes: 10 });
    engine.add(["t", "t, watched"], "{{ 'x' * n }}").unwrap();
    let render = |n: u32| engine.render("t", Value::from_pairs([("n", n)])).map_err(|e| render_error(&e));
    assert_eq!(render(10).unwrap().len(), 10);
    assert!(matches!(render(11), Err(RenderError::TooLarge(_))));
}

/// Behaviour of Python that the oracle's cases do not reach; expectations are CPython's.
#[test]
fn string_methods_behave_as_in_python() {
    check("{{ 'a  b'.split(none, 1) }}{{ ' a b c '.rsplit(none, 1) }}", "['a', 'b'][' a b', 'c']");
    check("{{ 'a,b,c'.rsplit(',') }}{{ 'a,b,c'.split(',', maxsplit=1) }}", "['a', 'b', 'c']['a', 'b,c']");
    check(r"{{ ''.split() }}{{ ''.split(',') }}{{ ' \u001c '.split() }}", "[][''][]");
    check(r"{{ 'a\u2028b\rc'.splitlines() }}{{ 'a\n'.splitlines(true) }}", r"['a', 'b', 'c']['a\n']");
    check("{{ 'a=b'.rpartition('=') }}{{ 'ab'.rpartition('=') }}", "('a', '=', 'b')('', '', 'ab')");
    check("{{ 'abc'.removesuffix('c') }}{{ 'abc'.removesuffix('x') }}", "ababc");
    check(
        "{{ '-5'.zfill(4) }}{{ 'a'.center(4) }}|{{ 'a'.ljust(3, '.') }}{{ 'a'.rjust(3) }}",
        "-005 a  |a..  a",
    );
    check("{{ \"they're\".title() }}{{ 'aB'.swapcase() }}{{ 'éA'.capitalize() }}", "They'ReAbÉa");
    check("{{ 'xyx'.count('x') }}{{ 'abc'.index('c') }}{{ 'abc'.rfind('z') }}", "22-1");
    check("{{ 'ab'.startswith(('x', 'a')) }}{{ ''.isspace() }}{{ ' '.isspace() }}", "TrueFalseTrue");
    assert!(render("{{ 'abc'.index('z') }}", "{}").unwrap_err().contains("substring not found"));
    assert!(render("{{ 'a'.nomethod() }}", "{}").is_err());
    assert!(render("{{ {}.update({}) }}", "{}").unwrap_err().contains("is unsafe"));
}

#[test]
fn numbers_and_modulo_behave_as_in_python() {
    check("{{ 7 % -3 }} {{ -7.5 % 2 }} {{ true % 2 }} {{ '%05.1f' % 3.14159 }}", "-2 0.5 1 003.1");
    check(
        "{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1e400 }}",
        "1e+16 1000000000000000.0 0.0001 1e-05 inf",
    );
    check("{{ {'a': 1e22}|tojson }} {{ [1e400]|tojson }}", "{\"a\": 1e+22} [Infinity]");
    assert!(render("{{ 5 % 0 }}", "{}").unwrap_err().contains("modulo by zero"));
}

#[test]
fn time_is_the_requests() {
    check("{{ strftime_now('%Y-%m') }}", "2023-11");
    assert!(render("{{ strftime_now('%!') }}", "{}").is_err());
}

#[test]
fn json_text_becomes_values_and_back() {
    check("{{ ('{\"b\": [1, null]}' | fromjson).b }}", "[1, None]");
    check("{{ {1: 2, none: true, 1.5: 'x'} | tojson }}", "{\"1\": 2, \"null\": true, \"1.5\": \"x\"}");
    check(
        "{{ {'b': 1, 'a': [1, {}]} | tojson(indent=1, separators=(';', '=')) }}",
        "{\n \"b\"=1;\n \"a\"=[\n  1;\n  {}\n ]\n}",
    );
    assert!(render("{{ nope | tojson }}", "{}").unwrap_err().contains("not JSON serializable"));
    assert!(render("{{ '{' | fromjson }}", "{}").unwrap_err().contains("invalid JSON"));
}

#[test]
fn cyclers_go_around() {
    check("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "abab");
}

#[test]
fn values_nested_too_deeply_are_errors() {
    let nest = "{% set ns = namespace(v=[]) %}{% for i in range(300) %}{% set ns.v = [ns.v] %}{% endfor %}";
    assert!(render(&format!("{nest}{{{{ ns.v }}}}"), "{}").unwrap_err().contains("too deeply"));
    assert!(render(&format!("{nest}{{{{ ns.v | tojson }}}}"), "{}").unwrap_err().contains("too deeply"));
}
