//! The options of one pool's router.

use std::time::Duration;

use crate::{BusyThresholds, QueueConfig};

/// Longest accepted idle time of a session: one year.
const MAX_TTL: Duration = Duration::from_secs(31_536_000);

/// How a worker is chosen when neither a pin nor a session decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Lowest cost of cached prefix and load.
    Kv,
    /// One worker after the other.
    #[default]
    RoundRobin,
    /// Any worker.
    Random,
    /// The less loaded of two random workers.
    PowerOfTwo,
    /// The worker with the fewest requests.
    LeastLoaded,
    /// Only what the request asks for.
    Direct,
    /// Balanced over kinds of device. Known by name, not offered: [`ConfigError::UnsupportedMode`].
    DeviceAwareWeighted,
}

/// What the workers of a pool do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// Prefill and decode.
    #[default]
    Aggregated,
    /// Prefill only: blocks in use by running requests do not count.
    Prefill,
    /// Decode only, after a prefill elsewhere: balanced by load alone.
    Decode,
}

/// Options of a [`Core`](crate::Core).
#[derive(Clone, Debug)]
pub struct Config {
    /// How a worker is chosen.
    pub mode: Mode,
    /// What the pool's workers do; overrides the tracking options and the overlap credit as documented
    /// at [`Config::for_role`].
    pub role: Role,
    /// Weights of the cost.
    pub cost: CostConfig,
    /// Session affinity.
    pub affinity: AffinityConfig,
    /// When a rank counts as busy.
    pub busy: BusyThresholds,
    /// When requests wait, and in which order.
    pub queue: QueueConfig,
    /// How long a failed worker is avoided.
    pub quarantine: QuarantineConfig,
    /// Whether a decode pool looks for cached prompts: where its workers may compute prompts themselves.
    pub decode_overlap: bool,
    /// Whether blocks in use by running requests enter the cost.
    pub track_active_blocks: bool,
    /// Whether generated tokens add blocks.
    pub track_output_blocks: bool,
    /// Whether prompt tokens still to be computed enter the cost.
    pub track_prefill_tokens: bool,
    /// Whether equal prompt blocks of running requests of one rank are counted once.
    pub assume_kv_reuse: bool,
    /// The booking of another frontend's request without any sign of life is dropped after one to two times this.
    pub booking_expiry: Duration,
    /// A load report of a worker is ignored when older than this.
    pub report_max_age: Duration,
    /// Number of decisions kept for explanation; at least 1.
    pub decisions: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            role: Role::default(),
            cost: CostConfig::default(),
            affinity: AffinityConfig::default(),
            busy: BusyThresholds::default(),
            queue: QueueConfig::default(),
            quarantine: QuarantineConfig::default(),
            decode_overlap: false,
            track_active_blocks: true,
            track_output_blocks: false,
            track_prefill_tokens: true,
            assume_kv_reuse: true,
            booking_expiry: Duration::from_secs(300),
            report_max_age: Duration::from_secs(30),
            decisions: 4096,
        }
    }
}

impl Config {
    /// Returns the options as they apply to `role`.
    ///
    /// A prefill pool does not track active blocks. A decode pool gets no overlap credit unless
    /// [`Config::decode_overlap`], does not track prefill and counts every request's blocks in full. Applied by [`Core::new`](crate::Core::new) too.
    pub fn for_role(mut self, role: Role) -> Self {
        self.role = role;
        match role {
            Role::Aggregated => {}
            Role::Prefill => self.track_active_blocks = false,
            Role::Decode => {
                if !self.decode_overlap {
                    self.cost.overlap_credit = 0.0;
                }
                self.track_prefill_tokens = false;
                self.assume_kv_reuse = false;
            }
        }
        self
    }

    /// Checks every range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.mode == Mode::DeviceAwareWeighted {
            return Err(ConfigError::UnsupportedMode { mode: "device-aware-weighted" });
        }
        if self.affinity.ttl.is_some_and(|ttl| ttl < Duration::from_secs(1) || ttl > MAX_TTL) {
            return Err(ConfigError::AffinityTtl);
        }
        let CostConfig {
            overlap_credit,
            credit_decay,
            prefill_scale,
            request_weight,
            host_weight,
            disk_weight,
            shared_multiplier,
            temperature,
        } = self.cost;
        let AffinityConfig { future_weight, parent_bonus_blocks, bound, .. } = self.affinity;
        if !bound.ratio.is_finite() || bound.ratio < 1.0 {
            return Err(ConfigError::BoundRatio { value: bound.ratio });
        }
        let weights = [
            ("overlap credit", overlap_credit),
            ("overlap credit decay", credit_decay),
            ("prefill load scale", prefill_scale),
            ("active request weight", request_weight),
            ("host cache weight", host_weight),
            ("disk cache weight", disk_weight),
            ("shared cache multiplier", shared_multiplier),
            ("temperature", temperature),
            ("future load weight", future_weight),
            ("parent bonus", parent_bonus_blocks),
            ("session rebuild factor", bound.rebuild_factor),
            ("session decode weight", bound.decode_weight),
            ("queue threshold", self.queue.threshold.unwrap_or(0.0)),
        ];
        match weights.into_iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
            Some((option, value)) => Err(ConfigError::Weight { option, value }),
            None => self.busy.validate(),
        }
    }
}

