//! How the network runtime does: what tokio tells of itself, and how late a sleeper wakes.

use std::time::Duration;

use prometheus::{Gauge, GaugeVec, Histogram, IntCounter, IntCounterVec, IntGauge};
use roost_telemetry::{Error, Name, Registry};
use tokio::runtime::RuntimeMetrics;
use tokio::time::Instant;

use super::sample::growth;

/// How long the probe sleeps each time.
const SLEEP: Duration = Duration::from_millis(10);
/// A sleeper that wakes later than this has been kept waiting.
const STALL: Duration = Duration::from_millis(5);
/// How often tokio is asked.
const ASK: Duration = Duration::from_secs(1);

/// Families of the runtime.
#[derive(Debug)]
pub(super) struct RuntimeFamilies {
    uptime: Gauge,
    alive_tasks: IntGauge,
    global_queue: IntGauge,
    busy: GaugeVec,
    parks: IntCounterVec,
    delay: Histogram,
    stalls: IntCounter,
}

/// What was taken over of one thread.
#[derive(Debug, Default, Clone, Copy)]
struct Thread {
    busy: Duration,
    parks: u64,
}

impl RuntimeFamilies {
    pub(super) fn register(r: &Registry, router_id: u64) -> Result<Self, Error> {
        let worker = &["worker"];
        Ok(Self {
            uptime: r
                .float_gauge_vec(
                    Name::Full("dynamo_component_uptime_seconds"),
                    "Seconds since the start.",
                    &["worker_id"],
                )?
                .with_label_values(&[&router_id.to_string()]),
            alive_tasks: r.gauge(Name::Full("dynamo_tokio_alive_tasks"), "Tasks of the network runtime.")?,
            global_queue: r.gauge(
                Name::Full("dynamo_tokio_global_queue_depth"),
                "Tasks that wait in the queue that all its threads share.",
            )?,
            busy: r.float_gauge_vec(
                Name::Full("dynamo_tokio_worker_busy_ratio"),
                "Part of the last second that a thread was busy, 0 to 1.",
                worker,
            )?,
            parks: r.counter_vec(
                Name::Full("dynamo_tokio_worker_park_count_total"),
                "Times that a thread had nothing to do and slept.",
                worker,
            )?,
            delay: r.histogram(
                Name::FixedFrontend("event_loop_delay_seconds"),
                "Seconds that a sleeper on the network runtime woke too late.",
                &[0.0, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0],
            )?,
            stalls: r.counter(
                Name::FixedFrontend("event_loop_stall_total"),
                "Times that it woke more than 5 ms too late.",
            )?,
        })
    }

    pub(super) fn up(&self, time: Duration) {
        self.uptime.set(time.as_secs_f64());
    }

    /// Watches the runtime it is polled on. Never ends.
    pub(super) async fn watch(&self) {
        let runtime = tokio::runtime::Handle::current().metrics();
        let mut threads = vec![Thread::default(); runtime.num_workers()];
        let mut asked = Instant::now();
        loop {
            let begun = Instant::now();
            tokio::time::sleep(SLEEP).await;
            let late = begun.elapsed().saturating_sub(SLEEP);
            self.delay.observe(late.as_secs_f64());
            if late > STALL {
                self.stalls.inc();
            }
            let since = asked.elapsed();
            if since >= ASK {
                asked = Instant::now();
                self.ask(&runtime, &mut threads, since);
            }
        }
    }

    fn ask(&self, runtime: &RuntimeMetrics, threads: &mut [Thread], since: Duration) {
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.alive_tasks.set(whole(runtime.num_alive_tasks()));
        self.global_queue.set(whole(runtime.global_queue_depth()));
        for (number, thread) in threads.iter_mut().enumerate() {
            let name = number.to_string();
            let now = Thread {
                busy: runtime.worker_total_busy_duration(number),
                parks: runtime.worker_park_count(number),
            };
            let busy = now.busy.saturating_sub(thread.busy).as_secs_f64() / since.as_secs_f64();
            self.busy.with_label_values(&[&name]).set(busy.min(1.0));
            self.parks.with_label_values(&[&name]).inc_by(growth(thread.parks, now.parks));
            *thread = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_runtime_is_watched() -> Result<(), Error> {
        let registry = Registry::default();
        let families = RuntimeFamilies::register(&registry, 7)?;
        // The clock moves only while everything sleeps: no wake-up is late.
        let _over = tokio::time::timeout(Duration::from_millis(2500), families.watch()).await;
        assert!(families.delay.get_sample_count() >= 200, "{}", families.delay.get_sample_count());
        assert_eq!(families.stalls.get(), 0);
        let text = String::from_utf8(registry.encode()).expect("the format is text");
        assert!(text.contains("dynamo_tokio_worker_busy_ratio{worker=\"0\"}"), "{text}");
        assert!(text.contains("dynamo_tokio_worker_park_count_total{worker=\"0\"}"), "{text}");
        Ok(())
    }
}
