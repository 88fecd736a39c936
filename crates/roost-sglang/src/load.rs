//! The load of a server's ranks: pushed where the server publishes it, else asked for.

mod report;

use std::time::Duration;

use roost_worker::RankLoad;
use roost_zmtp::{Connection, EventSockets, ZmtpError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::url::authority;
use crate::{KvEventSockets, Server, ServerInfo};
use report::{Capacity, Report};

/// Time between two questions.
const POLL: Duration = Duration::from_secs(2);
/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest pause after failures.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// A publisher reports at least once a second; one that is silent for this long is reconnected.
const SILENCE: Duration = Duration::from_secs(15);

/// Follows the load until `gone`. Must be called on a runtime.
pub(crate) fn follow(
    server: &Server,
    info: &ServerInfo,
    sockets: &EventSockets,
    gone: &CancellationToken,
) -> watch::Receiver<Vec<RankLoad>> {
    let ranks: Vec<RankLoad> = (0..info.dp_size)
        .map(|dp_rank| RankLoad {
            dp_rank,
            total_blocks: info.max_total_tokens / u64::from(info.block_size),
            ..RankLoad::default()
        })
        .collect();
    let (tell, load) = watch::channel(ranks);
    let capacity = Capacity { block_size: info.block_size };
    match info.kv_events.as_ref().and_then(|sockets| Some((sockets, sockets.load_port_base?))) {
        Some((published, base)) => {
            for rank in 0..info.dp_size {
                let Some(port) = u16::try_from(rank).ok().and_then(|rank| base.checked_add(rank)) else {
                    break;
                };
                let endpoint = endpoint(server, published, port);
                let listening =
                    listen(sockets.clone(), endpoint, published.load_topic.clone(), capacity, tell.clone());
                tokio::spawn(gone.clone().run_until_cancelled_owned(listening));
            }
        }
        None => {
            let asking = ask(server.clone(), capacity, tell);
            tokio::spawn(gone.clone().run_until_cancelled_owned(asking));
        }
    }
    load
}

fn endpoint(server: &Server, published: &KvEventSockets, port: u16) -> String {
    let host = published.host.as_deref().unwrap_or_else(|| server.url().host());
    format!("tcp://{}", authority(host, port))
}

async fn ask(server: Server, capacity: Capacity, tell: watch::Sender<Vec<RankLoad>>) {
    let mut failures = 0u32;
    loop {
        match server.json::<report::Loads>("/v1/loads", LIMIT).await {
            Ok(loads) => {
                failures = 0;
                loads.loads.into_iter().for_each(|report| note(&tell, capacity.load(&report)));
            }
            Err(error) => {
                if failures == 0 {
                    tracing::debug!(%error, "no load from this server");
                }
                failures += 1;
            }
        }
        tokio::time::sleep(POLL.saturating_mul(1 << failures.min(4)).min(MAX_PAUSE)).await;
    }
}

async fn listen(
    sockets: EventSockets,
    endpoint: String,
    topic: String,
    capacity: Capacity,
    tell: watch::Sender<Vec<RankLoad>>,
) {
    let mut pause = Duration::from_millis(200);
    loop {
        match hear(&sockets, &endpoint, &topic, capacity, &tell).await {
            Ok(()) => pause = Duration::from_millis(200),
            Err(error) => tracing::debug!(%endpoint, %error, "load reports"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Listens to one connection; fine when it has said something before its end.
async fn hear(
    sockets: &EventSockets,
    endpoint: &str,
    topic: &str,
    capacity: Capacity,
    tell: &watch::Sender<Vec<RankLoad>>,
) -> Result<(), ZmtpError> {
    let mut connection = Connection::subscribe(sockets, endpoint, topic).await?;
    let mut heard = false;
    loop {
        match tokio::time::timeout(SILENCE, connection.message()).await {
            Ok(Ok(frames)) => {
                if let Some(report) = frames.last().and_then(|payload| Report::decode(payload)) {
                    heard = true;
                    note(tell, capacity.load(&report));
                }
            }
            Ok(Err(error)) => return if heard { Ok(()) } else { Err(error) },
            Err(_) => return Err(ZmtpError::Deadline(SILENCE)),
        }
    }
}

fn note(tell: &watch::Sender<Vec<RankLoad>>, load: RankLoad) {
    tell.send_if_modified(|ranks| match ranks.get_mut(load.dp_rank as usize) {
        Some(rank) if *rank != load => {
            *rank = load;
            true
        }
        _ => false,
    });
}
