use roost_wire::message::{DynamoError, Reason};
use roost_wire::{CallError, StreamError};

use super::harness::{Harness, PATIENCE, collect, ids, request, within};
use crate::{Fault, Finish};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledgements_go_wrong_on_order() {
    let harness = Harness::start().await;
    let faults = harness.worker.faults();
    faults.next(Fault::Overloaded);
    faults.next(Fault::Unavailable("moving house".to_owned()));
    faults.next(Fault::NoCallHome);
    faults.next(Fault::NoAck);
    let mut outcomes = Vec::new();
    for number in 0..4 {
        outcomes.push(harness.call(&format!("r{number}"), &request("hello", 1)).await.unwrap_err());
    }
    assert!(matches!(outcomes[0], CallError::Overloaded(_)), "{outcomes:?}");
    assert!(
        matches!(&outcomes[1], CallError::Unavailable(why) if why.contains("moving house")),
        "{outcomes:?}"
    );
    assert!(matches!(outcomes[2], CallError::CallHomeTimeout), "{outcomes:?}");
    assert!(matches!(outcomes[3], CallError::AckTimeout), "{outcomes:?}");
    assert!(harness.worker.journal().requests().is_empty(), "the engine saw nothing");
    assert_eq!(ids(&harness.ask("fine", &request("hello", 3)).await.0).len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_go_wrong_on_order() {
    let harness = Harness::start().await;
    let faults = harness.worker.faults();

    faults.next(Fault::CloseAfter(2));
    let (items, error) = harness.ask("close", &request("hello", 5)).await;
    assert_eq!(items.len(), 2);
    assert!(matches!(error, Some(StreamError::Incomplete | StreamError::Broken(_))), "{error:?}");

    faults.next(Fault::BadItemAfter(1));
    let (items, error) = harness.ask("bad", &request("hello", 5)).await;
    assert_eq!(items.len(), 1);
    assert!(matches!(error, Some(StreamError::Undecodable(_))), "{error:?}");

    faults.next(Fault::Refuse(Box::new(DynamoError::new(Reason::EngineShutdown, "going"))));
    let refused = harness.call("refuse", &request("hello", 5)).await;
    assert!(matches!(refused, Err(CallError::Rejected(error)) if error.reason == Reason::EngineShutdown));

    faults.next(Fault::NoPrologue);
    let silent = harness.call("silent", &request("hello", 5)).await;
    assert!(matches!(silent, Err(CallError::PrologueTimeout)), "{silent:?}");

    faults.next(Fault::StallAfter(2));
    let mut stalled = harness.call("stall", &request("hello", 5)).await.unwrap();
    for _ in 0..2 {
        within(stalled.next()).await.unwrap().unwrap();
    }
    let third = tokio::time::timeout(std::time::Duration::from_millis(50), stalled.next()).await;
    assert!(third.is_err(), "nothing comes and nothing ends");
    drop(stalled);
    let journal = harness.worker.journal();
    let stalled =
        |journal: &crate::Journal| journal.finished().into_iter().find(|finished| finished.id == "stall");
    assert_eq!(journal.wait_for(PATIENCE, stalled).await.unwrap().how, Finish::Dropped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standing_order_ends_when_it_is_cleared() {
    let harness = Harness::start().await;
    harness.worker.faults().always(Fault::Overloaded);
    for id in ["a", "b"] {
        assert!(matches!(harness.call(id, &request("hello", 1)).await, Err(CallError::Overloaded(_))));
    }
    harness.worker.faults().clear();
    assert_eq!(harness.ask("c", &request("hello", 1)).await.0.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_in_mid_answer_takes_the_worker_along() {
    let harness = Harness::start().await;
    harness.worker.faults().next(Fault::CrashAfter(2));
    let stream = harness.call("last", &request("hello", 5)).await.unwrap();
    let (items, error) = collect(stream).await;
    assert!(items.len() <= 2);
    assert!(matches!(error, Some(StreamError::Incomplete | StreamError::Broken(_))), "{error:?}");
    within(harness.worker.crashed()).await;
}
