//! The number under which a prefill and a decode worker meet.

/// Largest room: the wire carries a signed 64-bit integer.
const LAST_ROOM: u64 = i64::MAX as u64;

/// Returns the bootstrap room for a random `draw`, such that `room % size` is the prefill `rank`.
///
/// A `size` of 0 means that rank and size are unknown: the draw itself is the room. The result always
/// fits a signed 64-bit integer.
pub fn bootstrap_room(draw: u64, rank: u32, size: u32) -> u64 {
    let draw = draw & LAST_ROOM;
    if size == 0 {
        return draw;
    }
    let (rank, size) = (u64::from(rank), u64::from(size));
    (draw % ((LAST_ROOM - rank) / size + 1)) * size + rank
}

#[cfg(test)]
mod tests;
