//! The replay of a trace against endpoints in turn.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use roost_kv::SequenceHash;
use roost_replay::{Prompts, Start, Trace};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::connection::Connection;
use crate::conversation::{Conversation, new_blocks};
use crate::process;
use crate::report::Figures;
use crate::target::Target;

/// How a trace is replayed.
#[derive(Clone, Debug)]
pub struct Load {
    /// Name of the model; `None`: the first that the endpoint lists.
    pub model: Option<String>,
    /// Sessions at the same time, sub-agents not counted; the next begins when one ends. At least 1.
    pub lanes: usize,
    /// Time over which they begin. Not measured.
    pub ramp: Duration,
    /// Time that is measured after that. Turns are sent until its end.
    pub measured: Duration,
    /// Runs against each endpoint.
    pub rounds: u32,
    /// The longest pause between two turns.
    pub longest_pause: Duration,
    /// Factor on pauses and recorded times.
    pub scale: f64,
    /// The longest answer asked for, tokens.
    pub longest_answer: u32,
    /// How long a request may take.
    pub patience: Duration,
    /// Determines the text.
    pub seed: u64,
}

/// What a run has come to.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// The endpoint.
    pub target: &'a str,
    /// Counted from 1.
    pub round: u32,
    /// Of the run.
    pub elapsed: Duration,
    /// Of the run.
    pub planned: Duration,
    /// Whole answers so far.
    pub answers: usize,
    /// Requests that failed so far.
    pub errors: usize,
    /// Sessions that run.
    pub sessions: usize,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The endpoint does not list its models.
    #[error("{target} does not list a model: {reason}")]
    Models {
        /// The endpoint.
        target: String,
        /// What happened.
        reason: String,
    },
    /// The process does not run.
    #[error("{target}: there is no process {pid}")]
    Process {
        /// The endpoint.
        target: String,
        /// The process.
        pid: u32,
    },
}

/// One request.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) session: usize,
    /// Since the beginning of the run.
    pub(crate) ended: Duration,
    pub(crate) answer: Result<Answer, String>,
}

/// What all sessions of a run share.
struct Run {
    trace: Arc<Trace>,
    /// Sessions that no turn starts.
    roots: Vec<usize>,
    /// Sub-agents by the session and turn that start them.
    children: HashMap<(usize, usize), Vec<usize>>,
    /// Leading blocks of a session's first prompt that another session begins with too.
    system: Vec<usize>,
    load: Load,
    authority: String,
    model: String,
    /// Distinguishes this run's sessions and text from those of others.
    name: String,
    salt: u64,
    begin: Instant,
    next: AtomicUsize,
    running: AtomicUsize,
    samples: mpsc::Sender<Sample>,
}

