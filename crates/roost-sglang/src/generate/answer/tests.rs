use serde_json::Value;

use super::super::events::Events;
use super::*;

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../../tests/fixtures/sglang/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn request(n: u32, logprobs: Option<u32>) -> EngineRequest {
    let mut request = EngineRequest::default();
    request.sampling_options.n = Some(n);
    request.output_options.logprobs = logprobs;
    request
}

/// The outputs of a captured stream, and how it ended.
fn outputs(stream: &[u8], n: u32) -> (Vec<EngineOutput>, Option<EngineError>) {
    let mut answers = Answers::new(&request(n, None));
    let mut events = Events::default();
    let mut outputs = Vec::new();
    for piece in stream.chunks(777) {
        assert!(events.push(bytes::Bytes::copy_from_slice(piece)));
        while let Some(event) = events.next() {
            match answers.take(&event) {
                Ok(output) => outputs.extend(output),
                Err(error) => return (outputs, Some(error)),
            }
        }
    }
    let end = answers.end();
    (outputs, end)
}

/// The last event that says something, as the server wrote it.
fn last(stream: &[u8], index: u64) -> Value {
    let text = std::str::from_utf8(stream).unwrap();
    let mut events =
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    events.rfind(|event| event["index"].as_u64().unwrap_or(0) == index).unwrap()
}

