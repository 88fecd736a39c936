//! KV events straight from the engine: what a rank's cache holds, without a hole that nobody knows of.

mod decode;
mod follow;

use roost_kv::Cut;
use roost_worker::KvChanges;
use roost_zmtp::EventSockets;
use tokio_util::sync::CancellationToken;

use crate::url::authority;
use crate::{ServerInfo, ServerUrl};
use follow::Follower;

/// Where the events of one rank come from.
#[derive(Debug, Clone)]
pub(crate) struct KvSource {
    sockets: EventSockets,
    /// The publisher.
    endpoint: String,
    /// Where past events can be had.
    replay: Option<String>,
    topic: String,
    /// Tokens per block, as prompts are hashed.
    cut: Cut,
    gone: CancellationToken,
}

/// The sources of all ranks, in order; none for servers that publish nothing.
pub(crate) fn sources(
    url: &ServerUrl,
    info: &ServerInfo,
    sockets: &EventSockets,
    gone: &CancellationToken,
) -> Vec<KvSource> {
    let Some(published) = &info.kv_events else { return Vec::new() };
    let host = published.host.as_deref().unwrap_or_else(|| url.host());
    let at = |base: u16, rank: u32| {
        let port = u32::from(base) + rank;
        u16::try_from(port).ok().map(|port| format!("tcp://{}", authority(host, port)))
    };
    let source = |rank| {
        Some(KvSource {
            sockets: sockets.clone(),
            endpoint: at(published.port_base, rank)?,
            replay: published.replay_port_base.and_then(|base| at(base, rank)),
            topic: published.topic.clone(),
            cut: Cut { block_size: info.block_size, eagle: info.bigram_keys },
            gone: gone.clone(),
        })
    };
    (0..info.dp_size).map_while(source).collect()
}

/// The changes of one rank, from the present content of its cache on, until the server is given up.
pub(crate) fn changes(source: &KvSource) -> KvChanges {
    let follower = Follower::new(source.clone());
    Box::pin(futures_util::stream::unfold(follower, |mut follower| async move {
        let change = follower.next().await?;
        Some((change, follower))
    }))
}