/// Replays `trace` against each endpoint in turn, `load.rounds` times, and returns their figures in the same order.
///
/// # Errors
/// [`RunError`] before anything is sent. Requests that fail are counted.
pub async fn compare(
    trace: Trace,
    targets: &[Target],
    load: &Load,
    mut progress: impl FnMut(&Progress<'_>),
) -> Result<Vec<Figures>, RunError> {
    let trace = Arc::new(trace);
    let mut models = Vec::new();
    for target in targets {
        let missing = |pid| RunError::Process { target: target.name.clone(), pid };
        if let Some(pid) = target.pid.filter(|pid| process::usage(*pid).is_none()) {
            return Err(missing(pid));
        }
        models.push(match &load.model {
            Some(model) => model.clone(),
            None => model_of(target, load.patience).await?,
        });
    }
    let mut figures: Vec<Figures> = targets.iter().map(|target| Figures::new(&target.name)).collect();
    for round in 1..=load.rounds {
        for (at, target) in targets.iter().enumerate() {
            let model = models[at].clone();
            one_run(&trace, target, model, load, (round, at), &mut figures[at], &mut progress).await;
        }
    }
    Ok(figures)
}

async fn model_of(target: &Target, patience: Duration) -> Result<String, RunError> {
    let fail = |reason: String| RunError::Models { target: target.name.clone(), reason };
    let mut connection = Connection::new(&target.authority, patience);
    let (status, body) = connection.get("/v1/models").await.map_err(fail)?;
    let list: serde_json::Value = serde_json::from_slice(&body).map_err(|e| fail(e.to_string()))?;
    let first = list["data"][0]["id"].as_str().map(str::to_owned);
    first.ok_or_else(|| fail(format!("{status} and no model")))
}

async fn one_run(
    trace: &Arc<Trace>,
    target: &Target,
    model: String,
    load: &Load,
    (round, at): (u32, usize),
    figures: &mut Figures,
    progress: &mut impl FnMut(&Progress<'_>),
) {
    let (samples, mut arriving) = mpsc::channel(1024);
    let mut children: HashMap<_, Vec<usize>> = HashMap::new();
    let mut roots = Vec::new();
    for (number, session) in trace.sessions.iter().enumerate() {
        match session.origin {
            Some(origin) => children.entry((origin.session, origin.turn)).or_default().push(number),
            None => roots.push(number),
        }
    }
    let mut rng = fastrand::Rng::with_seed(load.seed ^ u64::from(round) << 32 ^ (at as u64) << 48);
    let run = Arc::new(Run {
        trace: Arc::clone(trace),
        roots,
        children,
        system: system_blocks(trace),
        load: load.clone(),
        authority: target.authority.clone(),
        model,
        salt: rng.u64(..),
        name: format!("{:08x}", rng.u32(..)),
        begin: Instant::now(),
        next: AtomicUsize::new(0),
        running: AtomicUsize::new(0),
        samples,
    });
    let mut lanes = JoinSet::new();
    for lane in 0..load.lanes {
        lanes.spawn(lane_of_sessions(Arc::clone(&run), load.ramp.mul_f64(lane as f64 / load.lanes as f64)));
    }
    let planned = load.ramp + load.measured;
    let (mut collected, mut errors, mut most) = (Vec::new(), 0, 0);
    let (mut before, mut after) = (None, None);
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    loop {
        tokio::select! {
            sample = arriving.recv(), if !lanes.is_empty() => if let Some(sample) = sample {
                errors += usize::from(sample.answer.is_err());
                collected.push(sample);
            },
            ended = lanes.join_next() => if ended.is_none() { break },
            _ = tick.tick() => {
                let elapsed = run.begin.elapsed();
                let usage = || target.pid.and_then(process::usage).map(|usage| (elapsed, usage));
                if elapsed >= load.ramp && before.is_none() {
                    before = usage();
                }
                if elapsed >= planned && after.is_none() {
                    after = usage();
                }
                let sessions = run.running.load(Ordering::Relaxed);
                most = most.max(sessions);
                progress(&Progress {
                    target: &target.name,
                    round,
                    elapsed,
                    planned,
                    answers: collected.len() - errors,
                    errors,
                    sessions,
                });
            }
        }
    }
    while let Ok(sample) = arriving.try_recv() {
        collected.push(sample);
    }
    let after =
        after.or_else(|| target.pid.and_then(process::usage).map(|usage| (run.begin.elapsed(), usage)));
    let end = run.begin.elapsed().min(planned);
    figures.add(&collected, load.ramp..end, before.zip(after), most);
}

/// Sessions one after the other.
async fn lane_of_sessions(run: Arc<Run>, start: Duration) {
    tokio::time::sleep_until(run.begin + start).await;
    while run.is_on() {
        let Some(number) = run.roots.get(run.next.fetch_add(1, Ordering::Relaxed)).copied() else { break };
        let conversation = Conversation::new(number, run.trace.block_size, run.salt);
        session(Arc::clone(&run), number, conversation).await;
    }
}

/// All turns of a session, with the sub-agents that they start.
fn session(
    run: Arc<Run>,
    number: usize,
    mut conversation: Conversation,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let trace = Arc::clone(&run.trace);
        let session_of = &trace.sessions[number];
        let mut connection = Connection::new(&run.authority, run.load.patience);
        let name = (!session_of.id.is_empty()).then(|| format!("{}-{}", run.name, session_of.id));
        let parent = session_of.parent.as_ref().map(|parent| format!("{}-{parent}", run.name));
        run.running.fetch_add(1, Ordering::Relaxed);
        let mut answered = 0;
        for (at, turn) in session_of.turns.iter().enumerate() {
            run.wait(turn.start).await;
            if !run.is_on() {
                break;
            }
            conversation.next(turn, run.system[number], answered);
            answered = (turn.output_tokens / trace.block_size.max(1)) as usize;
            let body = run.body(&conversation, turn.output_tokens);
            let answer = connection.chat(body.into(), name.as_deref(), parent.as_deref()).await;
            let failed = answer.is_err();
            let sample = Sample { session: number, ended: run.begin.elapsed(), answer };
            let _run_over = run.samples.send(sample).await;
            if failed {
                // A server that refuses at once is not asked again at once.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let mut agents = JoinSet::new();
            for child in run.children.get(&(number, at)).into_iter().flatten() {
                let inherited = trace.sessions[*child].origin.map_or(0, |origin| origin.inherited);
                agents.spawn(session(Arc::clone(&run), *child, conversation.fork(*child, inherited)));
            }
            while agents.join_next().await.is_some() {}
        }
        run.running.fetch_sub(1, Ordering::Relaxed);
    })
}

impl Run {
    fn is_on(&self) -> bool {
        self.begin.elapsed() < self.load.ramp + self.load.measured
    }

    /// Waits until a turn is due, or the run is over.
    async fn wait(&self, start: Start) {
        let due = match start {
            Start::At(time) => self.begin + time.mul_f64(self.load.scale),
            Start::After(pause) => {
                Instant::now() + pause.mul_f64(self.load.scale).min(self.load.longest_pause)
            }
        };
        tokio::time::sleep_until(due.min(self.begin + self.load.ramp + self.load.measured)).await;
    }

    /// Messages first, as SDKs write them.
    fn body(&self, conversation: &Conversation, output_tokens: u32) -> Vec<u8> {
        let mut body = b"{\"messages\":".to_vec();
        conversation.write(&mut body);
        let rest = serde_json::json!({
            "model": self.model,
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_tokens": output_tokens.clamp(1, self.load.longest_answer),
            "ignore_eos": true,
            "nvext": {"extra_fields": ["worker_id"]},
        });
        body.push(b',');
        body.extend_from_slice(&rest.to_string().as_bytes()[1..]);
        body
    }
}

/// For each session the leading blocks of its first prompt that another session's begins with too.
fn system_blocks(trace: &Trace) -> Vec<usize> {
    let first = |number: usize| -> Vec<SequenceHash> {
        let session = &trace.sessions[number];
        let turn = session.turns.first().filter(|turn| turn.kept == 0);
        turn.map(|turn| Prompts::new(number).next(turn)[..new_blocks(turn)].to_vec()).unwrap_or_default()
    };
    let mut seen: HashMap<SequenceHash, u32> = HashMap::new();
    for number in 0..trace.sessions.len() {
        for block in first(number) {
            *seen.entry(block).or_default() += 1;
        }
    }
    let shared = |number| first(number).iter().take_while(|block| seen[*block] > 1).count();
    (0..trace.sessions.len()).map(shared).collect()
}

#[cfg(test)]
mod tests;
