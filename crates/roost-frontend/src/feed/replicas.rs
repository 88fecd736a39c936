//! Between the routers and the other frontends of a deployment: what is decided here is told, what they decide is taken
//! over.

use std::time::{SystemTime, UNIX_EPOCH};

use roost_cluster::events;
use roost_cluster::record::Topic;
use roost_cluster::{Announcement, Announcer, EndpointId};
use roost_router::Router;
use roost_router::replica::{BindingEvent, Identity, Outbound, SequenceBegun, SequenceEvent, SequenceStep};

/// How a frontend stands among others.
#[derive(Debug, Clone)]
pub struct Replicas {
    /// Its channels.
    pub announcer: Announcer,
    /// Its number, that of its publishers too; never 0, and no other frontend's.
    pub id: u64,
    /// Share where sessions live.
    pub bindings: bool,
    /// Share what runs where.
    pub sequences: bool,
}

impl Replicas {
    /// From now on the others hear of what `router` decides about the workers of `scope`.
    pub(super) fn share(&self, router: &Router, scope: &EndpointId) {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let identity = Identity {
            writer_id: self.id,
            unix_nanos: u64::try_from(nanos).unwrap_or(u64::MAX),
            bindings: self.bindings,
            sequences: self.sequences,
        };
        for (shared, topic) in
            [(self.bindings, Topic::SessionAffinity), (self.sequences, Topic::ActiveSequences)]
        {
            if shared {
                self.announcer.open(topic, scope);
            }
        }
        let (announcer, scope) = (self.announcer.clone(), scope.clone());
        router.replicate(identity, move |outbound| announcer.tell(&scope, announcement(outbound)));
    }
}

fn announcement(outbound: Outbound) -> Announcement {
    match outbound {
        Outbound::Binding(event) => Announcement::Binding(events::BindingEvent {
            session_id: event.session_id,
            worker: event.worker,
            dp_rank: event.dp_rank,
            sequence: event.sequence,
            writer_id: event.writer_id,
        }),
        Outbound::Sequence(event) => Announcement::Sequence(events::SequenceEvent {
            request_id: event.request_id,
            rank: event.rank,
            step: match event.step {
                SequenceStep::Begun(begun) => events::SequenceStep::Begun(events::SequenceBegun {
                    blocks: begun.blocks,
                    counts_prefill: begun.counts_prefill,
                    expected_output_tokens: begun.expected_output_tokens,
                    prefill_tokens: begun.prefill_tokens,
                    prefill_duration: None,
                }),
                SequenceStep::PrefillCompleted => events::SequenceStep::PrefillCompleted,
                SequenceStep::Ended => events::SequenceStep::Ended,
            },
            origin: event.origin,
            lora_name: None,
        }),
    }
}

/// A binding in the router's words.
pub(super) fn binding(event: events::BindingEvent) -> BindingEvent {
    BindingEvent {
        session_id: event.session_id,
        worker: event.worker,
        dp_rank: event.dp_rank,
        sequence: event.sequence,
        writer_id: event.writer_id,
    }
}

/// A step in the router's words.
pub(super) fn sequence(event: events::SequenceEvent) -> SequenceEvent {
    SequenceEvent {
        request_id: event.request_id,
        rank: event.rank,
        step: match event.step {
            events::SequenceStep::Begun(begun) => SequenceStep::Begun(SequenceBegun {
                blocks: begun.blocks,
                counts_prefill: begun.counts_prefill,
                expected_output_tokens: begun.expected_output_tokens,
                prefill_tokens: begun.prefill_tokens,
            }),
            events::SequenceStep::PrefillCompleted => SequenceStep::PrefillCompleted,
            events::SequenceStep::Ended => SequenceStep::Ended,
        },
        origin: event.origin,
    }
}
