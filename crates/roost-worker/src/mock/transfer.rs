//! Hand-over of KV cache from prefill to decode engines of one process.

use std::collections::VecDeque;

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Rooms remembered at once; the oldest is forgotten first.
const MAX_ROOMS: usize = 65_536;

/// Where prefill and decode meet: one room per request, as real engines have it.
///
/// Either side may come first and waits for the other. Share one `Arc` among the engines.
#[derive(Debug, Default)]
pub struct Transfers {
    rooms: Mutex<Rooms>,
}

#[derive(Debug, Default)]
struct Rooms {
    by_number: HashMap<u64, watch::Sender<Room>>,
    order: VecDeque<u64>,
}

/// What has happened in a room.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    /// Prompt tokens that prefill found cached; set when the KV cache is ready.
    ready: Option<u64>,
    /// Whether decode has come for it.
    joined: bool,
}

impl Transfers {
    /// Makes a meeting place without rooms.
    pub fn new() -> Self {
        Self::default()
    }

    /// Prefill side: offers the KV cache and waits until decode has come. Cancel safe.
    pub(super) async fn deliver(&self, room: u64, cached_tokens: u64) {
        let sender = self.room(room);
        sender.send_modify(|state| state.ready = Some(cached_tokens));
        let mut state = sender.subscribe();
        // An error is impossible while `sender` lives.
        let _ = state.wait_for(|state| state.joined).await;
    }

    /// Decode side: comes to the room and waits for the KV cache. Cancel safe.
    ///
    /// Returns the number of prompt tokens that prefill had cached.
    pub(super) async fn receive(&self, room: u64) -> u64 {
        let sender = self.room(room);
        sender.send_modify(|state| state.joined = true);
        let mut state = sender.subscribe();
        let cached = match state.wait_for(|state| state.ready.is_some()).await {
            Ok(state) => state.ready,
            Err(_) => None,
        };
        cached.unwrap_or_default()
    }

    fn room(&self, number: u64) -> watch::Sender<Room> {
        let mut rooms = self.rooms.lock();
        if let Some(room) = rooms.by_number.get(&number) {
            return room.clone();
        }
        if rooms.order.len() == MAX_ROOMS
            && let Some(oldest) = rooms.order.pop_front()
        {
            rooms.by_number.remove(&oldest);
        }
        let room = watch::Sender::new(Room::default());
        rooms.order.push_back(number);
        rooms.by_number.insert(number, room.clone());
        room
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Transfers;

    #[tokio::test(start_paused = true)]
    async fn either_side_may_come_first() {
        let transfers = Arc::new(Transfers::new());
        for (room, prefill_first) in [(1, true), (2, false)] {
            let prefill = {
                let transfers = transfers.clone();
                async move { transfers.deliver(room, 48).await }
            };
            let decode = {
                let transfers = transfers.clone();
                async move { transfers.receive(room).await }
            };
            let cached = if prefill_first {
                let prefill = tokio::spawn(prefill);
                tokio::task::yield_now().await;
                assert!(!prefill.is_finished(), "prefill waits for decode");
                let cached = decode.await;
                prefill.await.unwrap();
                cached
            } else {
                let decode = tokio::spawn(decode);
                tokio::task::yield_now().await;
                assert!(!decode.is_finished(), "decode waits for prefill");
                prefill.await;
                decode.await.unwrap()
            };
            assert_eq!(cached, 48);
        }
    }
}
