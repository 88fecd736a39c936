//! The life of one request: queued, prefilled, generated.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use roost_kv::hash;
use roost_wire::message::{BootstrapInfo, EngineOutput, EngineRequest, FinishReason};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::plan::{self, Act, Generation};
use super::rank::Sequence;
use super::{Answer, Shared, items, recital};
use crate::script::Script;
use crate::{EngineContext, EngineError, Role};

/// Why an answer ended before its plan did.
enum Interrupted {
    /// Stopped by the caller: one last item says so.
    Stopped,
    /// The reader is gone.
    Unread,
    /// Failed.
    Failed(EngineError),
}

impl From<EngineError> for Interrupted {
    fn from(error: EngineError) -> Self {
        Self::Failed(error)
    }
}

/// Serves one request to its end. A kill ends it at once, whatever it is doing.
pub(super) async fn run(
    shared: Arc<Shared>,
    request: EngineRequest,
    context: EngineContext,
    items: mpsc::Sender<Result<EngineOutput, EngineError>>,
) {
    let cancel = context.cancel.clone();
    let mut run = Run { shared: &shared, request: &request, context: &context, items: &items, cached: None };
    let ended = tokio::select! {
        biased;
        () = cancel.killed() => return,
        ended = run.serve() => ended,
    };
    let last = match ended {
        Ok(()) | Err(Interrupted::Unread) => return,
        Err(Interrupted::Stopped) => {
            Ok(EngineOutput { finish_reason: Some(FinishReason::Cancelled), ..EngineOutput::default() })
        }
        Err(Interrupted::Failed(error)) => Err(error),
    };
    // An error here only means that nobody reads any more.
    let _ = items.send(last).await;
}

struct Run<'a> {
    shared: &'a Shared,
    request: &'a EngineRequest,
    context: &'a EngineContext,
    items: &'a mpsc::Sender<Result<EngineOutput, EngineError>>,
    /// Cached prompt tokens as prefill reported them, on decode engines.
    cached: Option<u64>,
}