/// Weights of the cost of a candidate; [`Terms`](crate::Terms) are its parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostConfig {
    /// Weight of a cached block in device memory; 0 ignores caches altogether.
    pub overlap_credit: f64,
    /// How strongly the credit shrinks on ranks with more queued prefill than the least loaded; 0 = not.
    pub credit_decay: f64,
    /// Weight of the prefill term.
    pub prefill_scale: f64,
    /// Blocks charged per running request.
    pub request_weight: f64,
    /// Weight of a cached block in host memory, 0 to 1.
    pub host_weight: f64,
    /// Weight of a cached block on disk or in an external store, 0 to 1.
    pub disk_weight: f64,
    /// Weight of a block in the cache that all workers share; 0.5 is usual where there is one.
    pub shared_multiplier: f64,
    /// 0: always the lowest cost. Higher: also others, with probability falling with their cost.
    pub temperature: f64,
}

impl Default for CostConfig {
    fn default() -> Self {
        Self {
            overlap_credit: 1.0,
            credit_decay: 0.0,
            prefill_scale: 1.0,
            request_weight: 0.0,
            host_weight: 0.75,
            disk_weight: 0.25,
            shared_multiplier: 0.0,
            temperature: 0.0,
        }
    }
}

/// How firmly a session stays with its worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AffinityMode {
    /// It stays unless the worker cannot serve.
    #[default]
    Hard,
    /// As [`AffinityMode::Hard`]: the difference in the peer is an error, and affinity never causes one here.
    Soft,
    /// It also leaves a worker that is much busier than another, where its cache is cheap to build again; see
    /// [`BoundConfig`].
    Bounded,
    /// Sessions are ignored.
    Off,
}

/// Options of session affinity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AffinityConfig {
    /// Idle time after which a binding is forgotten, 1 s to one year; `None` turns affinity off.
    pub ttl: Option<Duration>,
    /// How firmly a session stays.
    pub mode: AffinityMode,
    /// Number of bindings; when full, the one that has been idle longest gives way.
    pub capacity: usize,
    /// Weight of the tokens that live sessions of a rank are expected to bring again, in the score of a
    /// session that is being bound. 0 turns the term off.
    pub future_weight: f64,
    /// The most that term may count against a rank, tokens: a private prefix longer than this always
    /// outweighs it. Prefixes that several sessions started with raise the limit.
    pub future_cap_tokens: u32,
    /// Blocks credited to the parent's rank when a sub-agent's session starts.
    pub parent_bonus_blocks: f64,
    /// When a session leaves a hot rank, in mode [`AffinityMode::Bounded`].
    pub bound: BoundConfig,
}

/// When a bound session leaves its rank for a less loaded one. All conditions must hold. The costs are those of the
/// turn at hand, without what sessions promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundConfig {
    /// The cost at home is at least this many times the cost on the best other rank; at least 1.
    pub ratio: f64,
    /// The difference of the two is at least this many times the part of the prompt that is cached at home and would
    /// have to be computed again.
    pub rebuild_factor: f64,
    /// Weight of the blocks in use in those costs, where prefill is tracked; prefill counts in full. Blocks in use slow
    /// answers down and take room, but nobody waits for them to end.
    pub decode_weight: f64,
    /// And at least this many tokens more than that: below it nobody is hot.
    pub floor_tokens: u32,
    /// A session that has left a rank stays where it went for this long.
    pub cooldown: Duration,
}

impl Default for BoundConfig {
    fn default() -> Self {
        Self {
            ratio: 2.0,
            rebuild_factor: 6.0,
            decode_weight: 0.1,
            floor_tokens: 16_384,
            cooldown: Duration::from_secs(30),
        }
    }
}

impl Default for AffinityConfig {
    fn default() -> Self {
        Self {
            ttl: None,
            mode: AffinityMode::default(),
            capacity: 65_536,
            future_weight: 2.0,
            future_cap_tokens: 16_384,
            parent_bonus_blocks: 2.0,
            bound: BoundConfig::default(),
        }
    }
}

/// How long a worker is avoided after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantineConfig {
    /// After the first failure.
    pub first: Duration,
    /// The doubling after each failed probe stops here.
    pub longest: Duration,
    /// After the worker answered that it is overloaded.
    pub overloaded: Duration,
}

impl Default for QuarantineConfig {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(5),
            longest: Duration::from_secs(60),
            overloaded: Duration::from_secs(1),
        }
    }
}

/// A mistake in a [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The mode exists in the peer but not here.
    #[error("router mode {mode} is not supported")]
    UnsupportedMode {
        /// The mode's option value.
        mode: &'static str,
    },
    /// The session idle time is out of range.
    #[error("session affinity TTL must be between 1 and 31536000 seconds")]
    AffinityTtl,
    /// A session would leave a rank that is no busier than another.
    #[error("session affinity load ratio must be a number of at least 1, not {value}")]
    BoundRatio {
        /// The value given.
        value: f64,
    },
    /// A weight is negative or not a number.
    #[error("{option} must be a number of at least 0, not {value}")]
    Weight {
        /// What the weight is for.
        option: &'static str,
        /// The value given.
        value: f64,
    },
    /// A busy threshold is out of range.
    #[error("{option} must be {range}, not {value}")]
    Threshold {
        /// Which threshold.
        option: &'static str,
        /// What is accepted.
        range: &'static str,
        /// The value given.
        value: f64,
    },
}
