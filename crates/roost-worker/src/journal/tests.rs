use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Cancellation, Journal, JournalEntry, WaitTimeout};
use crate::CancelKind;

fn cancelled(id: &str) -> JournalEntry {
    JournalEntry::Cancelled(Cancellation {
        id: id.to_owned(),
        worker_id: 1,
        kind: CancelKind::Kill,
        at: Instant::now(),
    })
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_entry_or_the_deadline() {
    let journal = Arc::new(Journal::default());
    let find = |journal: &Journal| journal.cancellations().iter().find(|c| c.id == "b").map(|c| c.kind);
    let waiter = {
        let journal = journal.clone();
        tokio::spawn(async move { journal.wait_for(Duration::from_secs(5), find).await })
    };
    tokio::task::yield_now().await;
    journal.record(cancelled("a"));
    tokio::task::yield_now().await;
    assert!(!waiter.is_finished());
    journal.record(cancelled("b"));
    assert_eq!(waiter.await.unwrap(), Ok(CancelKind::Kill));
    assert_eq!(journal.wait_for(Duration::from_secs(5), find).await, Ok(CancelKind::Kill), "already there");
    let missing = journal.wait_for(Duration::from_secs(5), |journal| journal.requests().pop()).await;
    assert_eq!(missing.unwrap_err(), WaitTimeout(Duration::from_secs(5)));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_entries_make_room() {
    let journal = Journal::new(2);
    for id in ["a", "b", "c"] {
        journal.record(cancelled(id));
    }
    let ids: Vec<String> = journal.cancellations().into_iter().map(|c| c.id).collect();
    assert_eq!(ids, ["b", "c"]);
    let off = Journal::new(0);
    off.record(cancelled("a"));
    assert!(off.entries().is_empty());
}
