use super::{Capabilities, ReasoningKey};
use crate::ChatTemplate;
use crate::test_files::{real_template, tiny_template};

fn probe(source: &str) -> Capabilities {
    *ChatTemplate::from_source(source, Vec::new()).unwrap().capabilities(false).unwrap()
}

#[test]
fn real_templates_are_recognized() {
    let probe = |model: &str| real_template(model).map(|template| *template.capabilities(true).unwrap());
    if let Some(qwen) = probe("qwen3") {
        assert!(qwen.arguments_text && qwen.arguments_object && !qwen.content_parts);
        assert_eq!(qwen.reasoning, Some(ReasoningKey::ReasoningContent));
        assert!(!qwen.refuses_late_system && !qwen.refuses_user_runs);
    }
    if let Some(deepseek) = probe("deepseek_v3") {
        assert!(deepseek.arguments_text && !deepseek.arguments_object);
    }
    if let Some(kimi) = probe("kimi_k25") {
        assert!(kimi.content_parts && kimi.arguments_text);
    }
    if let Some(minimax) = probe("minimax_m2") {
        assert!(!minimax.arguments_text && minimax.arguments_object);
    }
}

#[test]
fn arguments_go_to_dumping_and_iterating_templates_as_objects() {
    for model in ["tiny-chatml", "tiny-items", "tiny-fromjson"] {
        let capabilities = *tiny_template(model).capabilities(false).unwrap();
        assert!(!capabilities.arguments_text && capabilities.arguments_object, "{model}");
    }
}

#[test]
fn a_template_that_shows_one_part_only_does_not_read_parts() {
    assert!(!tiny_template("tiny-dotindex").capabilities(false).unwrap().content_parts);
    assert!(!probe("{% for m in messages %}{{ m.content }}{% endfor %}").content_parts);
    let loops = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}";
    assert!(probe(loops).content_parts);
}

#[test]
fn a_template_that_refuses_everything_refuses_no_shape_in_particular() {
    let none = probe("{{ raise_exception('never') }}");
    assert_eq!(none, Capabilities::default());
}
