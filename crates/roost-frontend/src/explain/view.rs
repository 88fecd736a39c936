//! A decision as JSON, written from the record as it is: a document of them is a thousand candidates.

use std::sync::Arc;
use std::time::Instant;

use roost_kv::WorkerRank;
use roost_router::{AffinityOutcome, Candidate, Decision, Outcome, Role};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::role_name;

/// A decision of a pool.
pub(crate) struct DecisionView {
    model: Box<str>,
    role: Role,
    made: Arc<Decision>,
}

/// A rank: its worker as a number and as Dynamo writes it.
pub(super) struct RankView(pub(super) WorkerRank);

struct AffinityView<'a>(&'a Decision);

struct CandidatesView<'a>(&'a [Candidate], Option<WorkerRank>);

struct CandidateView<'a>(&'a Candidate, Option<WorkerRank>);

/// Members that are numbers.
struct Numbers<T, const N: usize>([(&'static str, T); N]);

impl DecisionView {
    pub(super) fn new(model: &str, role: Role, made: Arc<Decision>) -> Self {
        DecisionView { model: model.into(), role, made }
    }

    pub(super) fn at(&self) -> Instant {
        self.made.at
    }
}

impl Serialize for DecisionView {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let made = &*self.made;
        let (outcome, rank, reason, error) = match made.outcome {
            Outcome::Placed { rank, reason } => ("placed", Some(rank), Some(reason.label()), None),
            Outcome::Rejected(rejection) => ("rejected", None, None, Some(rejection.to_string())),
        };
        let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("model", &self.model)?;
        map.serialize_entry("role", role_name(self.role))?;
        map.serialize_entry("number", &made.number)?;
        let age_ms = u64::try_from(made.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        map.serialize_entry("age_ms", &age_ms)?;
        map.serialize_entry("request", &named(&made.request))?;
        map.serialize_entry("session", &named(&made.session))?;
        map.serialize_entry("isl_tokens", &made.isl_tokens)?;
        map.serialize_entry("block_size", &made.block_size)?;
        map.serialize_entry("priority", &made.priority)?;
        map.serialize_entry("outcome", outcome)?;
        map.serialize_entry("worker", &rank.map(RankView))?;
        map.serialize_entry("reason", &reason)?;
        map.serialize_entry("error", &error)?;
        map.serialize_entry("affinity", &AffinityView(made))?;
        map.serialize_entry("considered", &made.considered)?;
        map.serialize_entry("candidates", &CandidatesView(&made.candidates, rank))?;
        map.end()
    }
}

impl Serialize for RankView {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(3))?;
        map.serialize_entry("id", &self.0.worker.0)?;
        map.serialize_entry("hex", &format_args!("{:x}", self.0.worker.0))?;
        map.serialize_entry("dp_rank", &self.0.dp_rank)?;
        map.end()
    }
}

impl Serialize for AffinityView<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let moved = match self.0.affinity {
            AffinityOutcome::Rebound(reason) => Some(reason.label()),
            _ => None,
        };
        let mut map = to.serialize_map(Some(3))?;
        map.serialize_entry("outcome", self.0.affinity.label())?;
        map.serialize_entry("moved_because", &moved)?;
        map.serialize_entry("bound_before", &self.0.bound.map(RankView))?;
        map.end()
    }
}

impl Serialize for CandidatesView<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(|candidate| CandidateView(candidate, self.1)))
    }
}

impl Serialize for CandidateView<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Candidate { rank, overlap, load, terms, preference } = self.0;
        let mut map = to.serialize_map(Some(6))?;
        map.serialize_entry("worker", &RankView(*rank))?;
        map.serialize_entry("chosen", &(self.1 == Some(*rank)))?;
        let blocks = [
            ("device", overlap.device),
            ("host", overlap.host),
            ("disk", overlap.disk),
            ("external", overlap.external),
        ];
        map.serialize_entry("overlap_blocks", &Numbers(blocks))?;
        let loads: [(_, u64); 4] = [
            ("prefill_tokens", load.prefill_tokens),
            ("active_blocks", load.active_blocks),
            ("active_requests", load.active_requests.into()),
            ("additional_blocks", load.additional_blocks.into()),
        ];
        map.serialize_entry("load", &Numbers(loads))?;
        map.serialize_entry("preference", preference)?;
        let cost = [
            ("prefill", terms.prefill),
            ("decode", terms.decode),
            ("requests", terms.requests),
            ("preference", terms.preference),
            ("future", terms.future),
            ("bonus", terms.bonus),
            ("total", terms.total()),
        ];
        map.serialize_entry("cost", &Numbers(cost))?;
        map.end()
    }
}

impl<T: Serialize, const N: usize> Serialize for Numbers<T, N> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (*name, value)))
    }
}