fn tokens<'a>(outputs: impl IntoIterator<Item = &'a EngineOutput>) -> Vec<u32> {
    outputs.into_iter().flat_map(|output| output.token_ids.to_vec()).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn a_cumulative_stream_gives_each_token_once() {
    for (name, cached) in [("agg.generate_stream_cold.http", 0), ("agg.generate_stream_warm.http", 64)] {
        let stream = fixture(name);
        let (outputs, error) = outputs(&stream, 1);
        assert_eq!(error, None);
        let last = last(&stream, 0);
        assert_eq!(tokens(&outputs), ids(&last["output_ids"]), "{name}");
        assert!(
            outputs.len() > 3 && outputs.iter().all(|output| output.token_ids.len() <= 2),
            "{name}: streamed"
        );
        let end = outputs.last().unwrap();
        assert_eq!(end.finish_reason, Some(FinishReason::Length));
        let usage = end.completion_usage.as_ref().unwrap();
        assert_eq!(u64::from(usage.prompt_tokens), last["meta_info"]["prompt_tokens"].as_u64().unwrap());
        assert_eq!(usage.prompt_tokens_details.unwrap().cached_tokens, Some(cached));
        if cached > 0 {
            assert_eq!(end.engine_data.as_ref().unwrap()["cached_tokens_details"]["device"], 64);
        }
    }
}

#[test]
fn an_incremental_stream_gives_each_token_once() {
    let stream = fixture("dp2.routed_dp_rank_1.http");
    let (outputs, error) = outputs(&stream, 1);
    assert_eq!(error, None);
    let text = std::str::from_utf8(&stream).unwrap();
    let events =
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let all: Vec<u32> = events.flat_map(|event| ids(&event["output_ids"])).collect();
    assert_eq!(tokens(&outputs), all);
    assert_eq!(
        outputs.last().unwrap().completion_usage.as_ref().unwrap().completion_tokens as usize,
        all.len()
    );
}

#[test]
fn two_choices_are_told_apart() {
    let stream = fixture("agg.generate_stop.http");
    let (outputs, error) = outputs(&stream, 2);
    assert_eq!(error, None);
    for index in 0..2 {
        let of_choice = outputs.iter().filter(|output| output.index == Some(index));
        assert_eq!(tokens(of_choice), ids(&last(&stream, u64::from(index))["output_ids"]), "choice {index}");
    }
    let (_, error) = super::tests::outputs(&stream, 1);
    assert!(matches!(error, Some(EngineError::Failed(_))), "a choice too many: {error:?}");
}

#[test]
fn logprobs_belong_to_the_new_tokens() {
    let (outputs, error) = outputs(&fixture("agg.generate_logprob.http"), 1);
    assert_eq!(error, None);
    let each: Vec<_> = outputs.iter().map(|output| output.log_probs.clone().unwrap()).collect();
    assert_eq!(
        each,
        [vec![-6.931_465_625_762_939_5], vec![-6.931_465_625_762_939_5], vec![-6.931_465_625_762_939_5]]
    );
    let tops: Vec<Vec<u32>> = outputs
        .iter()
        .map(|output| output.top_logprobs.as_ref().unwrap()[0].iter().map(|top| top.token_id).collect())
        .collect();
    assert_eq!(tops, [[309, 462], [651, 438], [309, 462]]);
    assert_eq!(outputs[1].top_logprobs.as_ref().unwrap()[0][1].rank, 2);
}

#[test]
fn failures_inside_a_stream() {
    let (none, error) = outputs(&fixture("agg.generate_toolong.http"), 1);
    assert!(none.is_empty());
    let Some(EngineError::InvalidRequest(text)) = error else { panic!("{error:?}") };
    assert!(text.contains("longer than the model's context length"), "{text}");

    let (some, error) = outputs(&fixture("agg.generate_aborted_tail.http"), 1);
    assert_eq!(error, None);
    assert_eq!(some.last().unwrap().finish_reason, Some(FinishReason::Cancelled), "by whom it does not say");

    let (none, error) = outputs(&fixture("pd.prefill_crash.decode.http"), 1);
    assert!(none.is_empty());
    let Some(EngineError::Unavailable(text)) = error else { panic!("another pair may do it: {error:?}") };
    assert!(text.contains("Lost connection with prefill"), "{text}");

    let cases: Value = serde_json::from_slice(&fixture("pd.cases.json")).unwrap();
    let (_, error) = outputs(cases["missing_room"]["decode"]["body"].as_str().unwrap().as_bytes(), 1);
    assert!(matches!(&error, Some(EngineError::InvalidRequest(text)) if text.contains("room")), "{error:?}");
    let (_, error) = outputs(cases["decode_bad_port"]["decode"]["body"].as_str().unwrap().as_bytes(), 1);
    assert!(matches!(error, Some(EngineError::Unavailable(_))), "{error:?}");
    let (tokens, error) = outputs(cases["cold"]["prefill"]["body"].as_str().unwrap().as_bytes(), 1);
    assert_eq!((tokens.len(), error), (1, None));
}

#[test]
fn a_cut_answer_never_looks_whole() {
    let stream = fixture("agg.generate_stream_cold.http");
    let ends: Vec<usize> = memchr::memmem::find_iter(&stream, b"\n\n").map(|at| at + 2).collect();
    // With the event of the finish the answer is whole, whatever follows.
    let whole = ends[ends.len() - 2];
    for cut in (0..stream.len()).step_by(97).chain(ends[..ends.len() - 2].iter().copied()) {
        let (_, error) = outputs(&stream[..cut], 1);
        assert_eq!(error.is_none(), cut >= whole, "cut at {cut} of {}", stream.len());
    }
    let (_, error) = outputs(b"data: [DONE]\n\n", 1);
    assert!(matches!(error, Some(EngineError::Unavailable(_))), "{error:?}");
}

#[test]
fn nonsense_is_an_error() {
    for event in [
        "{}",
        "[]",
        "{\"output_ids\":[1]",
        "{\"output_ids\":[1],\"meta_info\":{\"completion_tokens\":2}}",
        "{\"output_ids\":[\"x\"],\"meta_info\":{\"completion_tokens\":1}}",
        "{\"output_ids\":[1],\"meta_info\":{\"completion_tokens\":1,\"finish_reason\":{\"type\":\"bored\"}}}",
        "{\"output_ids\":[1],\"meta_info\":{\"completion_tokens\":1},\"index\":4}",
    ] {
        let mut answers = Answers::new(&request(1, None));
        assert!(matches!(answers.take(event.as_bytes()), Err(EngineError::Failed(_))), "{event}");
    }
    let mut answers = Answers::new(&request(1, None));
    let end = "{\"meta_info\":{\"completion_tokens\":1,\"finish_reason\":{\"type\":\"stop\",\"matched\":1}},\"output_ids\":[1]}";
    assert!(answers.take(end.as_bytes()).unwrap().is_some(), "any order of members");
    assert!(answers.take(end.as_bytes()).is_err(), "after the end");
}
