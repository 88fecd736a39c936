use std::sync::atomic::{AtomicU64, Ordering};

/// Declares a struct of counters together with the struct of their values at one moment.
macro_rules! counters {
    ($(#[$doc:meta])* $counters:ident => $(#[$values_doc:meta])* $values:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $counters {
            $(pub(crate) $field: Counter,)*
        }

        $(#[$values_doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $values {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl $counters {
            /// Reads all counters, each by itself.
            pub(crate) fn values(&self) -> $values {
                $values { $($field: self.$field.get(),)* }
            }
        }
    };
}

counters! {
    /// Counters of the calling side.
    ClientCounters =>
    /// What the calling side has done since it started; gauges are named `open_*`.
    ClientStats {
        /// Calls begun.
        calls,
        /// Request bytes written.
        sent_bytes,
        /// Connections made to workers.
        connections,
        /// Connections open now.
        open_connections,
        /// Connections that could not be made.
        connect_failures,
        /// Connections given up because an acknowledgement was late.
        ack_timeouts,
        /// Connections lost with frames unacknowledged.
        disconnects,
        /// Acknowledgements: queued.
        acks_accepted,
        /// Acknowledgements: worker full.
        acks_overloaded,
        /// Acknowledgements: not served there.
        acks_unavailable,
        /// Acknowledgements: frame not readable.
        acks_refused,
        /// Frames sent again because their connection was given up for another's sake.
        sent_again,
        /// Calls that the pool had no room for.
        pool_full,
        /// Calls that were acknowledged but not called home in time.
        call_home_timeouts,
        /// Calls whose prologue did not come in time.
        prologue_timeouts,
        /// Calls refused by a prologue.
        prologue_errors,
    }
}

counters! {
    /// Counters of the response listener.
    ListenerCounters =>
    /// What the response listener has seen since it started.
    ListenerStats {
        /// Connections accepted.
        accepted,
        /// Connections handed to their request.
        matched,
        /// Connections that named a subject nobody waits for.
        unknown_subjects,
        /// Connections that sent no proper handshake, or none in time.
        bad_handshakes,
        /// Errors of the listening socket.
        accept_errors,
        /// Bytes read from workers' connections.
        received_bytes,
    }
}

counters! {
    /// Counters of the serving side.
    WorkerCounters =>
    /// What the serving side has done since it started; gauges are named `open_*`.
    WorkerStats {
        /// Request frames read.
        requests,
        /// Connections accepted.
        connections,
        /// Requests waiting for a handler slot now.
        open_queued,
        /// Answers in progress now.
        open_streams,
        /// Requests refused because the worker is full.
        overloaded,
        /// Requests refused because nothing serves them.
        unavailable,
        /// Frames that could not be read.
        unreadable,
        /// Answers that could not be sent because the frontend was not reachable.
        dial_failures,
        /// Requests refused in the prologue.
        refused,
        /// Answers sent to their end.
        completed,
        /// Answers cancelled by the frontend, with a control frame or by closing.
        cancelled,
        /// Answers broken off by the handler.
        aborted,
        /// Answer bytes written.
        sent_bytes,
    }
}

/// A number that many tasks change.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Counts up until the returned value is dropped.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.add(1);
        Held(self)
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One unit of a gauge.
#[derive(Debug)]
pub(crate) struct Held<'a>(&'a Counter);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