impl Run<'_> {
    async fn serve(&mut self) -> Result<(), Interrupted> {
        self.check()?;
        let script = self.script();
        let acts = script.map(|script| self.compile(&script)).transpose()?;
        match self.shared.config.role {
            Role::Prefill => self.prefill_only(acts.unwrap_or_default()).await,
            Role::Aggregated | Role::Decode => match acts {
                Some(acts) => self.act(acts).await,
                None => self.generate().await,
            },
        }
    }

    /// What a real engine refuses before it queues a request.
    fn check(&self) -> Result<(), EngineError> {
        let config = &self.shared.config;
        let prompt = self.request.token_ids.len();
        let split = config.role != Role::Aggregated;
        if prompt == 0 {
            return Err(EngineError::InvalidRequest("the prompt is empty".into()));
        }
        if prompt >= config.context_length as usize {
            return Err(EngineError::InvalidRequest(format!(
                "the input ({prompt} tokens) is longer than the model's maximum context length ({} tokens)",
                config.context_length
            )));
        }
        let alone = self.request.has_annotation("x-bypass-remote-prefill");
        if alone && !config.local_prefill {
            return Err(EngineError::InvalidRequest("x-bypass-remote-prefill is not supported".into()));
        }
        if split && self.request.sampling_options.n.is_some_and(|n| n > 1) {
            return Err(EngineError::InvalidRequest(
                "n > 1 is not possible with split prefill and decode".into(),
            ));
        }
        let paired = self.request.bootstrap_info.is_some();
        if config.role == Role::Decode && !paired && !alone && !self.request.is_probe {
            return Err(EngineError::Failed("decode needs bootstrap_info".into()));
        }
        Ok(())
    }

    /// The script that the prompt asks for, if there are scripts and a way to read the prompt.
    fn script(&self) -> Option<Script> {
        let config = &self.shared.config;
        let codec = config.codec.as_ref().filter(|_| !config.scripts.is_empty())?;
        config.scripts.select(&codec.decode(&self.request.token_ids)).map(Cow::into_owned)
    }

    fn compile(&self, script: &Script) -> Result<Vec<Act>, EngineError> {
        let config = &self.shared.config;
        let codec = config.codec.as_ref().expect("scripts are read with the codec");
        let asked = self.request.stop_conditions.max_tokens.map_or(usize::MAX, |tokens| tokens as usize);
        plan::compile(script, config.role, codec, asked)
    }

    /// Queues, admits and prefills; afterwards the sequence may generate.
    async fn prefill(&mut self, output_tokens: usize) -> Result<Sequence, Interrupted> {
        let shared = self.shared;
        let rank = shared.choose_rank(self.request)?;
        let routing = self.request.routing.as_ref();
        let lora = routing.and_then(|routing| routing.lora_name.as_deref());
        let salt = routing.and_then(|routing| routing.cache_salt.as_deref());
        let mut sequence = rank.enqueue(&self.request.token_ids, hash::seed(lora, salt), output_tokens)?;
        let turn = self.unless_stopped(sequence.admit(rank)).await?;
        if shared.config.role == Role::Decode && self.request.bootstrap_info.is_some() {
            drop(turn);
            if let (Some(transfers), Some(info)) = (&shared.config.transfers, &self.request.bootstrap_info) {
                self.cached = Some(self.unless_stopped(transfers.receive(info.bootstrap_room)).await?);
            }
        } else {
            let uncached = self.request.token_ids.len() - sequence.cached_tokens();
            self.pause(shared.config.timing.prefill(uncached)).await?;
            drop(turn);
        }
        sequence.prefilled();
        Ok(sequence)
    }

    async fn prefill_only(&mut self, acts: Vec<Act>) -> Result<(), Interrupted> {
        let config = &self.shared.config;
        let info = self.request.bootstrap_info.clone().unwrap_or_else(|| {
            let server = config.bootstrap.clone();
            let (host, port) = server.map_or_else(|| ("127.0.0.1".to_owned(), 0), |at| (at.host, at.port));
            let bootstrap_room = fastrand::u64(..=i64::MAX as u64);
            BootstrapInfo { bootstrap_host: host, bootstrap_port: port, bootstrap_room, handoff_id: None }
        });
        self.send(items::bootstrap(&info)).await?;
        for act in acts {
            self.disturb(act).await?;
        }
        let sequence = self.prefill(0).await?;
        let cached = sequence.cached_tokens() as u64;
        if let Some(transfers) = &config.transfers {
            self.unless_stopped(transfers.deliver(info.bootstrap_room, cached)).await?;
        }
        let engine_data = Some(items::cache_hit(self.request.token_ids.len(), cached));
        self.send(EngineOutput { engine_data, ..EngineOutput::default() }).await
    }

    /// An answer drawn or echoed, for each of the choices that the request wants.
    async fn generate(&mut self) -> Result<(), Interrupted> {
        let config = &self.shared.config;
        let choices = self.request.sampling_options.n.unwrap_or(1).max(1);
        let prompt = self.request.token_ids.len();
        let name = hash::block_hashes(&self.request.token_ids, prompt as u32, config.seed);
        let name = name.first().map_or(0, |hash| hash.0);
        let draw = |echo: &[u32]| -> Vec<Generation> {
            (0..choices).map(|choice| plan::generate(self.request, config, name, choice, echo)).collect()
        };
        let turn = self.turn();
        // Room for what will be said; an echo is longest when everything is cached.
        let mut plans = draw(&self.echo(&turn, prompt as u64));
        let mut sequence = self.prefill(longest(&plans)).await?;
        let cached = self.cached.unwrap_or(sequence.cached_tokens() as u64);
        if config.answer == Answer::Echo {
            plans = draw(&self.echo(&turn, cached));
        }
        let longest = longest(&plans);
        let started = Instant::now();
        let mut sent = 0;
        let mut at = 0;
        loop {
            let next = (at + config.tokens_per_item).min(longest);
            for (index, plan) in (0..).zip(&plans) {
                if at > plan.tokens.len() || (at == plan.tokens.len() && at > 0) {
                    continue;
                }
                let ids = &plan.tokens[at..next.min(plan.tokens.len())];
                let mut output = items::tokens(index, ids);
                sent += ids.len();
                if index == 0 {
                    sequence.generated(ids);
                }
                items::add_logprobs(&mut output, self.request, config.codec.as_ref());
                let last = next >= plan.tokens.len();
                if last {
                    output.finish_reason = Some(plan.finish.clone());
                    output.stop_reason.clone_from(&plan.stop);
                    output.engine_data = Some(items::cache_hit(prompt, cached));
                }
                if last || at == 0 {
                    output.completion_usage = Some(items::usage(prompt, sent, cached));
                }
                self.send(output).await?;
            }
            at = next;
            if at >= longest {
                return Ok(());
            }
            let due = started + config.timing.decode(at);
            self.pause(due.saturating_duration_since(Instant::now())).await?;
        }
    }

    /// A scripted answer.
    async fn act(&mut self, acts: Vec<Act>) -> Result<(), Interrupted> {
        let config = &self.shared.config;
        let prompt = self.request.token_ids.len();
        let room = config.total_blocks * config.block_size as usize;
        let reserved = plan::reserved_tokens(&acts).min(room.saturating_sub(prompt));
        let mut sequence = self.prefill(reserved).await?;
        let simulated = self.cached.unwrap_or(sequence.cached_tokens() as u64);
        let mut sent = 0;
        for act in acts {
            match act {
                Act::Emit { index, ids, logprob, times } => {
                    for _ in 0..times {
                        if index == 0 {
                            sequence.generated(&ids);
                        }
                        sent += ids.len();
                        let mut output = items::tokens(index, &ids);
                        items::add_logprobs(&mut output, self.request, None);
                        if let Some(logprob) = logprob {
                            output.log_probs = Some(vec![logprob; ids.len()]);
                        }
                        self.send(output).await?;
                    }
                }
                Act::Raw(output) => self.send(*output).await?,
                Act::Finish { choices, reason, ids, cached, usage } => {
                    sent += ids.len();
                    let cached = cached.unwrap_or(simulated);
                    for index in 0..choices {
                        let mut output = items::tokens(index, &ids);
                        output.finish_reason = Some(reason.clone());
                        output.completion_usage = usage.then(|| items::usage(prompt, sent, cached));
                        self.send(output).await?;
                    }
                    return Ok(());
                }
                act => self.disturb(act).await?,
            }
        }
        Ok(())
    }

    /// Pauses, fails or ends the process; what is said is not this function's concern.
    async fn disturb(&self, act: Act) -> Result<(), Interrupted> {
        match act {
            Act::Pause(pause) => self.pause(pause).await,
            Act::Fail(error) => Err(error.into()),
            Act::Exit => {
                self.shared.config.exit.cancel();
                std::future::pending().await
            }
            Act::Emit { .. } | Act::Raw(_) | Act::Finish { .. } => Ok(()),
        }
    }

    /// Which turn of its session this is, as an echo answer says it.
    fn turn(&self) -> String {
        let session = self.request.agent_context.as_ref().map(|agent| agent.session_id.as_str());
        let echoes = self.shared.config.answer == Answer::Echo;
        session.filter(|_| echoes).map_or_else(String::new, |session| {
            format!("This is turn {} of session {session}. ", self.shared.turns.next(session))
        })
    }

    /// What an answer that depends on the prompt says, in token ids; empty for other answers.
    fn echo(&self, turn: &str, cached: u64) -> Vec<u32> {
        let config = &self.shared.config;
        let ids = &self.request.token_ids;
        match (&config.answer, &config.codec) {
            (Answer::Echo, Some(codec)) => {
                codec.encode(&format!("{turn}Of {} prompt tokens, {cached} were cached.", ids.len()))
            }
            (Answer::Recital { mark, length }, Some(codec)) => recital::rest(ids, mark, *length, codec),
            _ => Vec::new(),
        }
    }

    async fn send(&self, output: EngineOutput) -> Result<(), Interrupted> {
        if self.context.cancel.kind().is_some() {
            return Err(Interrupted::Stopped);
        }
        self.items.send(Ok(output)).await.map_err(|_| Interrupted::Unread)
    }

    async fn pause(&self, pause: Duration) -> Result<(), Interrupted> {
        if pause.is_zero() {
            return Ok(());
        }
        self.unless_stopped(tokio::time::sleep(pause)).await
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Interrupted> {
        tokio::select! {
            biased;
            _ = self.context.cancel.cancelled() => Err(Interrupted::Stopped),
            done = work => Ok(done),
        }
    }
}

fn longest(plans: &[Generation]) -> usize {
    plans.iter().map(|plan| plan.tokens.len()).max().unwrap_or(0)
}
