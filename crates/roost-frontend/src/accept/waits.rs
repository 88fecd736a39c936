//! How long a connection may make us wait: decided from what has happened on it and the time, nothing else.

use std::time::Duration;

use tokio::time::Instant;

/// Longest waits for a client; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitLimits {
    /// For a whole request head, from its first byte; for that of the first request, from the start of the connection.
    pub(crate) head: Option<Duration>,
    /// For the next request, from the end of the one before.
    pub(crate) idle: Option<Duration>,
    /// For a client to take the next bytes of an answer.
    pub(crate) write_stall: Option<Duration>,
}

/// Why a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// No whole request head in time.
    Head,
    /// No request for too long.
    Idle,
    /// The client does not read.
    WriteStall,
}

/// What has happened on one connection.
#[derive(Debug)]
pub(crate) struct Waits {
    limits: WaitLimits,
    /// HTTP/2: bytes between requests are not the beginning of one.
    multiplexed: bool,
    /// Requests whose answers have not ended.
    running: u32,
    /// Whether there was a request.
    served: bool,
    /// Start of the connection, or the end of the last answer.
    since: Instant,
    /// First byte of a head that is not whole.
    head: Option<Instant>,
    /// Since when the socket takes no bytes.
    blocked: Option<Instant>,
    heard: bool,
}

/// The first bytes of HTTP/2; no method of HTTP/1 begins with them.
const HTTP2: &[u8] = b"PRI ";

impl Waits {
    pub(crate) fn new(limits: WaitLimits, now: Instant) -> Self {
        Waits {
            limits,
            multiplexed: false,
            running: 0,
            served: false,
            since: now,
            head: None,
            blocked: None,
            heard: false,
        }
    }

    /// Bytes arrived.
    pub(crate) fn received(&mut self, bytes: &[u8], now: Instant) {
        if !self.heard {
            self.heard = true;
            self.multiplexed = bytes.starts_with(HTTP2);
        }
        if self.running == 0 && !self.multiplexed && self.head.is_none() {
            self.head = Some(now);
        }
    }

    /// Bytes went out, or nothing is left to send.
    pub(crate) fn sent(&mut self) {
        self.blocked = None;
    }

    /// The socket takes no more bytes.
    pub(crate) fn blocked(&mut self, now: Instant) {
        self.blocked.get_or_insert(now);
    }

    /// A request head is whole.
    pub(crate) fn request(&mut self) {
        self.served = true;
        self.running += 1;
        self.head = None;
    }

    /// An answer has ended.
    pub(crate) fn answered(&mut self, now: Instant) {
        self.running = self.running.saturating_sub(1);
        self.since = now;
    }

    /// When the connection is to be cut if nothing else happens, and why.
    pub(crate) fn due(&self) -> Option<(Instant, Cut)> {
        let after = |since: Instant, limit: Option<Duration>, cut: Cut| {
            limit.and_then(|limit| since.checked_add(limit)).map(|at| (at, cut))
        };
        let write = self.blocked.and_then(|since| after(since, self.limits.write_stall, Cut::WriteStall));
        let read = if self.running > 0 {
            None
        } else if let Some(head) = self.head.filter(|_| self.served) {
            after(head, self.limits.head, Cut::Head)
        } else if !self.served {
            after(self.since, self.limits.head, Cut::Head)
        } else {
            after(self.since, self.limits.idle, Cut::Idle)
        };
        write.into_iter().chain(read).min_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    const LIMITS: WaitLimits =
        WaitLimits { head: Some(seconds(30)), idle: Some(seconds(600)), write_stall: Some(seconds(60)) };

    #[test]
    fn a_head_has_a_time_of_its_own() {
        let t = Instant::now();
        let mut waits = Waits::new(LIMITS, t);
        assert_eq!(waits.due(), Some((t + seconds(30), Cut::Head)), "a connection that says nothing");
        waits.received(b"POST ", t + seconds(10));
        assert_eq!(waits.due(), Some((t + seconds(30), Cut::Head)), "the first head is timed from the start");
        waits.request();
        assert_eq!(
            waits.due(),
            None,
            "while a request runs, its body and its worker have limits of their own"
        );
        waits.received(b"body", t + seconds(11));
        waits.answered(t + seconds(40));
        assert_eq!(waits.due(), Some((t + seconds(640), Cut::Idle)));
        waits.received(b"P", t + seconds(500));
        waits.received(b"O", t + seconds(520));
        assert_eq!(waits.due(), Some((t + seconds(530), Cut::Head)), "a byte now and then buys no time");
    }

    #[test]
    fn frames_of_http_2_between_requests_begin_no_head() {
        let t = Instant::now();
        let mut waits = Waits::new(LIMITS, t);
        waits.received(b"PRI * HTTP/2.0\r\n", t);
        assert_eq!(waits.due(), Some((t + seconds(30), Cut::Head)));
        waits.request();
        waits.request();
        waits.answered(t + seconds(1));
        assert_eq!(waits.due(), None);
        waits.answered(t + seconds(2));
        waits.received(b"a ping", t + seconds(300));
        assert_eq!(waits.due(), Some((t + seconds(602), Cut::Idle)));
    }

    #[test]
    fn a_client_that_reads_a_little_is_not_stalled() {
        let t = Instant::now();
        let mut waits = Waits::new(LIMITS, t);
        waits.request();
        waits.blocked(t + seconds(5));
        waits.blocked(t + seconds(50));
        assert_eq!(waits.due(), Some((t + seconds(65), Cut::WriteStall)), "counted from the first refusal");
        waits.sent();
        assert_eq!(waits.due(), None);
        waits.blocked(t + seconds(70));
        waits.answered(t + seconds(71));
        assert_eq!(
            waits.due(),
            Some((t + seconds(130), Cut::WriteStall)),
            "the end of the answer is still in our buffer"
        );
    }

    #[test]
    fn no_limits_no_cuts() {
        let t = Instant::now();
        let mut waits = Waits::new(WaitLimits { head: None, idle: None, write_stall: None }, t);
        waits.blocked(t);
        assert_eq!(waits.due(), None);
    }
}
