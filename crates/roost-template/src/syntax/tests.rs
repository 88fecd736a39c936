use super::rewrite;

#[test]
fn templates_without_special_syntax_stay_as_they_are() {
    for source in [
        "",
        "text { } % {",
        "{{- a + b -}}{% if x %}{# {{ a % b }} #}{%- endif +%}",
        "{% raw %}{{ a % b }}{% generation %}{% endraw %}{{ c }}",
        "{{ '%}' ~ \"}}\" }}{{ {'a': {'b': 1}} }}",
        "{{ unfinished",
        "{{ 'unfinished string }}",
        "{% macro f(a) %}{{ a }}{% endmacro %}",
    ] {
        assert_eq!(rewrite(source), source);
    }
}

#[test]
fn the_modulo_operator_takes_what_binds_tighter() {
    for (source, expected) in [
        ("a % b", "__modulo(a , b)"),
        ("a % b % c", "__modulo(__modulo(a , b) , c)"),
        ("1 + a * b % c - 2", "1 + __modulo(a * b , c) - 2"),
        ("-7 % -3", "__modulo(-7 , -3)"),
        ("x - -7 % 3", "x - __modulo(-7 , 3)"),
        ("'%s-%d' % ('a', 3) ~ x", "__modulo('%s-%d' , ('a', 3)) ~ x"),
        ("f(i % 2)[j % 3]", "f(__modulo(i , 2))[__modulo(j , 3)]"),
        ("a.b[0]|length % b.c()|int == 0", "__modulo(a.b[0]|length , b.c()|int) == 0"),
        ("x if i % 2 else y", "x if __modulo(i , 2) else y"),
        ("not i % 2 and z", "not __modulo(i , 2) and z"),
        ("3.5 % 2.0", "__modulo(3.5 , 2.0)"),
        ("a %", "a %"),
        ("% b", "% b"),
    ] {
        assert_eq!(rewrite(&format!("{{{{ {source} }}}}")), format!("{{{{ {expected} }}}}"));
    }
}

#[test]
fn generation_blocks_are_plain_blocks() {
    assert_eq!(rewrite("{%- generation -%}x{% endgeneration %}"), "{%- with -%}x{% endwith %}");
}

#[test]
fn macros_that_read_surplus_arguments_are_wrapped() {
    let rewritten = rewrite("{% macro f(a, b=(1, 2)) %}{{ varargs }}{% endmacro %}");
    assert_eq!(
        rewritten,
        "{% macro f(a, b=(1, 2), varargs, kwargs) %}{{ varargs }}{% endmacro %}\
         {%- set f = __variadic(f, ['a', 'b']) %}"
    );
    assert!(
        rewrite("{% macro f() %}{{ kwargs }}{% endmacro %}").starts_with("{% macro f(varargs, kwargs) %}")
    );
}
